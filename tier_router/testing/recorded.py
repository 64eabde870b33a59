"""A request as the fake server saw it, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True, eq=False)
class Recorded:
    """One request; the times are the event loop's (`loop.time()`), in seconds."""

    method: str
    path: str
    """As it was sent, query included."""
    headers: list[tuple[str, str]]
    """In order, with lower-case names."""
    raw: bytes = b""
    body: Any = None
    """`raw` decoded; None where it is not JSON."""
    started_at: float = 0.0
    """When the whole request had come."""
    status: int | None = None
    """The status sent; None as long as there is none."""
    aborted: bool = False
    """The client hung up before the answer was complete."""
    aborted_at: float | None = None
    finished: bool = False
    """The answer was sent to its end."""
    finished_at: float | None = None
    events: int = 0
    """`data:` lines sent, `[DONE]` included."""

    def header(self, name: str) -> str | None:
        """The first value of a header."""
        return next((value for key, value in self.headers if key == name.lower()), None)

    @property
    def route(self) -> str:
        """The path without its query."""
        return self.path.partition("?")[0]

    @property
    def wants_stream(self) -> bool:
        """True where the body asks for a stream."""
        return isinstance(self.body, dict) and bool(self.body.get("stream"))
