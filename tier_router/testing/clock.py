"""A clock that a test moves by hand."""

from __future__ import annotations


class ManualClock:
    """Seconds since `start`, moved only by `advance`; pass it wherever `time.monotonic` goes."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def __call__(self) -> float:
        """The time now, in seconds."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move on by `seconds`; time does not run backwards."""
        if seconds < 0:
            raise ValueError(f"time does not run backwards: {seconds}")
        self._now += seconds

    def __repr__(self) -> str:
        return f"<ManualClock {self._now:g}s>"
