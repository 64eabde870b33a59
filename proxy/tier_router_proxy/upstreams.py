"""What a request that is relayed is, and what a relay works with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tier_router.config import Tier
from tier_router.decide import Decision
from tier_router.decisionlog import Logbook
from tier_router.request import View
from tier_router.router import TierRouter
from tier_router_proxy.doors import Door
from tier_router_proxy.feedback import Feedback
from tier_router_proxy.keepers import Keepers
from tier_router_proxy.metrics import Metrics
from tier_router_proxy.pools import Pools
from tier_router_proxy.tracing import Tracing


@dataclass(frozen=True, slots=True)
class Incoming:
    """A request that was read: what it says, and what routing knows of it."""

    id: str
    raw: bytes | None
    """The body, decompressed; None for a request without one."""
    fields: Mapping[str, Any]
    view: View
    arrived: float
    door: Door
    method: bytes
    target: bytes
    """Path and query as vLLM knows them."""


@dataclass(frozen=True, slots=True)
class Upstreams:
    """What a relay works with."""

    router: TierRouter
    pools: Pools
    metrics: Metrics
    now: Callable[[], float]
    told: set[tuple[str, str]] = field(default_factory=set)
    """(replica, model) of the wrong models that the log has been told of."""
    keepers: Keepers = field(default_factory=Keepers)
    feedback: Feedback = field(default_factory=Feedback)
    book: Logbook = field(default_factory=lambda: Logbook("sidecar"))
    tracing: Tracing | None = None

    def tier(self, decision: Decision) -> Tier:
        """The tier that a decision is for, as it is now configured."""
        config = self.router.config
        return config.tiers[config.ladder[decision.tier]]
