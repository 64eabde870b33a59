"""The pruner: one for each router, asked by all doors."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from threading import Lock
from typing import Any

from tier_router.config import Config, Tier
from tier_router.config.pruning import HEADER, LOSSY, Mode, Pruning, Step, Template, TierPruning
from tier_router.decide import Decision, Reason
from tier_router.errors import ConfigError
from tier_router.pace import Pace, Paces, Script, Usage
from tier_router.prune.audit import Answer, Audit, audit, overrides, refusals
from tier_router.prune.pipeline import plan
from tier_router.prune.plan import Known, Plan, unread
from tier_router.prune.report import Tally, record
from tier_router.prune.score import Scorer
from tier_router.prune.speeds import speeds_of
from tier_router.prune.steps.caps import Lengths
from tier_router.prune.warm import COLD, Caches
from tier_router.pruner.proofs import Proofs
from tier_router.pruner.thread import Auditor
from tier_router.pruner.trimming import Pruned
from tier_router.request import View

log = logging.getLogger("tier_router")

AUDITS_A_SECOND, AT_ONCE = 5.0, 50.0
"""Answers that are audited: an audit of a prompt of 32,000 tokens takes 6 to 20 ms of a core, and
600 are proof enough.  Which ones are left out does not depend on what is in them."""

Told = Callable[[], Answer | None]
"""Reads an answer, when it is time to."""
Then = Callable[[dict[str, Any] | None], None]
"""Takes a request's record, None where there is nothing to tell."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A `pruning` section with what it needs at hand."""

    config: Config
    scorer: Scorer
    auditor: Auditor
    lengths: Lengths
    settings: Mapping[str, Pruning]
    """By tier."""


class Pruner:
    """Plans what is taken out of requests, and learns from their answers.

    Safe to use from threads.  `paces` are what answers taught of each tier.
    """

    def __init__(self, paces: Paces, clock: Callable[[], float]) -> None:
        self._paces, self._clock = paces, clock
        self._ready: Ready | None = None
        self._caches = Caches()
        self._templates: dict[str, tuple[Template, bool]] = {}
        self._tell: set[str] = set()  # replicas whose usage says what was cached
        self._lock = Lock()
        self._room, self._room_at = AT_ONCE, -math.inf
        self.tally = Tally()

    @property
    def active(self) -> bool:
        """Whether there is anything to do for a request."""
        return self._ready is not None

    def prepare(self, config: Config) -> Ready | None:
        """What `config` needs; None where it leaves all requests alone.  May take long.

        Raises ConfigError where a lossy step is `on` without its proof.
        """
        pruning = config.pruning
        if pruning.mode is Mode.OFF:
            return None
        proofs = Proofs(pruning)
        tiers = tuple(tier.name for tier in config.tiers[: config.rungs])
        missing = refusals(pruning, tiers, proofs.audits)
        if missing:
            raise ConfigError(missing[0].partition(": ")[2], key=missing[0].partition(": ")[0])
        for line in overrides(pruning, tiers, proofs.audits):
            log.warning("%s", line)
        ready = self._ready
        same = ready is not None and ready.config.pruning.steps.caps == pruning.steps.caps
        return Ready(
            config,
            _scorer(_ranks(pruning)),
            Auditor(proofs, pruning.promote, tiers),
            ready.lengths if ready is not None and same else Lengths(pruning.steps.caps),
            {tier.name: _of_host(pruning, tier) for tier in config.tiers[: config.rungs]},
        )

    def adopt(self, ready: Ready | None) -> None:
        """Works by `ready` from now on."""
        old, self._ready = self._ready, ready
        if old is not None:
            old.auditor.close(0.0)

    def close(self) -> None:
        """Audits what waits, and saves the proofs."""
        if self._ready is not None:
            self._ready.auditor.close()

    def probed(self, tier: str, template: Template, thinks: bool) -> None:
        """Takes over what a tier's chat template does with the thinking switch, and whether its
        model thinks where nobody says anything."""
        self._templates[tier] = template, thinks

    def misfired(self, tier: str) -> None:
        """With thinking off, an answer of `tier` came back empty: it is switched off no more."""
        if self._templates.get(tier, (None,))[0] is not Template.NONE:
            log.warning("tier `%s` answers nothing with thinking off; it is left on", tier)
        self._templates[tier] = Template.NONE, True
        self.tally.misfired(tier)

    # ---- what `Trimming` asks

    def planned(
        self, body: Mapping[str, Any], view: View, tier: Tier, decision: Decision | None,
        header: str | None = None,
    ) -> Plan:  # fmt: skip
        """The plan for a body on its way to the decision's replica; to a cold one without it.

        `header` stands for the client's own wish."""
        ready = self._ready
        if ready is None or tier.name not in ready.settings:
            return Plan(tier.name)
        settings = ready.settings[tier.name]
        pace, cached = self._paces.of(tier.name), COLD
        if decision is not None:
            ttl = settings.of_tier(tier.name).cache_ttl
            cached = self._caches.at(decision.replica, self._clock(), ttl)
        known = self._known(ready, view, tier, decision, pace, header)
        speeds, lock = speeds_of(settings.of_tier(tier.name), pace), ready.scorer.lock
        if not lock.acquire(timeout=settings.budget_ms / 1000):
            return unread(body, tier.name, "budget")
        try:
            return plan(body, view, tier, cached, settings, speeds, known=known,
                        scorer=ready.scorer)  # fmt: skip
        finally:
            lock.release()

    def sent(self, plan: Plan, replica: str, view: View) -> bool:
        """`plan` is being carried out on `replica`; whether its answer is to be audited."""
        self._caches.planned(replica, view.key, plan, self._clock())
        with self._lock:
            self.tally.planned(plan)
            return _telling(plan) and self._due()

    def _known(
        self, ready: Ready, view: View, tier: Tier, decision: Decision | None, pace: Pace,
        header: str | None,
    ) -> Known:  # fmt: skip
        own = ready.settings[tier.name].of_tier(tier.name)
        template, thinks = self._templates.get(tier.name, (own.template or Template.NONE, False))
        intent = None if decision is None else decision.intent
        with self._lock:
            cap = ready.lengths.cap(tier.name, intent)
        return Known(
            easy=decision is not None and _easy(decision, ready.config),
            intent=intent,
            header=header or view.headers.get(HEADER),
            template=template,
            thinks=thinks,
            cap=cap,
            proven=ready.auditor.proven.get(tier.name, frozenset()),
            scale=pace.scale(Script.of(view)),
        )

    # ---- what answers teach

    def answered(
        self, pruned: Pruned, usage: Usage | None, told: Told | None = None,
        then: Then | None = None,
    ) -> None:  # fmt: skip
        """The whole answer has come.  `told` reads it, if it could be kept; `then` is called once
        with the record: at once, or from another thread after the audit."""
        ready, made = self._ready, pruned.plan
        try:
            with self._lock:
                self.tally.answered(made)
                if usage is not None and ready is not None:
                    self._learn(ready, pruned, usage)
        except Exception:  # the answer has come, and must end
            log.exception("nothing was learned from an answer")
        job = None if told is None else partial(self._audited, pruned, told, then)
        if pruned.audited and job is not None and ready is not None and ready.auditor.submit(job):
            return
        if then is not None:
            then(shown(made))

    def unanswered(self, pruned: Pruned) -> dict[str, Any] | None:
        """The record of a plan whose answer did not come whole."""
        return shown(pruned.plan)

    def _learn(self, ready: Ready, pruned: Pruned, usage: Usage) -> None:
        made = pruned.plan
        if Step.CAPS in made.modes and made.modes[Step.CAPS] is not Mode.OFF:
            sent = next((e.value for e in made.sent if e.step is Step.CAPS), None)
            ready.lengths.answered(made.tier, made.intent, usage.completion, sent,
                                   sent is not None and usage.completion >= sent)  # fmt: skip
        if usage.cached:
            self._tell.add(pruned.replica)
        if made.chain and pruned.replica in self._tell:
            believed = made.tokens_after - made.uncached_after
            self._caches.heard(pruned.replica, made.chain, believed, usage.cached)
            self.tally.regressed(made, usage.cached)

    def _due(self) -> bool:
        """Whether there is time for one more audit."""
        now = self._clock()
        if now > self._room_at:
            passed = min(AT_ONCE, (now - self._room_at) * AUDITS_A_SECOND)
            self._room, self._room_at = min(AT_ONCE, self._room + passed), now
        if self._room < 1:
            return False
        self._room -= 1
        return True

    def _audited(self, pruned: Pruned, told: Told, then: Then | None) -> Audit | None:
        """Audits one answer, in the thread."""
        found = None
        try:
            answer = told()
            if answer is not None:
                found = audit(pruned.plan, answer, "\n".join(pruned.texts))
                with self._lock:
                    self.tally.audited(found)
                if pruned.quiet and answer.silent:
                    self.misfired(pruned.plan.tier)
        finally:
            if then is not None:
                then(shown(pruned.plan, found))
        return found


