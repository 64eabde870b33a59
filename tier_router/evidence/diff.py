"""What another configuration would do with the same log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tier_router.config import Config
from tier_router.evidence.collect import Collected
from tier_router.evidence.costs import by_tier, rates_of
from tier_router.evidence.library import polars as pl
from tier_router.evidence.wilson import Share, share

SHOWN = 20
"""Requests of each kind of move that are shown, at most."""


@dataclass(frozen=True, slots=True)
class Move:
    """Requests that go from one tier to another, or are refused (`refused: CODE`), and why: the
    old reasons and the new."""

    source: str
    target: str
    reason: str
    reason_new: str
    requests: int


@dataclass(frozen=True, slots=True)
class Moved:
    """One request that moves."""

    line: int
    id: str | None
    text: str | None
    source: str
    target: str
    reason: str
    reason_new: str
    difficulty: float | None


@dataclass(frozen=True, slots=True)
class Change:
    """A projected figure under both configurations; None where it cannot be told."""

    old: float | None
    new: float | None


@dataclass(frozen=True, slots=True)
class Difference:
    """All that moves between two configurations.  Times are means in seconds, without queues."""

    requests: int
    moved: Share
    moves: Sequence[Move]
    examples: Sequence[Moved]
    gpu_hours: Change
    cost: Change
    ttft: Change
    latency: Change
    judged_again: bool
    """False for a log of decisions: rules and intents that were changed cannot be tried on it."""


def difference_of(found: Collected, old: Config, new: Config) -> Difference:
    """The difference over a log that both configurations have decided, in this order."""
    rows = found.rows.with_columns(
        _where("").alias("source"), _where("_new").alias("target")
    ).with_columns((pl.col("source") != pl.col("target")).alias("moves"))
    moving = rows.filter(pl.col("moves"))
    group = ["source", "target", "reason", "reason_new"]
    whole, moves, examples, figures = pl.collect_all(
        [
            rows.select(pl.len().alias("n"), pl.col("moves").sum()),
            moving.group_by(group)
            .agg(pl.len().alias("requests"))
            .sort("requests", *group, descending=[True, *[False] * 4]),
            moving.select(
                "line", "id", "text", *group, difficulty=pl.coalesce("difficulty_new", "difficulty")
            ).head(SHOWN),
            _projected(rows, old, new),
        ],
        engine="streaming",
    )
    row: dict[str, Any] = figures.row(0, named=True)
    total, count = whole.row(0)
    up = 1 / found.share
    return Difference(
        requests=total,
        moved=share(count, total),
        moves=[Move(**each) for each in moves.to_dicts()],
        examples=[Moved(**each) for each in examples.to_dicts()],
        gpu_hours=_change(row, "gpu_hours", up),
        cost=_change(row, "cost", up),
        ttft=_change(row, "ttft"),
        latency=_change(row, "latency"),
        judged_again=found.source.format.value != "decisions",
    )


def _where(suffix: str) -> pl.Expr:
    refused = pl.format("refused: {}", pl.col(f"refused{suffix}"))
    return pl.coalesce(refused, pl.col(f"tier{suffix}"))


def _projected(rows: pl.LazyFrame, old: Config, new: Config) -> pl.LazyFrame:
    """One row: sums of GPU-hours and cost, means of times, over what neither refuses."""
    both = rows.filter(pl.col("refused").is_null() & pl.col("refused_new").is_null())
    found = []
    for config, suffix in ((old, "old"), (new, "new")):
        column = "tier" if suffix == "old" else "tier_new"
        rates = rates_of(config)
        for what in ("gpu_hours", "cost", "ttft", "latency"):
            value = by_tier(rates, what, column)
            if what in ("ttft", "latency"):
                found.append(value.mean().alias(f"{what}_{suffix}"))
            else:
                whole = pl.when(value.null_count() == 0).then(value.sum())
                found.append(whole.alias(f"{what}_{suffix}"))
    return both.select(found)


def _change(row: dict[str, Any], what: str, factor: float = 1.0) -> Change:
    old, new = row[f"{what}_old"], row[f"{what}_new"]
    return Change(
        None if old is None else old * factor,
        None if new is None else new * factor,
    )
