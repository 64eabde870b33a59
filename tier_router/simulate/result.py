"""What came of a simulation: one record for each request, and figures over them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from tier_router.decide import Reason


class Ended(StrEnum):
    """How a request ended."""

    DONE = "done"
    """Answered in full."""
    CUT = "cut"
    """Its replica died after the first token: the client has half an answer."""
    REFUSED = "refused"
    """No replica took it within the allowed attempts."""
    SHED = "shed"
    """The router refused it for load."""


@dataclass(slots=True)
class Record:
    """One request's fate; times are in seconds, `cached` and the lengths in tokens.

    `tier` and `replica` are where it was sent last; empty where there was none.
    """

    kind: str
    at: float
    prompt: int
    output: int
    conversation: int | None
    router: int
    tier: str = ""
    replica: str = ""
    reasons: tuple[Reason, ...] = ()
    attempts: int = 0
    ttft: float | None = None
    latency: float | None = None
    cached: int = 0
    ended: Ended | None = None


class Occupancy:
    """For how long how many requests were open on a replica."""

    def __init__(self) -> None:
        self.open = 0
        self.seconds: dict[int, float] = {}
        self._since = 0.0

    def change(self, by: int, now: float) -> None:
        """One more or one less."""
        self.settle(now)
        self.open += by

    def settle(self, now: float) -> None:
        """Books the time until `now`."""
        self.seconds[self.open] = self.seconds.get(self.open, 0.0) + now - self._since
        self._since = now


@dataclass(slots=True)
class Result:
    """The records in the order the requests came, and what the replicas counted."""

    records: list[Record]
    occupancy: Mapping[str, Occupancy]
    preempted: int = 0
    seconds: float = 0.0
    """When the last request ended."""
    report_bytes: list[int] = field(default_factory=list)
    """Lengths of some of the reports that routers exchanged, as JSON."""

    def of(self, kind: str | None = None) -> Iterator[Record]:
        """The records of a kind, or all."""
        return (record for record in self.records if kind is None or record.kind == kind)

    def values(self, what: str, kind: str | None = None) -> list[float]:
        """`ttft` or `latency` of the requests that got that far."""
        found = (getattr(record, what) for record in self.of(kind))
        return [value for value in found if value is not None]

    def percentile(self, what: str, share: float, kind: str | None = None) -> float:
        """The `share`-th percentile of `ttft` or `latency`; NaN where nothing got that far."""
        values = self.values(what, kind)
        return float(np.percentile(values, share)) if values else float("nan")

    def mean(self, what: str, kind: str | None = None) -> float:
        """The mean of `ttft` or `latency`; NaN where nothing got that far."""
        values = self.values(what, kind)
        return float(np.mean(values)) if values else float("nan")

    def share(self, tier: str, kind: str | None = None) -> float:
        """The share of requests that `tier` answered."""
        return _share(record.tier == tier for record in self.of(kind))

    def because(self, reason: Reason, kind: str | None = None) -> float:
        """The share of requests whose last decision gave `reason`."""
        return _share(reason in record.reasons for record in self.of(kind))

    def ended(self, how: Ended) -> int:
        """How many requests ended so."""
        return sum(record.ended is how for record in self.records)

    @property
    def cached_share(self) -> float:
        """The share of all prompt tokens that were found in a prefix cache."""
        prompt = sum(record.prompt for record in self.records)
        return sum(record.cached for record in self.records) / max(prompt, 1)

    @property
    def stickiness(self) -> float:
        """Of the requests whose conversation was at the same tier before, the share that went to
        the same replica as the last time; NaN where there are none."""
        last: dict[tuple[int, str], str] = {}
        same = []
        for record in self.records:
            if record.conversation is None or not record.tier:
                continue
            key = (record.conversation, record.tier)
            if key in last:
                same.append(last[key] == record.replica)
            last[key] = record.replica
        return _share(same)

    def open(self, share: float, replicas: Iterable[str] | None = None) -> int:
        """How many requests were open on a replica for at most `share` percent of the time, over
        all of `replicas`; 100 is the largest number."""
        total: dict[int, float] = {}
        for name in self.occupancy if replicas is None else replicas:
            for count, seconds in self.occupancy[name].seconds.items():
                if seconds > 0:
                    total[count] = total.get(count, 0.0) + seconds
        left = sum(total.values()) * share / 100
        for count in sorted(total):
            left -= total[count]
            if left <= 1e-9 and share < 100:
                return count
        return max(total, default=0)


def _share(found: Iterable[bool]) -> float:
    listed = list(found)
    return sum(listed) / len(listed) if listed else float("nan")
