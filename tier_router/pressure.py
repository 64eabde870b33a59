"""Pressure: the one scale on which load is spoken of.

0 is idle, 1.0 is full, infinity is down.  Choosing, spilling, metrics and logs all use it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tier_router.config import Limits

FULL = 1.0
DOWN = math.inf


@dataclass(frozen=True, slots=True)
class Reading:
    """What a replica says of itself; None where it does not say, which is not a zero."""

    requests: float | None = None
    """Requests of all clients that its API server has open (`/load`)."""
    waiting: float | None = None
    """Requests of all clients that its engines have queued."""
    kv: float | None = None
    """Share (0..1) of the KV cache that running requests hold."""


def pressure(
    requests: float,
    tokens: float,
    limits: Limits,
    weight: float = 1.0,
    reading: Reading | None = None,
) -> float:
    """The worst of requests and tokens in flight, of the queue and of KV use, over what a replica
    of `weight` carries."""
    worst = max(requests / (limits.requests * weight), tokens / (limits.tokens * weight))
    if reading is None:
        return worst
    if reading.waiting is not None:
        worst = max(worst, reading.waiting / (limits.waiting * weight))
    return worst if reading.kv is None else max(worst, reading.kv / limits.kv)
