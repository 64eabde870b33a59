"""What a report says, as plain data: counted over a log's table of requests as it streams by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tier_router.config import Config
from tier_router.evidence.collect import Collected
from tier_router.evidence.costs import BATCH, Rates, by_tier, rates_of
from tier_router.evidence.library import polars as pl
from tier_router.evidence.pruned import told
from tier_router.evidence.wilson import Share, share
from tier_router.router import TierRouter

BINS = 40
"""Bars of the picture of difficulties."""

BOUNDARY = 12
"""Requests nearest to the line that are shown."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Percentiles of a time in seconds; None where there are no values."""

    p50: float | None
    p95: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class Side:
    """What requests come to at a tier, or over all tiers; times are of a replica without a queue.

    `cost` is in the currency of the configuration, None where a price is missing.
    """

    tier: str
    requests: Share
    prompt_tokens: int
    output_tokens: int
    gpu_hours: float
    cost: float | None
    ttft: Spread
    latency: Spread


@dataclass(frozen=True, slots=True)
class Near:
    """A request near the line: a little more or less, and it would go elsewhere."""

    line: int
    id: str | None
    text: str | None
    intent: str | None
    tier: str
    difficulty: float


@dataclass(frozen=True, slots=True)
class Report:
    """Everything a report shows.  Shares have 95 % intervals."""

    log: Mapping[str, Any]
    tiers: Sequence[str]
    thresholds: Sequence[float]
    largest: Share
    intents: Mapping[str, Share]
    reasons: Mapping[str, int]
    refused: Mapping[str, int]
    routed: Side
    by_tier: Sequence[Side]
    all_largest: Side
    measured: Mapping[str, Mapping[str, Spread]]
    """`ttft` and `latency` as the log has them, by the tier that the request should go to."""
    difficulties: Sequence[int]
    """Requests by difficulty, in equal steps from 0 to 1."""
    boundary: Sequence[Near]
    basis: Sequence[str]
    """How the figures came about, in words."""
    queues: Mapping[str, Any] | None = None
    pruning: Mapping[str, Any] | None = None
    """Prompt tokens that pruning would take out of some of the bodies, by step."""


def report_of(found: Collected, config: Config) -> Report:
    """The report on a log that was decided by `config`."""
    rates = rates_of(config)
    ladder = [tier.name for tier in config.tiers[: config.rungs]]
    top = len(ladder) - 1
    rows = found.rows.filter(pl.col("refused").is_null())
    named = pl.col("intent").fill_null("")
    difficulty = pl.col("difficulty")
    queries = {
        "intents": rows.group_by(named.alias("intent")).agg(
            pl.len().alias("n"), (pl.col("place") == top).sum().alias("top")
        ),
        "reasons": rows.group_by("reason").agg(pl.len().alias("n")),
        "refused": found.rows.filter(pl.col("refused").is_not_null())
        .group_by("refused")
        .agg(pl.len().alias("n")),
        "tiers": _timed(rows, rates, "tier").group_by("tier").agg(_sums()),
        "routed": _timed(rows, rates, "tier").select(_sums()),
        "largest": _timed(rows.with_columns(pl.lit(ladder[top]).alias("tier")), rates, "tier")
        .select(_sums()),
        "bins": rows.filter(difficulty.is_not_null())
        .group_by((difficulty * BINS).floor().clip(0, BINS - 1).cast(pl.Int32).alias("bin"))
        .agg(pl.len().alias("n")),
        "measured": rows.group_by("tier").agg(
            *(_quantile(name, q) for name in ("ttft", "latency") for q in (50, 95, 99))
        ),
        "boundary": rows.filter(pl.col("margin").is_not_null())
        .with_columns(pl.col("margin").abs().alias("off"))
        .sort("off", "line")
        .head(BOUNDARY * 200)  # of which many may be the same prompt
        .unique("turn", keep="first", maintain_order=True)
        .head(BOUNDARY)
        .select("line", "id", "text", "intent", "tier", "difficulty"),
        "counted": rows.select(pl.col("counted").mean()),
    }  # fmt: skip
    tables = dict(zip(queries, pl.collect_all(list(queries.values()), engine="streaming"),
                      strict=True))  # fmt: skip
    total = int(tables["routed"]["n"][0])
    intents = {row["intent"]: share(row["top"], row["n"]) for row in _rows(tables["intents"])}
    largest = share(sum(each.count for each in intents.values()), total)
    sides = {row["tier"]: row for row in _rows(tables["tiers"])}
    up = 1 / found.share
    bins = {row["bin"]: row["n"] for row in _rows(tables["bins"])}
    return Report(
        log=_about(found),
        tiers=ladder,
        thresholds=TierRouter(config).thresholds,
        largest=largest,
        intents=dict(sorted(intents.items(), key=lambda item: (not item[0], -item[1].total))),
        reasons=_counts(tables["reasons"], "reason"),
        refused=_counts(tables["refused"], "refused"),
        routed=_side("all", tables["routed"].row(0, named=True), total, up),
        by_tier=[_side(name, sides[name], total, up) for name in config.ladder if name in sides],
        all_largest=_side(ladder[top], tables["largest"].row(0, named=True), total, up),
        measured=_measured(_rows(tables["measured"])),
        difficulties=[bins.get(place, 0) for place in range(BINS)],
        boundary=[Near(**row) for row in _rows(tables["boundary"])],
        pruning=told(found.pruned),
        basis=_basis(found, rates, tables["counted"].item()),
    )


