"""Routers as the doors run them: each with a ledger of its own, and reports to the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from tier_router.classify import Signal, Verdict
from tier_router.config import Config
from tier_router.ledger import Report
from tier_router.request import Kind, Turn, View
from tier_router.router import TierRouter
from tier_router.simulate.arrivals import Arrival

N = TypeVar("N", int, float)


class Told:
    """A classifier that is told: a turn's text is its difficulty."""

    default_threshold = 0.5

    def reference_quantile(self, share: float) -> float:
        """Nothing is known of the distribution: as if it were even."""
        return 1 - share

    def classify(self, turn: Turn) -> Verdict:
        """The verdict that the text spells."""
        return Verdict(float(turn.text))

    def explain(self, turn: Turn) -> list[Signal]:
        """Nothing to explain."""
        return []


def router_of(config: Config, clock: Callable[[], float]) -> TierRouter:
    """One router process, whose classifier reads the difficulty of `view_of`'s turns."""
    return TierRouter(config, lambda _: Told(), clock)


def view_of(arrival: Arrival, number: int) -> View:
    """What routing knows of an arrival; a request without a conversation has a key of its own."""
    key = arrival.conversation
    return View(
        kind=Kind.HUMAN,
        turn=Turn(repr(arrival.difficulty)),
        earlier=tuple(Turn(repr(level)) for level in arrival.earlier),
        tokens=arrival.prompt,
        max_tokens=arrival.max_tokens,
        needs=frozenset(),
        model=None,
        key=number if key is None else key,
        stream=True,
        priority=arrival.priority,
    )


class Peers:
    """A board for many routers: each hears the sum of the others' reports, which is all that
    `Ledger.heard` makes of them, at a cost that does not grow with their number."""

    def __init__(self) -> None:
        self._reports: dict[int, Report] = {}
        self._requests: dict[str, int] = {}
        self._tokens: dict[str, float] = {}
        self._resting: dict[int, dict[str, float]] = {}

    def swap(self, number: int, mine: Report) -> Report:
        """Takes router `number`'s report, gives what the others' say together."""
        before = self._reports.get(number)
        self._reports[number] = mine
        _replace(self._requests, before.requests if before else {}, mine.requests)
        _replace(self._tokens, before.tokens if before else {}, mine.tokens)
        if mine.resting:
            self._resting[number] = mine.resting
        else:
            self._resting.pop(number, None)
        resting: dict[str, float] = {}
        for other, found in self._resting.items():
            if other != number:
                for name, seconds in found.items():
                    resting[name] = max(seconds, resting.get(name, 0.0))
        return Report(
            {name: count - mine.requests.get(name, 0) for name, count in self._requests.items()},
            {name: count - mine.tokens.get(name, 0.0) for name, count in self._tokens.items()},
            resting,
        )


def _replace(total: dict[str, N], old: Mapping[str, N], new: Mapping[str, N]) -> None:
    for name, count in old.items():
        total[name] -= count
    for name, count in new.items():
        total[name] = total.get(name, 0) + count
