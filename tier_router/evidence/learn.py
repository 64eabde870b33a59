"""How fast replicas are, learned from the answers of a log.

A step of an engine lasts `step + per_seq * (running - 1) + prompt tokens of the step / prefill`
(`tier_router.config.speed`), so for an answer of `n` tokens that came while `r` requests ran on
its replica, and `p` prompt tokens of others were prefilled:

    last token - first token = (n - 1) * step + (n - 1) * (r - 1) * per_seq + p / prefill

and for one that came to an idle replica:

    first token - arrival = step + fresh prompt tokens / prefill

Both are linear in step, per_seq and 1 / prefill: least squares with none of them below 0 (Lawson
and Hanson 1974; with three unknowns every choice of those that are 0 is tried).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from tier_router.config import Config, Speed, Tier
from tier_router.evidence.library import polars as pl
from tier_router.simulate.machine import assumed

LEAST = 50
"""Answers of a tier below which nothing is learned."""

MOST = 5_000
"""Answers of a tier that are looked at: the newest."""

SHORTEST = 8
"""Tokens of an answer from which its pace counts: of a few tokens the times are mostly overhead."""

FULL_SHARE = 0.1
"""Share of arrivals that must have waited at the same largest number of running requests for that
to be taken for the replica's slots."""

QUEUED = 4.0
"""So many times what its prefill takes is a wait that was spent in a queue."""

Floats = NDArray[np.float64]


def taught(config: Config, rows: pl.LazyFrame) -> Config:
    """`config` with the speed of each tier that has none, where the answers in `rows` tell it."""
    tiers = []
    for tier in config.tiers:
        found = speed_of(tier, rows) if assumed(tier) else None
        if found is not None:
            given = tier.speed.model_dump(exclude_unset=True, exclude_none=True)
            tier = tier.model_copy(update={"speed": found.model_copy(update=given)})
        tiers.append(tier)
    return config.model_copy(update={"tiers": tuple(tiers)})


def speed_of(tier: Tier, rows: pl.LazyFrame) -> Speed | None:
    """The speed that a tier's answers in `rows` tell; None where there are too few of them."""
    table = (
        rows.filter(pl.col("went") == tier.name)
        .filter(pl.col("counted") & pl.col("ttft").is_not_null() & pl.col("latency").is_not_null())
        .filter(pl.col("at").is_not_null() & (pl.col("output") > 0))
        .select(
            "replica",
            pl.col("at").alias("came"),
            (pl.col("at") + pl.col("ttft")).alias("first"),
            (pl.col("at") + pl.col("latency")).alias("last"),
            (pl.col("prompt") - pl.col("cached")).cast(pl.Float64).alias("fresh"),
            pl.col("output").cast(pl.Float64),
        )
        .tail(MOST)
        .collect(engine="streaming")
    )
    if table.height < LEAST:
        return None
    stays = [_Stays(part) for part in table.partition_by("replica")]
    left, right = (
        np.concatenate(each) for each in zip(*(s.equations() for s in stays), strict=True)
    )
    step, per_seq, a_token = _least_squares(left, right)
    if step <= 0 or a_token <= 0:
        return None  # all answers alike: they do not tell the one from the other
    full = [most for each in stays if (most := each.slots(step, a_token)) is not None]
    return Speed(
        prefill=1 / a_token,
        step=step,
        per_seq=per_seq,
        slots=max(full, default=max(1, round(tier.limits.requests))),
    )


class _Stays:
    """The answers of one replica, by the time of their first token; times in seconds."""

    def __init__(self, table: pl.DataFrame) -> None:
        table = table.sort("first")
        self.came, self.first, self.last, self.fresh, self.output = (
            table[name].to_numpy() for name in ("came", "first", "last", "fresh", "output")
        )
        self._last_sorted = np.sort(self.last)

    def equations(self) -> tuple[Floats, Floats]:
        """(factors of step, per_seq and 1 / prefill; seconds), each divided by what is the usual
        spread of its kind, so that long answers do not drown the others."""
        steps, took = self.output - 1, self.last - self.first
        enough = (steps >= SHORTEST) & (took > 0)
        others = self._busy() / np.maximum(took, 1e-9) - 1
        decode = np.column_stack([steps, steps * np.maximum(others, 0.0), self._prefilled()])
        alone = self._alone() & (self.first > self.came)
        prefill = np.column_stack([np.ones(alone.sum()), np.zeros(alone.sum()), self.fresh[alone]])
        waits = (self.first - self.came)[alone]
        weights = 1 / np.concatenate([took[enough], np.maximum(waits, 1e-3)])
        left = np.concatenate([decode[enough], prefill]) * weights[:, None]
        return left, np.concatenate([took[enough], waits]) * weights

    def _busy(self) -> Floats:
        """Seconds that requests decoded between each answer's first and last token, all summed."""
        return self._decoded_until(self.last) - self._decoded_until(self.first)

    def _decoded_until(self, at: Floats) -> Floats:
        """Seconds that all requests together had decoded by each moment."""
        begun, ended = np.searchsorted(self.first, at), np.searchsorted(self._last_sorted, at)
        first, last = _sums(self.first), _sums(self._last_sorted)
        whole = last[ended] - first[begun]
        return whole + at * (begun - ended)

    def _prefilled(self) -> Floats:
        """Prompt tokens of others whose first token came while each answer was written."""
        fresh = _sums(self.fresh)
        until = fresh[np.searchsorted(self.first, self.last)]
        return np.maximum(until - fresh[np.searchsorted(self.first, self.first, side="right")], 0.0)

    def _running(self, at: Floats) -> NDArray[np.int64]:
        """Requests that decoded at each moment."""
        return np.searchsorted(self.first, at) - np.searchsorted(self._last_sorted, at)

    def _alone(self) -> NDArray[np.bool_]:
        """Which ones came when nothing else was open, and were alone until their first token."""
        came = np.sort(self.came)
        before = np.searchsorted(came, self.came)
        behind = np.searchsorted(came, self.first) - np.searchsorted(came, self.came, "right")
        idle = before == np.searchsorted(self._last_sorted, self.came)
        alone: NDArray[np.bool_] = idle & (behind == 0)
        return alone

    def slots(self, step: float, a_token: float) -> int | None:
        """How many requests run at once, where some had to wait for that; else None."""
        running = self._running(self.first) + 1
        most = int(running.max(initial=1))
        waited = self.first - self.came > QUEUED * (step + self.fresh * a_token)
        return most if (waited & (running >= most)).mean() >= FULL_SHARE else None


def _sums(values: Floats) -> Floats:
    return np.concatenate([[0.0], np.cumsum(values)])


def _least_squares(left: Floats, right: Floats) -> Sequence[float]:
    """The solution with no part below 0 that misses by least."""
    best, answer = np.inf, np.zeros(left.shape[1])
    for size in range(1, left.shape[1] + 1):
        for used in combinations(range(left.shape[1]), size):
            found = np.linalg.lstsq(left[:, used], right, rcond=None)[0]
            if (found < 0).any():
                continue
            missed = float(((left[:, used] @ found - right) ** 2).sum())
            if missed < best:
                best, answer = missed, np.zeros(left.shape[1])
                answer[list(used)] = found
    return [float(each) for each in answer]
