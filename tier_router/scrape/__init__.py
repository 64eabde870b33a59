"""What replicas say of themselves: pages and headers read, and a poller that asks for them.

`pages`, `gauges` and `header` read bytes and know no I/O; `probes` knows what to ask a replica to
learn its abilities, `findings` what follows for a configuration; `watch` and `poller` ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Fetch(Protocol):
    """One HTTP request by the client that a door has anyway."""

    async def __call__(
        self, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> tuple[int, bytes]:
        """Status and content of a GET, or of a POST where there is a `body`; raises OSError where
        no answer comes.  It has no deadline: who calls it may cancel it."""
        ...
