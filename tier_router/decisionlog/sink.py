"""What a log is written to: a file, a stream, a collector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tier_router.decisionlog.record import Record


class Lost(Exception):
    """A batch that was not written; `again` says whether a later try may succeed."""

    def __init__(self, message: str, *, again: bool = False) -> None:
        super().__init__(message)
        self.again = again


class Sink(Protocol):
    """Takes batches of records; called from one thread, which may wait for it."""

    name: str
    """What metrics and log lines call it."""
    linger: float
    """Seconds for which a batch may wait for more records."""

    def write(self, records: Sequence[Record]) -> None:
        """Writes them in order; raises Lost, after which a part may have been written."""
        ...

    def close(self) -> None:
        """Lets go of what it holds; the next `write` opens it again."""
        ...
