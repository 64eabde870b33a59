"""How fast replicas are, and how much their KV cache holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tier_router.config import Config, Replica, Tier
from tier_router.testing.engine import Speed
from tier_router.testing.sim import speed_of

BLOCK = 16
"""Tokens of one KV block: vLLM caches whole blocks only."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One replica's hardware and model; `kv_tokens` is what its KV cache holds."""

    speed: Speed
    kv_tokens: int
    prefix_cache: bool = True

    def __post_init__(self) -> None:
        if not self.kv_tokens > 0:
            raise ValueError(f"kv_tokens must be above 0, not {self.kv_tokens}")


LIGHT = Machine(
    Speed(slots=64, prefill=27_700.0, step=0.0065, per_seq=0.000035, batched_tokens=8_192),
    kv_tokens=400_000,
)
"""An 8B model, 16 bit, on one GPU of the H100 kind.

- `step`: vLLM's public performance benchmark, Llama 8B: 833 ms for 128 tokens at batch 8 (H200).
- `per_seq`: NVIDIA's NIM page, Llama 3.1 8B: 4.6 ms between tokens at 1 request, 9.8 ms at 150.
- `prefill`: 989 TFLOP/s at 45 % (an assumption) over 2 x 8e9 a token.
- `kv_tokens`: 0.9 x 80 GB less 16 GB of weights and 4 GB of work space (an assumption), at 128 KiB
  a token.
- `batched_tokens`: vLLM's default for a server on GPUs of 70 GiB and more.
- `slots`: an operator's choice, and the router's default limit; vLLM's own default there is 1,024.
"""

HEAVY = Machine(
    Speed(slots=64, prefill=12_600.0, step=0.0162, per_seq=0.0001, batched_tokens=8_192),
    kv_tokens=420_000,
)
"""A 70B model, 16 bit, on four such GPUs; from the same sources as `LIGHT`.

2,078 ms for 128 tokens at batch 8; 13.2 ms between tokens at 1 request, 27.7 ms at 150; four GPUs
at 45 % over 2 x 70.6e9 a token; 288 GB less 141 GB of weights and 8 GB, at 320 KiB a token.
"""


def fleet_of(config: Config, tiers: Mapping[str, Machine] | None = None) -> dict[str, Machine]:
    """The machine behind each replica, by replica name.

    `tiers` says it by tier; else the tier's `speed` does, and what that leaves out the replica's
    `sim://` URL.  Of what is left the last tier of a ladder is `HEAVY`, all others are `LIGHT`.
    Raises ConfigError for a bad URL.
    """
    given = tiers or {}
    return {
        replica.name or replica.url: given.get(tier.name) or _machine(config, place, tier, replica)
        for place, tier in enumerate(config.tiers)
        for replica in tier.replicas
    }


def assumed(tier: Tier) -> bool:
    """Whether nothing says how fast the tier is."""
    simulated = any(replica.url.startswith("sim://") for replica in tier.replicas)
    return not tier.speed.told and not simulated


def _machine(config: Config, place: int, tier: Tier, replica: Replica) -> Machine:
    usual = HEAVY if 0 < place == config.rungs - 1 else LIGHT
    if replica.url.startswith("sim://"):
        usual = Machine(speed_of(replica.url), usual.kv_tokens)
    given = tier.speed.model_dump(exclude_unset=True, exclude_none=True)
    kv_tokens = given.pop("kv_tokens", usual.kv_tokens)
    prefix_cache = given.pop("prefix_cache", usual.prefix_cache)
    return Machine(replace(usual.speed, **given), kv_tokens, prefix_cache)
