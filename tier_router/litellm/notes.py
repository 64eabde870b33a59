"""What is written down of requests that have ended, and what their answers teach pruning."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from functools import partial
from threading import Lock
from typing import Any

from tier_router.decisionlog import Logbook
from tier_router.ledger import Lease, Outcome
from tier_router.litellm.visits import Visit
from tier_router.pace import Usage
from tier_router.prune.audit import Answer
from tier_router.router import TierRouter

Note = Callable[[Mapping[str, Any] | None], None]
"""Writes a request down, with its pruning record."""


class Notes:
    """Writes to a log book, under the lock of the brain that it belongs to."""

    def __init__(
        self, router: TierRouter, book: Logbook, clock: Callable[[], float], lock: Lock
    ) -> None:
        self._router, self._book, self._clock, self._lock = router, book, clock, lock

    def of(
        self, visit: Visit, outcome: Outcome, lease: Lease | None, usage: Usage | None = None
    ) -> Note:
        """What writes a request that has ended down, where the configuration has a `log`; of one
        that is down already, what does nothing.  To be asked, and called, under the lock."""
        if visit.noted or visit.read is None or visit.decision is None:
            return lambda _: None
        visit.noted = True
        began = self._clock() if visit.began is None else visit.began
        own = visit.decision.replica if outcome is Outcome.DONE else ""
        note = partial(
            self._book.note, self._router.config.log, visit.decision, visit.read[0],
            id=uuid.uuid4().hex, outcome=outcome.value, usage=usage,
            ttft=None if lease is None else lease.ttft, latency=self._clock() - began,
            failed=tuple(sorted(visit.tried - {own})), attempts=len(visit.tried),
        )  # fmt: skip
        return lambda pruning: note(pruning=pruning)

    def answered(
        self, visit: Visit, usage: Usage | None, told: Callable[[], Answer | None] | None,
        note: Note,
    ) -> None:  # fmt: skip
        """Learns from a whole answer, and writes its request down; without the lock, which an
        audit's own thread takes for the latter."""

        def noted(pruning: Mapping[str, Any] | None) -> None:
            with self._lock:
                note(pruning)

        if visit.pruned is None:
            noted(None)
        else:
            self._router.pruner.answered(visit.pruned, usage, told, noted)