def _about(found: Collected) -> dict[str, Any]:
    return {
        "name": found.source.name,
        "format": found.source.format.value,
        "lines": found.lines,
        "judged": found.judged,
        "unreadable": found.failed,
        "other_lines": found.others,
        "share_judged": found.share,
        "problems": [{"line": line, "message": said} for line, said in found.problems],
    }


def _basis(found: Collected, rates: Mapping[str, Rates], counted: float | None) -> list[str]:
    said = [
        "where a request goes is decided by the configuration with all replicas idle",
        "times, GPU-hours and cost are analytic: prefill and decode speeds of each tier, "
        f"{BATCH} requests in a batch at most, no queues (`tier-router simulate` has queues)",
    ]
    if found.share < 1:
        said.append(
            f"{found.share:.1%} of the lines were drawn at random and judged; sums are scaled up"
        )
    if counted is not None and counted < 1:
        said.append(
            f"{1 - counted:.1%} of the requests have no counted answer: at most 256 tokens assumed"
        )
    if any(each.gpu_hour is None and each.input is None for each in rates.values()):
        said.append("a tier has no `cost`, so no sum of cost is given")
    return said


def _timed(rows: pl.LazyFrame, rates: Mapping[str, Rates], column: str) -> pl.LazyFrame:
    return rows.with_columns(
        by_tier(rates, what, column).alias(f"est_{what}")
        for what in ("ttft", "latency", "gpu_hours", "cost")
    )


def _sums() -> list[pl.Expr]:
    return [
        pl.len().alias("n"),
        pl.col("prompt").sum(),
        pl.col("output").sum(),
        pl.col("est_gpu_hours").sum(),
        pl.col("est_cost").sum(),
        pl.col("est_cost").null_count().alias("unpriced"),
        *(_quantile(f"est_{name}", q) for name in ("ttft", "latency") for q in (50, 95, 99)),
    ]


def _quantile(column: str, percent: int) -> pl.Expr:
    return pl.col(column).quantile(percent / 100, "linear").alias(f"{column}_{percent}")


def _side(name: str, row: Mapping[str, Any], total: int, up: float) -> Side:
    return Side(
        tier=name,
        requests=share(row["n"], total),
        prompt_tokens=round(row["prompt"] * up),
        output_tokens=round(row["output"] * up),
        gpu_hours=row["est_gpu_hours"] * up,
        cost=None if row["unpriced"] or not row["n"] else row["est_cost"] * up,
        ttft=_spread(row, "est_ttft"),
        latency=_spread(row, "est_latency"),
    )


def _spread(row: Mapping[str, Any], name: str) -> Spread:
    return Spread(row[f"{name}_50"], row[f"{name}_95"], row[f"{name}_99"])


def _measured(rows: list[dict[str, Any]]) -> dict[str, dict[str, Spread]]:
    return {
        row["tier"]: {name: _spread(row, name) for name in ("ttft", "latency")}
        for row in rows
        if row["ttft_50"] is not None or row["latency_50"] is not None
    }


def _rows(table: pl.DataFrame) -> list[dict[str, Any]]:
    return table.to_dicts()


def _counts(table: pl.DataFrame, name: str) -> dict[str, int]:
    return {row[name]: row["n"] for row in _rows(table.sort("n", name, descending=[True, False]))}
