"""From a request to a plan: the steps in order, the way through the cache, the verifier.

Pure: no I/O, and no clock but the one that is passed in for the time budget.  Whatever goes wrong,
the plan says so and the original goes out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from tier_router.config import Tier
from tier_router.config.pruning import LOSSY, Mode, Pruning, Step
from tier_router.prune.check import violated
from tier_router.prune.clearing import Clearing, ways_of
from tier_router.prune.draft import Draft
from tier_router.prune.fitting import fitting, shortened
from tier_router.prune.plan import Edit, Known, Plan, Template, apply, count
from tier_router.prune.recognise import FEWEST, LEAST_CHARS
from tier_router.prune.score import Scorer
from tier_router.prune.speeds import Speeds
from tier_router.prune.steps import caps, dupes, fold, rag, reasoning, schema, tools
from tier_router.prune.units import TOOL, Message, Prompt, read
from tier_router.prune.walk import Links, Walked, Way, head_of, walk
from tier_router.prune.warm import Cached
from tier_router.request import View

SHORTEST = FEWEST * LEAST_CHARS
"""Characters of the shortest text that can hold passages."""
WRITTEN = 256
"""Tokens of an answer whose length nobody knows yet (Azure's 2023 conversation trace: median 129,
mean 211)."""
THOUGHT = 600
"""Thinking tokens that a light request does without (OptimalThinkingBench: hundreds)."""

_WORDS_ONLY = Scorer()
_NO_SPEEDS = Speeds()
_NOTHING_KNOWN = Known()


class _Late(Exception):
    """The time budget is used up."""


def plan(
    body: Mapping[str, Any],
    view: View,
    tier: Tier,
    cached: Cached,
    config: Pruning,
    speeds: Speeds = _NO_SPEEDS,
    *,
    known: Known = _NOTHING_KNOWN,
    scorer: Scorer = _WORDS_ONLY,
    clock: Callable[[], float] = time.perf_counter,
) -> Plan:
    """What to take out of `body` on its way to `tier`, of whose cache `cached` is known.

    Never raises: a plan that failed has a word for it in `failed` and changes nothing.
    """
    if config.mode is Mode.OFF:
        return Plan(tier.name)
    start = clock()
    modes = modes_of(config, tier.name, known)
    heldout = Mode.ON in modes.values() and view.key / 2**64 < config.holdout
    if heldout:
        modes = {s: Mode.OBSERVE if mode is Mode.ON else mode for s, mode in modes.items()}
    work = _Work(body, view, tier, cached, config, speeds, known, scorer, modes)
    failed = ""
    try:
        made = work.plan(lambda: _in_time(clock() - start, config.budget_ms))
    except _Late:
        made, failed = work.as_written(), "budget"
    except Exception as error:  # noqa: BLE001  pruning never fails a request
        made, failed = work.as_written(), f"error: {type(error).__name__}"
    spent = clock() - start
    return replace(made, failed=made.failed or failed, heldout=heldout, seconds=spent,
                   net_seconds=made.net_seconds - spent)  # fmt: skip


def _in_time(spent: float, budget_ms: float) -> None:
    if spent * 1000 > budget_ms:
        raise _Late


def modes_of(config: Pruning, tier: str, known: Known) -> dict[Step, Mode]:
    """The modes on a tier; a lossy step that has not proven itself is only observed."""
    modes = config.modes(tier, known.header)
    allowed = known.proven | config.promote.unproven
    return {
        step: Mode.OBSERVE if mode is Mode.ON and step in LOSSY - allowed else mode
        for step, mode in modes.items()
    }


class _Work:
    """One request on its way to a plan."""

    def __init__(
        self, body: Mapping[str, Any], view: View, tier: Tier, cached: Cached, config: Pruning,
        speeds: Speeds, known: Known, scorer: Scorer, modes: Mapping[Step, Mode],
    ) -> None:  # fmt: skip
        self.body, self.view, self.tier, self.cached = body, view, tier, cached
        self.config, self.speeds, self.known, self.modes = config, speeds, known, modes
        self.prompt = Prompt(())
        self.draft = Draft(body, self.prompt, config, modes, known, scorer)
        self.ranking: tuple[str, ...] = ()
        self.links: Links = {}
        self.whole: Walked | None = None
        self.readable = True

    def plan(self, in_time: Callable[[], None]) -> Plan:
        """The plan.  The way of the prompt as the client wrote it is found first: whatever comes
        after fails, that is then what went out."""
        prompt = read(self.body, self.config.protect.marker)
        if prompt is None:
            self.readable = False
            return self._bare(None)
        in_time()
        hidden = self.cached.hidden(self.view.key)
        if hidden > prompt.frozen:
            prompt = replace(prompt, frozen=hidden, pinned_tools=True)
        self.prompt = self.draft.prompt = prompt
        whole = walk(prompt, [self._plain()], {}, self.cached, self.links, tick=in_time)
        self.whole = whole
        in_time()
        if all(mode is Mode.OFF for mode in self.modes.values()):
            return self.as_written()
        self.draft.in_time = in_time
        cap = self._fields()
        self._run_steps(in_time)
        in_time()
        made = self._checked(self._walked(cap, whole))
        in_time()
        return made

    def as_written(self) -> Plan:
        """The plan that changes nothing, with what is known of the prompt that goes out."""
        base = Plan(self.tier.name, self.modes, intent=self.known.intent)
        if self.whole is not None:
            return replace(base, **_told(self.whole))
        return replace(base, unread=count(self.body) if self.readable else 0)

    def _run_steps(self, in_time: Callable[[], None]) -> None:
        """Runs the steps that have anything to look at, in order."""
        draft, prompt = self.draft, self.prompt
        results = any(text.role == TOOL for text in prompt.texts)
        longest = max((len(text.text) for text in prompt.texts), default=0)
        for step, due, run in (
            (Step.SCHEMA, bool(prompt.tools), schema.run),
            (Step.FOLD, results, fold.run),
            (Step.DUPES, results, dupes.run),
            (Step.RAG, longest >= SHORTEST, rag.run),
        ):
            if due and self.modes[step] is not Mode.OFF:
                in_time()
                run(draft)
        if prompt.tools and self.modes[Step.TOOLS] is not Mode.OFF:
            in_time()
            self.ranking = tools.run(draft)

    def _fields(self) -> int | None:
        if self.modes[Step.REASONING] is not Mode.OFF:
            reasoning.run(self.draft)
        return caps.run(self.draft) if self.modes[Step.CAPS] is not Mode.OFF else None

    def _bare(self, cap: int | None) -> Plan:
        return Plan(self.tier.name, self.modes, tuple(self.draft.edits),
                    abstained=tuple(self.draft.abstained), cap=cap, intent=self.known.intent,
                    net_seconds=self._output_saved())  # fmt: skip

    # ---- the way through the cache

    def _walked(self, cap: int | None, whole: Walked) -> Plan:
        plain, chosen = self._heads()
        walked = whole
        ways = ways_of(self.draft.edits)
        if chosen != plain or ways:
            heads = [plain, chosen] if chosen != plain else [plain]
            walked = walk(self.prompt, heads, ways, self.cached, self.links, whole.links)
        if self.modes[Step.RESULTS] is not Mode.OFF:
            head = self._head(walked)
            walked = Clearing(self.draft, self.cached, self.links, head, whole).run(
                walked, self.tier.context, self._written()
            )
        if walked.uncached > whole.uncached:
            walked = whole  # each message went the cheaper way, and yet the other way was longer
        if self.draft.edits:
            self._settle(walked, plain)
        need = self.view.max_tokens or WRITTEN
        gone, fits = fitting(self.draft, walked, self.tier.context, need)
        if gone:
            walked = shortened(self.draft, walked, gone, self._head(walked), self.cached)
        net = self.speeds.saved(whole.uncached - walked.uncached, whole.tokens - walked.tokens,
                                self._written())  # fmt: skip
        return replace(
            self._bare(cap),
            turns=gone,
            fits=fits,
            **_told(whole, walked),
            net_seconds=net + self._output_saved(),
            ranking=self.ranking,
        )

    def _plain(self) -> tuple[int, int]:
        """What stands before the messages as the client wrote it."""
        own = self.body.get("chat_template_kwargs")
        return head_of(self.prompt, self.prompt.tools, msgspec.json.encode(own) if own else b"")

    def _heads(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """What stands before the messages as the client wrote it, and as the steps left it."""
        own = self.body.get("chat_template_kwargs")
        base = msgspec.json.encode(own) if own else b""
        switched = self.known.template is Template.HEAD and any(
            edit.step is Step.REASONING and edit.on for edit in self.draft.edits
        )
        plain = head_of(self.prompt, self.prompt.tools, base)
        chosen = head_of(
            self.prompt, self.draft.tools or self.prompt.tools, (base, 1) if switched else base
        )
        return plain, chosen

    def _head(self, walked: Walked) -> tuple[int, int]:
        plain, chosen = self._heads()
        return chosen if walked.chain[0] == chosen[0] else plain

    def _settle(self, walked: Walked, plain: tuple[int, int]) -> None:
        """Keeps the edits that the way through the cache took."""
        plainly = walked.chain[0] == plain[0]
        kept: list[Edit] = []
        for edit in self.draft.edits:
            if not edit.on:
                kept.append(edit)
            elif edit.message >= 0:
                way = walked.picked.get(edit.message)
                if way is not None and self._part_of(edit, way):
                    kept.append(edit)
                else:
                    why = "shared" if edit.message in walked.shared else "warm"
                    self.draft.abstain(edit.step, why, edit.message)
            elif edit.step in (Step.SCHEMA, Step.TOOLS) and plainly:
                self.draft.abstain(edit.step, "warm")
            elif edit.step is Step.REASONING and plainly and self.known.template is Template.HEAD:
                self.draft.abstain(edit.step, "warm")
            else:
                kept.append(edit)
        self.draft.edits = kept

    def _part_of(self, edit: Edit, way: Way) -> bool:
        """Whether a way holds an edit's text, or one that a later edit made of it."""
        if edit.path not in way.texts:
            return False
        final = way.texts[edit.path]
        last = [e for e in self.draft.edits if e.on and e.path == edit.path]
        at = next((n for n, e in enumerate(last) if e.value == final), -1)
        if last[at].step is Step.RESULTS or last[at].step is Step.DUPES:
            return edit is last[at]
        return last.index(edit) <= at

    def _written(self) -> int:
        return self.view.max_tokens or self.draft.known.cap or WRITTEN

    def _output_saved(self) -> float:
        off = any(e.step is Step.REASONING and e.on and e.value is False for e in self.draft.edits)
        return self.speeds.saved(0, 0, 0, THOUGHT) if off and self.known.thinks else 0.0

    # ---- the verifier

    def _checked(self, made: Plan) -> Plan:
        if not made.changes:
            return made
        sent = apply(made, self.body)
        broken = violated(made, self.prompt, self.body, self._again(sent, made), sent)
        if not broken:
            return made
        failed = f"invariant: {broken}"
        return replace(self.as_written(), failed=failed, regressed=broken == "I7")

    def _again(self, sent: Mapping[str, Any], made: Plan) -> Prompt | None:
        """The units of what is sent; messages that did not change are not read again."""
        same: dict[int, Message] = {}
        if not made.turns:
            pairs = zip(sent["messages"], self.body["messages"], self.prompt.messages, strict=True)
            same = {at: unit for at, (new, old, unit) in enumerate(pairs) if new is old}
        return read(sent, self.config.protect.marker, same)


def _told(whole: Walked, sent: Walked | None = None) -> dict[str, Any]:
    """What a plan says of the prompt as it was written, and as it is `sent`."""
    sent = whole if sent is None else sent
    return {
        "asked": tuple(whole.chain),
        "chain": tuple(sent.chain),
        "forks": tuple(sent.forks),
        "tokens_before": whole.tokens,
        "tokens_after": sent.tokens,
        "uncached_before": whole.uncached,
        "uncached_after": sent.uncached,
    }
