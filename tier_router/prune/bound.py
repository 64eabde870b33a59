"""How large a loss may be, at most, after so many audits."""

from __future__ import annotations

import math


def upper(lost: int, audits: int, confidence: float = 0.95) -> float:
    """The one-sided Clopper-Pearson upper bound of a share: the largest one under which `lost` of
    `audits` or fewer still happens with a chance of 1 - `confidence`.

    0 of 600 gives 0.0050, 0 of 300 gives 0.0099, at 95 %.  1 where nothing was audited.
    """
    if audits <= 0 or lost >= audits:
        return 1.0
    low, high = lost / audits, 1.0
    for _ in range(60):  # halves an interval of 1 below the spacing of floats
        middle = (low + high) / 2
        if _at_most(lost, audits, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def _at_most(lost: int, audits: int, share: float) -> float:
    """The chance of `lost` losses or fewer."""
    if share <= 0:
        return 1.0
    if share >= 1:
        return 0.0
    here, there = math.log(share), math.log1p(-share)
    whole = math.lgamma(audits + 1)
    return math.fsum(
        math.exp(whole - math.lgamma(k + 1) - math.lgamma(audits - k + 1)
                 + k * here + (audits - k) * there)
        for k in range(lost + 1)
    )  # fmt: skip


def enough(ranks: list[int], max_loss: float, confidence: float = 0.95) -> int | None:
    """How many of a ranked list must stay so that what was needed (at these ranks, 1 is the first)
    is lost in at most `max_loss` of requests; None where that cannot be shown.

    Numbers are tried from the longest list down until one fails.  Fixed-sequence testing: since
    the loss only grows on the way, the last that held is as sure as if it had been tried alone.
    """
    lost = -1
    while lost + 1 < len(ranks) and upper(lost + 1, len(ranks), confidence) <= max_loss:
        lost += 1
    return None if lost < 0 else sorted(ranks)[-1 - lost]
