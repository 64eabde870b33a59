"""Decides a request of a log as one configuration would with all replicas idle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tier_router.classify import Verdict
from tier_router.config import Config
from tier_router.decide import EXPECTED_OUTPUT, SLACK, Decision, Judged, Reason, decide
from tier_router.decisionlog import Record
from tier_router.request import Kind, Need, Turn, View
from tier_router.router import TierRouter

KEPT = 20_000
"""Judgements kept by text, so that what is asked again costs nothing: at most 40 MB of text."""

_IDLE: Mapping[str, float] = {}


@dataclass(frozen=True, slots=True)
class Known:
    """A request as it can be decided: `judged` is there where it comes from a record."""

    view: View
    judged: Judged | None = None
    recorded: Record | None = None


class Judge:
    """The decisions of one configuration."""

    def __init__(self, config: Config) -> None:
        self._router = TierRouter(config)
        self.config = self._router.config
        self.thresholds = self._router.thresholds
        self._contexts = [tier.context for tier in self.config.tiers]
        self._kept: dict[tuple[Turn, tuple[Turn, ...]], Judged] = {}

    def view(self, body: Mapping[str, Any]) -> View:
        """What routing may know of a body; raises RequestError."""
        return self._router.view(body)

    def decide(self, known: Known) -> Decision:
        """The decision; raises what `decide` raises."""
        judged = known.judged or self._judged(known.view)
        view = self._pinned(known)
        decision = decide(view, judged, self.config, self.thresholds, _IDLE)
        record = known.recorded
        if record is not None and Reason.RULE in record.reasons and view.header:
            return replace(decision, reasons=(Reason.RULE,))
        return decision

    def likeness(self, record: Record) -> tuple[Any, ...]:
        """Equal for records that get the same decision, but for difficulty and replica."""
        level = record.difficulty
        steps = -1 if level is None else sum(level >= line for line in self.thresholds)
        fits = tuple(
            0 if context is None else _fit(record.tokens, record.max_tokens, context)
            for context in self._contexts
        )
        return (
            record.reasons, record.kind, record.needs, record.asked, record.intent, record.abstain,
            record.tier, steps, fits,
        )  # fmt: skip

    def _judged(self, view: View) -> Judged:
        key = view.turn, view.earlier
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= KEPT:
                self._kept.clear()
            found = self._kept[key] = self._router.judge(view)
        return found

    def _pinned(self, known: Known) -> View:
        """A name that this configuration does not know leaves the choice to it: the log may be of
        another endpoint.  What a rule settled stays: its text is not in the record."""
        view, record = known.view, known.recorded
        if view.model is not None and view.model not in self.config.pins:
            view = replace(view, model=None)
        if view.header is not None and view.header not in self.config.pins:
            view = replace(view, header=None)
        if record is not None and Reason.RULE in record.reasons and record.tier in self.config.pins:
            view = replace(view, header=record.tier)
        return view


def _fit(tokens: int, limit: int | None, context: int) -> int:
    """0 where prompt and answer fit a context, as `decide` takes it; 1 where only our estimate says
    that they do not, 2 beyond that."""
    over = (tokens + min(limit or EXPECTED_OUTPUT, context // 2)) / context
    return 0 if over <= 1 else 1 if over <= SLACK else 2


def known_of_record(record: Record, key: int) -> Known:
    """What a record tells of its request: enough to decide it again, but for its text.

    What deciding it with the conversation before it came to is in the difficulty; rules and new
    intents cannot be tried on it.
    """
    reasons = set(record.reasons)
    media = Reason.MEDIA in reasons
    kind = Kind(record.kind) if record.kind in set(Kind) else Kind.HUMAN
    view = View(
        kind=kind,
        turn=Turn("", media=1) if media else Turn(record.text or "?"),
        earlier=(),
        tokens=record.tokens,
        max_tokens=record.max_tokens,
        needs=frozenset(Need(need) for need in record.needs if need in set(Need)),
        model=record.asked,
        key=key,
        stream=record.stream,
    )
    unsure = record.difficulty is None or Reason.UNSURE in reasons
    held = bool(reasons & {Reason.HELD, Reason.CONTINUES})
    verdict = Verdict(
        difficulty=1.0 if record.difficulty is None else record.difficulty,
        confidence=record.confidence,
        intent=None if held else record.intent,
        abstain=record.abstain or "not judged" if unsure else None,
    )
    return Known(view, Judged(verdict), record)


def output_of(max_tokens: int | None, n: int = 1) -> int:
    """The tokens of an answer that nobody has counted."""
    return min(max_tokens or EXPECTED_OUTPUT, EXPECTED_OUTPUT) * n
