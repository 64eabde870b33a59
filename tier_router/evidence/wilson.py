"""Wilson's interval of a share (Wilson, 1927): it holds for small counts, and near 0 and 1."""

from __future__ import annotations

import math
from dataclasses import dataclass

Z = 1.959964
"""The normal quantile of a 95 % interval."""


@dataclass(frozen=True, slots=True)
class Share:
    """`count` of `total`, and the 95 % interval of the share in traffic like it."""

    count: int
    total: int
    value: float
    low: float
    high: float


def share(count: int, total: int) -> Share:
    """The share of `count` in `total`; nothing is known of 0 of 0."""
    if not total:
        return Share(0, 0, math.nan, 0.0, 1.0)
    value, z2 = count / total, Z * Z
    middle = (value + z2 / (2 * total)) / (1 + z2 / total)
    spread = Z * math.sqrt(value * (1 - value) / total + z2 / (4 * total * total))
    spread /= 1 + z2 / total
    low = 0.0 if not count else max(0.0, middle - spread)
    high = 1.0 if count == total else min(1.0, middle + spread)
    return Share(count, total, value, low, high)
