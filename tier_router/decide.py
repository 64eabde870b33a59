"""Which tier and which replica, and why.  A pure function: no I/O, no clock, no randomness.

    pin -> want -> conversation -> load price -> guards -> spill -> shed -> replica

Every step leaves a reason.  Guards and spills only move a request up, unless nothing above is able
or up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from types import MappingProxyType

from tier_router.classify import Verdict
from tier_router.config import Config, Replica, Rule, Tier
from tier_router.config.model import AUTO
from tier_router.errors import (
    NoReplica,
    NotAllowed,
    NotCapable,
    Overloaded,
    PromptTooLong,
    UnknownTier,
)
from tier_router.pressure import DOWN, FULL
from tier_router.request import Kind, Need, View

SPREAD = 1.25
"""How far over its tier's mean load a replica may be and still get the requests of its
conversations, so that vLLM's prefix cache stays warm (consistent hashing with bounded loads;
Mirrokni, Thorup and Zadimoghaddam, 2018).  Chosen in `tests/sim`: it spreads as well as picking the
least loaded, and 81 to 84 % of follow-ups come back to their replica."""

FADE = 0.5
"""What is left of a hard turn's difficulty after each easy turn that follows it: so the hardest
turns hold for one.  In `tests/sim` 0.7 takes the turns that change tier from 44 to 38 % at 11 %
more latency, and nothing shows that a held turn is answered better."""

CACHE_TOKENS = 4_096
"""From this prompt on, even a courtesy stays with the tier that has the conversation cached: a
re-prefill on another tier (about 10,000 tokens/s on one GPU) would cost it over 0.4 s."""

SLACK = 1.3
"""How far over its context a tier may look by our estimate before it is ruled out for good: the
estimate may be that much too high, and vLLM counts exactly."""

EXPECTED_OUTPUT = 256
"""Tokens of an answer whose limit the client did not set (the median of Azure's 2023 conversation
trace is 129, its mean 211)."""

_NO_SCALES: Mapping[str, float] = MappingProxyType({})

Spare = Callable[[Tier], float]
"""The estimated tokens that pruning takes out of a prompt for sure on its way to a tier."""

MOST_SPARED = 4.0
"""How far over a tier's context a prompt may be and still be asked about: pruning was not seen to
take more than three quarters of one."""


def nothing(_: Tier) -> float:
    """What there is to spare where nothing is pruned."""
    return 0.0


SOFT = frozenset({Need.REASONING, Need.LOGPROBS})
"""Needs that are dropped where no tier has them: vLLM answers without."""


class Reason(StrEnum):
    """Why a request went where it went."""

    PINNED = "pinned"
    RULE = "rule"
    INTENT = "intent"
    EASY = "easy"
    HARD = "hard"
    UNSURE = "unsure"
    HOUSEKEEPING = "housekeeping"
    MEDIA = "media"
    CONTINUES = "continues"
    HELD = "held"
    TOOL_TURN = "tool_turn"
    LOAD_UP = "load_up"
    LOAD_DOWN = "load_down"
    NEEDS_CONTEXT = "needs_context"
    NEEDS_TOOLS = "needs_tools"
    NEEDS_VISION = "needs_vision"
    NEEDS_AUDIO = "needs_audio"
    NEEDS_JSON = "needs_json"
    NEEDS_LOGPROBS = "needs_logprobs"
    NEEDS_REASONING = "needs_reasoning"
    EMBEDDINGS = "embeddings"
    STORED = "stored"
    SPILLED = "spilled"
    TIER_DOWN = "tier_down"
    FAILOVER = "failover"
    HEDGED = "hedged"


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdicts on a view: on its turn, and on the human turns before it, oldest first."""

    now: Verdict
    earlier: tuple[Verdict, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """Where a request goes and why: log line, response headers and test assertion in one.

    `difficulty` is the one that decided, else the turn's own; None where nothing could be judged.
    `threshold` is set where a difficulty decided; `confidence` is that of `intent`; `pressures` is
    the least pressure of each tier's replicas; `alternatives` are the other tiers that could have
    answered.  `priority` is what vLLM's queue should be told, 0 being nothing.
    """

    tier: str
    replica: str
    url: str
    model: str
    reasons: tuple[Reason, ...]
    difficulty: float | None = None
    threshold: float | None = None
    intent: str | None = None
    confidence: float = 0.0
    abstain: str | None = None
    nearest: str | None = None
    pressures: Mapping[str, float] = field(default_factory=dict)
    alternatives: tuple[str, ...] = ()
    priority: int = 0

    def __repr__(self) -> str:
        return f"<Decision {self.tier}/{self.replica} because={','.join(self.reasons)}>"


@dataclass(slots=True)
class _Want:
    """The tier that a request asks for, on its way through the steps."""

    place: int
    reasons: list[Reason]
    level: float | None = None
    """The difficulty that decided; None where something else did."""
    pinned: bool = False
    urgency: int = 0
    """1 for what is easy, -1 for what can wait, 0 else; load and guards do not change it."""


def decide(
    view: View,
    judged: Judged,
    config: Config,
    thresholds: Sequence[float],
    pressures: Mapping[str, float],
    exclude: Collection[str] = (),
    scales: Mapping[str, float] = _NO_SCALES,
    spare: Spare = nothing,
) -> Decision:
    """The decision for `view`.

    `thresholds[i]` is the difficulty from which tier i is not enough (a ladder of one tier has one
    too: it tells easy from hard); `pressures` is by replica name (a missing one is idle);
    `exclude` holds replicas that this request has failed on; `scales` are by tier the real prompt
    tokens for each estimated one; `spare` is asked only for the wanted tier, and only where the
    prompt would not fit it.
    Raises UnknownTier, NotCapable, PromptTooLong, NoReplica or Overloaded.
    """
    tiers = config.tiers
    shut = exclude if view.keeper is None else _all_but(view.keeper, config).union(exclude)
    loads = [_tier_pressure(tier, pressures, shut) for tier in tiers]
    want = _settled(view, config) or _rule(view, config)
    if want is None:
        want = _wanted(view, judged, config, thresholds)
        want.place = min(want.place, config.rungs - 1)
        want.urgency = want.urgency or _urgency(want, thresholds)
        _price_load(want, view, config.load.price, thresholds, loads[: config.rungs])
    able = _able(view, config, want, scales, spare)
    _guard(want, view, tiers, able, scales)
    _spill(want, able, loads, tiers)
    priority = _priority(want, view, config.load.stamp)
    _shed(want, able, loads, tiers, config.load.shed, priority)
    tier = tiers[want.place]
    replica = _replica(tier, view.key, pressures, shut)
    if exclude:
        want.reasons.append(Reason.FAILOVER)
    verdict = judged.now
    decided = want.level is not None
    return Decision(
        tier=tier.name,
        replica=replica.name or replica.url,
        url=replica.url,
        model=tier.model,
        reasons=tuple(want.reasons),
        difficulty=want.level if decided or verdict.abstain else verdict.difficulty,
        threshold=thresholds[0] if decided and thresholds else None,
        intent=verdict.intent,
        confidence=verdict.confidence if verdict.intent is not None else 0.0,
        abstain=verdict.abstain if Reason.UNSURE in want.reasons else None,
        nearest=verdict.nearest,
        pressures={tier.name: load for tier, load in zip(tiers, loads, strict=True)},
        alternatives=tuple(tiers[place].name for place in able if place != want.place),
        priority=priority if tier.kind == "vllm" else 0,
    )


# ---- pin and rule


def _settled(view: View, config: Config) -> _Want | None:
    """What leaves no choice of tier: the replica that keeps a response, embeddings, a pin."""
    if view.keeper is not None:
        for place, tier in enumerate(config.tiers):
            if view.keeper in tier.names:
                return _Want(place, [Reason.STORED], pinned=True)
    want = _pin(view, config)
    if Need.EMBEDDINGS in view.needs:
        return _pooling(want, config)
    if want is not None and want.place >= config.rungs:
        name = config.tiers[want.place].name
        raise NotCapable(f"tier `{name}` only makes embeddings", param="model")
    return want


def _all_but(keeper: str, config: Config) -> frozenset[str]:
    return frozenset(name for tier in config.tiers for name in tier.names) - {keeper}


def _pooling(pin: _Want | None, config: Config) -> _Want:
    """The tier that was named, else the first that makes embeddings.  No other one will do: the
    vectors of two models have nothing in common."""
    makers = config.tiers[config.rungs :]
    if not makers:
        raise NotCapable(
            "no tier makes embeddings: one has to, with `can: [embeddings]`", param="model"
        )
    if pin is None:
        return _Want(config.rungs, [Reason.EMBEDDINGS], pinned=True)
    if pin.place < config.rungs:
        tier, those = config.tiers[pin.place].name, ", ".join(maker.name for maker in makers)
        raise NotCapable(f"tier `{tier}` makes no embeddings ({those} can)", param="model")
    return pin


def _pin(view: View, config: Config) -> _Want | None:
    """What the client named, by header or as model."""
    for value, param in ((view.header, "x-tier-router-tier"), (view.model, "model")):
        if value is None:
            continue
        target = config.pins.get(value)
        if target is None:
            known = ", ".join([AUTO, *config.ladder, *config.aliases])
            raise UnknownTier(f"no tier or model named `{value}` (there are: {known})", param=param)
        if target != AUTO:
            return _Want(config.ladder[target], [Reason.PINNED], pinned=True)
    return None


def _rule(view: View, config: Config) -> _Want | None:
    for rule in config.rules:
        if _fits(rule, view):
            return _Want(config.ladder[rule.tier], [Reason.RULE])
    return None


def _fits(rule: Rule, view: View) -> bool:
    when = rule.when
    for name, wanted in when.header.items():
        value = view.headers.get(name)
        if value is None or wanted not in ("*", value):
            return False
    text = view.turn.text
    if when.pattern is not None and not when.pattern.search(text):
        return False
    return when.compiled is None or bool(when.compiled.search(text))


# ---- want, conversation


def _wanted(view: View, judged: Judged, config: Config, thresholds: Sequence[float]) -> _Want:
    """The smallest tier that covers what was asked, and the conversation it belongs to."""
    verdict = judged.now
    if view.kind is Kind.HOUSEKEEPING:
        return _Want(0, [Reason.HOUSEKEEPING], urgency=-1)
    if view.kind is not Kind.NONE and not view.turn.text and view.turn.media:
        return _Want(0, [Reason.MEDIA])
    reasons = [Reason.TOOL_TURN] if view.kind is Kind.TOOL else []
    top = config.rungs - 1
    if verdict.continues and judged.earlier:
        level = _earned(judged.earlier, config, thresholds)
        reasons.append(Reason.CONTINUES)
        return _Want(_place(level, thresholds), reasons, level)
    if view.kind is Kind.NONE or verdict.abstain is not None or verdict.continues:
        return _Want(top, [*reasons, Reason.UNSURE])
    own = _intent_place(verdict, config)
    level = verdict.difficulty if own is None else _level_of(own, thresholds)
    place = _place(level, thresholds) if own is None else own
    held = _held(view, judged, config, thresholds)
    if _place(held, thresholds) > place:
        return _Want(_place(held, thresholds), [*reasons, Reason.HELD], held)
    if own is not None:
        return _Want(own, [*reasons, Reason.INTENT])
    reasons.append(Reason.HARD if place else Reason.EASY)
    return _Want(place, reasons, level)


def _held(view: View, judged: Judged, config: Config, thresholds: Sequence[float]) -> float:
    """What is left of the earlier turns' difficulty.

    A courtesy ("thanks!") asks for nothing, so it holds no tier, unless the prefix cache that a
    move would throw away is worth more than the move.
    """
    if not judged.earlier or (judged.now.courtesy and view.tokens < CACHE_TOKENS):
        return 0.0
    return _earned(judged.earlier, config, thresholds) * FADE


def _earned(verdicts: Sequence[Verdict], config: Config, thresholds: Sequence[float]) -> float:
    """The level that a conversation has reached: hard turns raise it, easy ones let it fade."""
    level = 0.0
    for verdict in verdicts:
        if verdict.continues:
            continue
        place = _intent_place(verdict, config)
        if verdict.abstain is not None:
            own = _level_of(len(thresholds), thresholds)
        else:
            own = verdict.difficulty if place is None else _level_of(place, thresholds)
        level = max(own, level * FADE)
    return level


def _intent_place(verdict: Verdict, config: Config) -> int | None:
    if verdict.intent is None:
        return None
    intent = config.intents.get(verdict.intent)
    return None if intent is None or intent.tier is None else config.ladder[intent.tier]


def _urgency(want: _Want, thresholds: Sequence[float]) -> int:
    """1 where the lightest tier is enough."""
    if want.level is not None and thresholds:
        return int(want.level < thresholds[0])
    return int(want.reasons[-1] is Reason.INTENT and not want.place)


def _place(level: float, thresholds: Sequence[float]) -> int:
    """The smallest tier whose threshold lies above `level`."""
    return sum(level >= threshold for threshold in thresholds)


def _level_of(place: int, thresholds: Sequence[float]) -> float:
    """A level that stands for a tier which something other than difficulty has settled."""
    return thresholds[place - 1] if place else 0.0


# ---- load price


def _price_load(
    want: _Want, view: View, price: float, thresholds: Sequence[float], loads: Sequence[float]
) -> None:
    """Lets a borderline human turn follow the shorter queue."""
    if want.level is None or view.kind is not Kind.HUMAN or not price:
        return
    if min(loads) == max(loads):
        return  # as all idle are: no threshold would move
    moved = [
        _shifted(threshold, price * (_bounded(loads[step + 1]) - _bounded(loads[step])))
        for step, threshold in enumerate(thresholds[: len(loads) - 1])
    ]
    place = _place(want.level, sorted(moved))
    if place != want.place:
        want.reasons.append(Reason.LOAD_UP if place > want.place else Reason.LOAD_DOWN)
        want.place = place


def _bounded(load: float) -> float:
    return min(load, FULL)


def _shifted(threshold: float, log_odds: float) -> float:
    """`threshold` moved by `log_odds`; 0 and 1 stay, they mean always and never."""
    if not 0 < threshold < 1 or not log_odds:
        return threshold
    return 1 / (1 + (1 - threshold) / threshold * math.exp(-log_odds))


# ---- guards


def _able(
    view: View, config: Config, want: _Want, scales: Mapping[str, float], spare: Spare
) -> list[int]:
    """The places of the tiers that can answer; raises where there are none."""
    tiers = config.tiers[: config.rungs]
    if want.pinned:
        tier = config.tiers[want.place]
        if view.allowed is not None and tier.name not in view.allowed:
            raise NotAllowed(f"the API key does not open tier `{tier.name}`")
        # of embeddings each text has to fit, not all together
        if not tier.pools and _over(view, tier, scales, spare, SLACK) > SLACK:
            raise _too_long(view, [tier])
        return [want.place]
    needs = view.needs
    if needs & SOFT:
        needs -= {need for need in SOFT if not any(need in tier.can for tier in tiers)}
    capable = [place for place, tier in enumerate(tiers) if needs <= tier.can]
    if not capable:
        lacking = ", ".join(sorted(needs - frozenset().union(*(t.can for t in tiers)))) or (
            " and ".join(sorted(needs)) + " together"
        )
        raise NotCapable(f"no tier can do: {lacking} (see `can` of the tiers)")
    if view.allowed is not None:
        capable = [place for place in capable if tiers[place].name in view.allowed]
        if not capable:
            opened = ", ".join(sorted(view.allowed))
            raise NotAllowed(f"the API key opens tiers that cannot do this only: {opened}")
    over = {place: _over(view, tiers[place], scales) for place in capable}
    if 1 < over.get(want.place, 0.0) <= MOST_SPARED:
        over[want.place] = _over(view, tiers[want.place], scales, spare)
    fitting = [place for place in capable if over[place] <= 1]
    if fitting:
        return fitting
    widest = min(capable, key=over.__getitem__)
    if over[widest] > SLACK:
        raise _too_long(view, [tiers[place] for place in capable])
    return [widest]


def _over(
    view: View,
    tier: Tier,
    scales: Mapping[str, float],
    spare: Spare = nothing,
    limit: float = 1.0,
) -> float:
    """Prompt and wanted answer, over the tier's context; over `limit`, without what is to spare.

    vLLM clamps an answer that does not fit; a limit the client set is wanted in full only where
    a larger tier could give it.
    """
    if tier.context is None:
        return 0.0
    wanted = min(view.max_tokens or EXPECTED_OUTPUT, tier.context // 2)
    scale = scales.get(tier.name, 1.0)
    over = (view.tokens * scale + wanted) / tier.context
    return over if over <= limit else over - spare(tier) * scale / tier.context


def _too_long(view: View, tiers: Sequence[Tier]) -> PromptTooLong:
    widest = max(tier.context or 0 for tier in tiers)
    return PromptTooLong(
        f"the prompt has about {view.tokens} tokens; the largest context that may answer is "
        f"{widest} tokens ({', '.join(tier.name for tier in tiers)})",
        param="messages",
    )


def _guard(
    want: _Want,
    view: View,
    tiers: Sequence[Tier],
    able: Sequence[int],
    scales: Mapping[str, float],
) -> None:
    """Moves to the nearest able tier: above, or where none is, the highest below."""
    if want.place in able:
        return
    tier = tiers[want.place]
    if _over(view, tier, scales) > 1:
        want.reasons.append(Reason.NEEDS_CONTEXT)
    want.reasons += [
        Reason(f"needs_{need}")
        for need in sorted(view.needs - tier.can)
        if need not in SOFT or any(need in other.can for other in tiers)
    ]
    want.place = next((place for place in able if place > want.place), able[-1])


# ---- spill


def _tier_pressure(tier: Tier, pressures: Mapping[str, float], exclude: Collection[str]) -> float:
    """The least pressure of the tier's replicas."""
    get = pressures.get
    return min([get(name, 0.0) for name in tier.names if name not in exclude], default=DOWN)


def _spill(want: _Want, able: Sequence[int], loads: Sequence[float], tiers: Sequence[Tier]) -> None:
    """Leaves a tier that is down, and for what is not hard also one that is full."""
    here = loads[want.place]
    if here < FULL:
        return
    above = [place for place in able if place > want.place]
    if here < DOWN:
        free = next((place for place in above if loads[place] < FULL), None)
        if free is not None:
            want.place = free
            want.reasons.append(Reason.SPILLED)
        return
    below = [place for place in reversed(able) if place < want.place]
    up = [place for place in (*above, *below) if loads[place] < DOWN]
    if not up:
        names = ", ".join(tiers[place].name for place in able)
        raise NoReplica(f"no replica is up ({names})")
    want.place = next((place for place in up if loads[place] < FULL), up[0])
    want.reasons.append(Reason.TIER_DOWN)


# ---- priority and shedding


def _priority(want: _Want, view: View, stamp: int) -> int:
    """The client's own priority, else `stamp` for what is easy."""
    return view.priority if view.priority is not None else stamp * want.urgency


def _shed(
    want: _Want,
    able: Sequence[int],
    loads: Sequence[float],
    tiers: Sequence[Tier],
    limit: float | None,
    priority: int,
) -> None:
    """Refuses what no able tier has room for, the lowest priority first; a neighbour above that
    has some takes it."""
    if limit is None:
        return
    limit *= 2.0 if priority < 0 else 0.5 if priority > 0 else 1.0
    if loads[want.place] < limit:
        return
    free = next((place for place in able if place > want.place and loads[place] < limit), None)
    if free is not None:
        want.place = free
        want.reasons.append(Reason.SPILLED)
        return
    tier, load = tiers[want.place].name, loads[want.place]
    if load < DOWN:
        raise Overloaded(
            f"tier `{tier}` is at {load:.1f} times its limit, refused from {limit:.1f} on",
            tier=tier,
            excess=1 - limit / load,
        )


# ---- replica


def _replica(
    tier: Tier, key: int, pressures: Mapping[str, float], exclude: Collection[str]
) -> Replica:
    """The replica that the conversation has always had, unless it has much more to do than the
    others; then the next one that it would have had."""
    names, get = tier.names, pressures.get
    loads = [DOWN if name in exclude else get(name, 0.0) for name in names]
    least = min(loads)
    if least == DOWN:
        raise NoReplica(f"no replica of tier `{tier.name}` is up")
    up = [load for load in loads if load < DOWN]
    bound = SPREAD * (sum(up) / len(up) + 1 / tier.limits.requests)
    if least < FULL:
        bound = min(bound, math.nextafter(FULL, 0.0))
    best = [place for place, load in enumerate(loads) if load <= bound]
    if len(best) == 1:
        return tier.replicas[best[0]]
    return tier.replicas[max(best, key=lambda place: _rendezvous(key, names[place]))]


def _rendezvous(key: int, name: str) -> int:
    """Highest-random-weight hashing (Thaler and Ravishankar, 1998), mixed as SplitMix64 does."""
    mixed = key ^ _seed(name)
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
    return mixed ^ (mixed >> 31)


@lru_cache(maxsize=4096)
def _seed(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big")
