"""Pressure: the one scale on which load is spoken of.

0 is idle, 1.0 is full, infinity is down.  Choosing, spilling, metrics and logs all use it.
"""

from __future__ import annotations

import math

from tier_router.config import Limits

FULL = 1.0
DOWN = math.inf


def pressure(requests: float, tokens: float, limits: Limits, weight: float = 1.0) -> float:
    """The worst of requests and tokens in flight over what a replica of `weight` carries."""
    return max(requests / (limits.requests * weight), tokens / (limits.tokens * weight))