def _telling(made: Plan) -> bool:
    """Whether an answer would say something of a plan: what it lost, or that thinking is off."""
    observed = any(edit.step in LOSSY for edit in made.observed)
    return observed or bool(made.ranking) or any(e.step is Step.REASONING for e in made.sent)


def shown(made: Plan, found: Audit | None = None) -> dict[str, Any] | None:
    """The record of a plan; None where it has nothing to tell."""
    left = [each for each in made.abstained if each.reason != "template"]  # the tier's affair
    if not (made.edits or made.turns or left or made.failed or found):
        return None
    return record(made, found)


def _easy(decision: Decision, config: Config) -> bool:
    """Whether routing found that the lightest tier is enough, wherever the request went."""
    if Reason.HOUSEKEEPING in decision.reasons:
        return True
    if Reason.INTENT in decision.reasons and decision.intent is not None:
        intent = config.intents.get(decision.intent)
        return intent is not None and intent.tier == config.tiers[0].name
    level, line = decision.difficulty, decision.threshold
    return level is not None and line is not None and level < line


def _of_host(pruning: Pruning, tier: Tier) -> Pruning:
    """`pruning` as `tier` can have it: other hosts than vLLM refuse its thinking fields."""
    if tier.kind == "vllm":
        return pruning
    own = pruning.of_tier(tier.name)
    own = own.model_copy(update={"steps": {**own.steps, Step.REASONING: Mode.OFF}})
    tiers: dict[str, TierPruning] = {**pruning.tiers, tier.name: own}
    return pruning.model_copy(update={"tiers": tiers})


def _ranks(pruning: Pruning) -> bool:
    """Whether a step ranks texts."""
    return any(pruning.steps.mode(step) is not Mode.OFF for step in (Step.RAG, Step.TOOLS))


@lru_cache(2)  # one for the process: a table of 16 MB, and what it has learned of words and texts
def _scorer(ranks: bool) -> Scorer:
    """The scorer, with vectors where a step `ranks` texts, and warm."""
    if not ranks:
        return Scorer()
    from tier_router.encoder import load  # numpy comes with it

    scorer = Scorer(load())
    scorer.warm()
    return scorer
