"""How often the library answered, failed, was late or was not asked."""

from __future__ import annotations

import logging
import threading
from collections import Counter

log = logging.getLogger("tier_router.semantic")


class Tally:
    """Counts by word.

    Each thread adds to numbers of its own: exact without a lock, which a fork could copy held.
    """

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, int]] = Counter()
        self._told: set[str] = set()

    def __repr__(self) -> str:
        return f"<Tally {', '.join(f'{count} {what}' for what, count in self.counts().items())}>"

    def add(self, what: str) -> None:
        """Counts one more of `what`."""
        self._counts[what, threading.get_ident()] += 1

    def failed(self, error: Exception) -> None:
        """Counts a failure; each kind of error is logged once, for a dead encoder fails often."""
        self.add("failed")
        kind = type(error).__name__
        if kind not in self._told:
            self._told.add(kind)
            log.warning("semantic-router failed, no intent for now: %s: %s", kind, error)

    def counts(self) -> dict[str, int]:
        """The numbers, sorted by word."""
        total: Counter[str] = Counter()
        for (what, _), count in list(self._counts.items()):
            total[what] += count
        return dict(sorted(total.items()))
