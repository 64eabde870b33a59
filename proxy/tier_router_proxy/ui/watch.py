"""What the page shows of the last minutes: a bounded memory, a few dictionary steps a request.

No text of a request is kept, whatever the log has: every API key opens the page.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tier_router.decide import Decision
from tier_router.explain import sentence
from tier_router.request import View

SECONDS = 600
"""Seconds of which the requests are kept, by tier."""

LAST = 100
"""Decisions that are kept whole."""

TIMES = 512
"""Answers of one class whose times are kept: enough for a 95th percentile within two points."""

WINDOW = 300.0
"""Seconds after which an answer's times count no more."""

CLASSES = 256
"""Classes that are kept; the one that came first goes where reloads bring new tiers."""


class Watch:
    """Remembers how requests ended; its two methods that are told things are the observers of a
    `Logbook` and of `Metrics`."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._number = 0
        self._seconds: deque[tuple[int, dict[str, int]]] = deque(maxlen=SECONDS)
        self._last: deque[tuple[int, float, Decision | None, Mapping[str, Any]]]
        self._last = deque(maxlen=LAST)
        self._classes: dict[tuple[str, str], deque[tuple[float, float | None, float | None]]] = {}
        self._took: deque[float] = deque(maxlen=TIMES)

    def __repr__(self) -> str:
        return f"<Watch {self._number} requests, {len(self._classes)} classes>"

    # ---- told

    def decided(self, seconds: float) -> None:
        """One request was read, judged and decided."""
        self._took.append(seconds)

    def ended(self, decision: Decision | None, view: View, fate: Mapping[str, Any]) -> None:
        """One request ended; `decision` is the last one, None where there was none."""
        now = self._clock()
        self._number += 1
        self._last.append((self._number, now, decision, fate))
        tier = "" if decision is None else decision.tier
        second = int(now)
        if not self._seconds or self._seconds[-1][0] < second:
            self._seconds.append((second, {}))
        counts = self._seconds[-1][1]
        counts[tier] = counts.get(tier, 0) + 1
        if decision is not None:
            times = self._class(tier, decision.reasons[0].value)
            times.append((now, fate.get("ttft"), fate.get("latency")))

    def _class(self, tier: str, reason: str) -> deque[tuple[float, float | None, float | None]]:
        found = self._classes.get((tier, reason))
        if found is None:
            if len(self._classes) >= CLASSES:
                del self._classes[next(iter(self._classes))]
            found = self._classes[tier, reason] = deque(maxlen=TIMES)
        return found

    # ---- asked

    def since(self, second: int) -> dict[str, Any]:
        """All that ended in `second` (Unix time) and later, and how long things take now.

        A second is told again until it is over; decisions have numbers by which to know them.
        """
        now = self._clock()
        return {
            "now": round(now, 3),
            "seconds": [[at, counts] for at, counts in self._seconds if at >= second],
            "decisions": [self._shown(*kept) for kept in self._last if kept[1] >= second],
            "classes": self._times(now - WINDOW),
            "overhead": percentiles(self._took),
        }

    def _times(self, start: float) -> list[dict[str, Any]]:
        """Each class with what its answers since `start` took."""
        classes = []
        for (tier, reason), kept in self._classes.items():
            recent = [times for times in kept if times[0] >= start]
            if recent:
                ttft = percentiles(first for _, first, _ in recent if first is not None)
                latency = percentiles(whole for _, _, whole in recent if whole is not None)
                told = {"tier": tier, "class": reason, "answers": len(recent)}
                classes.append(told | {"ttft": ttft, "latency": latency})
        return classes

    def _shown(
        self,
        number: int,
        at: float,
        decision: Decision | None,
        fate: Mapping[str, Any],
    ) -> dict[str, Any]:
        """One request, in words and numbers."""
        told = {
            "number": number,
            "at": round(at - (fate.get("latency") or 0.0), 3),
            "id": fate.get("id"),
            "outcome": fate.get("outcome"),
            "status": fate.get("status"),
            "ttft": fate.get("ttft"),
            "latency": fate.get("latency"),
            "failed": fate.get("failed") or (),
        }
        if decision is not None:
            told |= {
                "tier": decision.tier,
                "replica": decision.replica,
                "why": sentence(decision).removeprefix(f"{decision.tier}: "),
                "difficulty": decision.difficulty,
                "threshold": decision.threshold,
                "intent": decision.intent,
            }
        return told


def percentiles(values: Iterable[float]) -> dict[str, float] | None:
    """{p50, p95} by nearest rank, in seconds; None where there is nothing."""
    ordered = sorted(values)
    if not ordered:
        return None
    last = len(ordered)
    return {
        name: round(ordered[math.ceil(share * last) - 1], 6)
        for name, share in (("p50", 0.5), ("p95", 0.95))
    }
