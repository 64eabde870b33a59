"""How fast a tier reads and writes, as its answers taught, and what a plan is worth with that.

saved = (uncached before - after) / prefill  +  output tokens avoided x ITL  -  time spent
        + answer tokens x tokens removed x KV bytes / memory bandwidth
"""

from __future__ import annotations

from dataclasses import dataclass

from tier_router.config.pruning import TierPruning
from tier_router.pace import Pace

PREFILL_TPS, ITL = 9_700.0, 0.008
"""Until something is learned: an 8B model in bf16 on one A100 (312 TFLOP/s at half use; weights
over 2.0 TB/s), tokens a second and seconds."""

KV_BYTES, BANDWIDTH = 131_072.0, 2.0e12
"""KV bytes of a token of an 8B model in fp16 (32 layers, 8 heads of 128, keys and values), and
memory bytes a second of an A100."""


@dataclass(frozen=True, slots=True)
class Speeds:
    """Prompt tokens a second, seconds an output token, KV bytes a token."""

    prefill_tps: float = PREFILL_TPS
    itl: float = ITL
    kv_bytes: float = KV_BYTES

    def saved(self, uncached: float, removed: float, written: float, output: float = 0.0) -> float:
        """Seconds saved by `uncached` fewer prompt tokens to prefill, `removed` fewer to attend to
        while `written` tokens are written, and `output` fewer output tokens."""
        attention = written * max(removed, 0.0) * self.kv_bytes / BANDWIDTH
        return uncached / self.prefill_tps + attention + output * self.itl


def speeds_of(tier: TierPruning, pace: Pace | None) -> Speeds:
    """The speeds of a tier: those that are written down, then those of its answers so far."""
    learned = (None, None) if pace is None else (pace.prefill, pace.gap)
    return Speeds(
        tier.prefill_tps or learned[0] or PREFILL_TPS,
        tier.itl_ms / 1000 if tier.itl_ms else learned[1] or ITL,
        tier.kv_bytes or KV_BYTES,
    )
