"""What requests cost on a tier's machines, without queues: from prefill and decode speeds.

seconds to the first token   fresh prompt tokens / prefill + step
inter-token latency          step + per_seq * (BATCH - 1)
GPU seconds                  (fresh prompt tokens / prefill + output * itl / BATCH) * GPUs
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tier_router.config import Config, Tier
from tier_router.evidence.library import polars as pl
from tier_router.simulate.machine import HEAVY, Machine, fleet_of

BATCH = 16
"""Requests that a busy replica answers together: an assumption, and a modest one (vLLM's default
lets 256 and more in).  A larger one makes the GPU-hours of every tier fewer."""


HEAVY_GPUS = 4.0
"""GPUs of the machine that `tier_router.simulate` takes a heavy replica for."""


@dataclass(frozen=True, slots=True)
class Rates:
    """A tier's speeds and prices.  `prefill` is in tokens a second, `itl` in seconds; prices are
    those of the configuration, None where it has none."""

    tier: str
    prefill: float
    step: float
    itl: float
    batch: int
    gpus: float
    gpu_hour: float | None
    input: float | None
    output: float | None

    def ttft(self) -> pl.Expr:
        """Seconds to the first token of each row."""
        return _fresh() / self.prefill + self.step

    def latency(self) -> pl.Expr:
        """Seconds to the last token of each row."""
        return self.ttft() + (pl.col("output") - 1).clip(0) * self.itl

    def gpu_hours(self) -> pl.Expr:
        """GPU-hours of each row."""
        busy = _fresh() / self.prefill + pl.col("output") * self.itl / self.batch
        return busy * self.gpus / 3600

    def cost(self) -> pl.Expr:
        """The price of each row; null where the configuration gives none."""
        if self.input is not None or self.output is not None:
            tokens = pl.col("prompt") * (self.input or 0) + pl.col("output") * (self.output or 0)
            return tokens / 1e6
        if self.gpu_hour is None:
            return pl.lit(None, dtype=pl.Float64)
        return self.gpu_hours() * self.gpu_hour


def _fresh() -> pl.Expr:
    """Prompt tokens that no cache had."""
    return (pl.col("prompt") - pl.col("cached")).clip(0)


def rates_of(config: Config) -> dict[str, Rates]:
    """The rates of each tier, by name; speeds as `tier_router.simulate` takes them."""
    fleet = fleet_of(config)
    return {tier.name: _rates(tier, fleet) for tier in config.tiers}


def gpus_of(tier: Tier, machine: Machine) -> float:
    """GPUs of one replica: as configured, else as many as the assumed machine has."""
    if tier.cost is not None and "gpus" in tier.cost.model_fields_set:
        return tier.cost.gpus
    return HEAVY_GPUS if machine == HEAVY else 1.0


def _rates(tier: Tier, fleet: Mapping[str, Machine]) -> Rates:
    speed = fleet[tier.names[0]].speed
    batch = min(speed.slots, BATCH)
    cost = tier.cost
    return Rates(
        tier.name,
        speed.prefill,
        speed.step,
        speed.step + speed.per_seq * (batch - 1),
        batch,
        gpus_of(tier, fleet[tier.names[0]]),
        None if cost is None else cost.gpu_hour,
        None if cost is None else cost.input,
        None if cost is None else cost.output,
    )


def by_tier(rates: Mapping[str, Rates], what: str, column: str = "tier") -> pl.Expr:
    """`ttft`, `latency`, `gpu_hours` or `cost` of each row at the tier that `column` names."""
    found = pl.lit(None, dtype=pl.Float64)
    for name, each in rates.items():
        found = pl.when(pl.col(column) == name).then(getattr(each, what)()).otherwise(found)
    return found
