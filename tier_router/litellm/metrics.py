"""What this door counts, in the registry that LiteLLM's `/metrics` shows."""

from __future__ import annotations

from functools import cache
from typing import Any

from tier_router.decide import Decision
from tier_router.ledger import Outcome


class Metrics:
    """Decisions and attempts; does nothing where prometheus-client is missing."""

    def __init__(self) -> None:
        self._decisions, self._attempts, self._in_flight, self._pruning = _series()

    def decided(self, decision: Decision) -> None:
        """One attempt was sent on its way."""
        if self._decisions is not None:
            self._decisions.labels(decision.tier, decision.reasons[0].value).inc()

    def unrouted(self, code: str) -> None:
        """One request was left to LiteLLM, for this reason."""
        if self._decisions is not None:
            self._decisions.labels("", code).inc()

    def in_flight(self, tier: str, replica: str, count: int) -> None:
        """So many requests are open on a replica now."""
        if self._in_flight is not None:
            self._in_flight.labels(tier, replica).set(count)

    def pruned(self, name: str, tier: str, step: str, more: float) -> None:
        """A number of `tier_router.prune.report.Tally` grew."""
        if self._pruning is not None:
            self._pruning.labels(name, tier, step).inc(more)

    def attempted(self, tier: str, replica: str, outcome: Outcome) -> None:
        """One attempt ended."""
        if self._attempts is not None:
            self._attempts.labels(tier, replica, outcome.value).inc()


@cache  # one set for the process: the default registry refuses a second of the same name
def _series() -> tuple[Any, Any, Any, Any]:
    try:
        from prometheus_client import Counter, Gauge
    except ModuleNotFoundError:
        return None, None, None, None
    decisions = Counter(
        "tier_router_decisions",
        "Decisions by tier and what decided; no tier: left to LiteLLM, and why.",
        ("tier", "reason"),
    )
    attempts = Counter(
        "tier_router_attempts",
        "Attempts on a replica by outcome.",
        ("tier", "replica", "outcome"),
    )
    in_flight = Gauge(
        "tier_router_in_flight_requests",
        "Requests that are open on a replica.",
        ("tier", "replica"),
    )
    pruning = Counter(
        "tier_router_pruning",
        "What pruning counts, by what it is: uncached_tokens_avoided, audit_loss and others.",
        ("what", "tier", "step"),
    )
    return decisions, attempts, in_flight, pruning
