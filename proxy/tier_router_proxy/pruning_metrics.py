"""What pruning counts, in Prometheus's format."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from tier_router.prune.report import Tally

SERIES = {
    "pruning_requests": "Requests that pruning looked at.",
    "prune_seconds": "What looking took, seconds.",
    "pruning_failed": "Plans that failed, by why (in `step`); the original went out.",
    "pruning_heldout": "Requests of the conversations that are sent unpruned to compare.",
    "uncached_tokens_avoided": "Estimated prompt tokens that no replica had to prefill.",
    "tokens_removed": "Estimated prompt tokens that were taken out.",
    "prefix_regressions": "Requests that had more to prefill than they would have had unpruned.",
    "cache_misjudged": "Answers whose replica had less cached than was counted on.",
    "escalations_avoided": "Requests that fitted a smaller tier's context only by pruning.",
    "thinking_misfires": "Answers that came back empty with thinking switched off.",
    "audits": "Answers that were looked at for what a step would have lost.",
    "audit_loss": "Audits that found a loss.",
}
"""Names, without `tier_router_`, and what they are; each has the labels tier and step."""


class PruningMetrics:
    """Shows a tally, in counters that several workers may sum."""

    def __init__(self, registry: CollectorRegistry, tally: Tally) -> None:
        self._counters = {
            name: Counter(f"tier_router_{name}", told, ("tier", "step"), registry=registry)
            for name, told in SERIES.items()
        }
        tally.listener = self._counted

    def _counted(self, name: str, tier: str, step: str, more: float) -> None:
        self._counters[name].labels(tier, step).inc(more)
