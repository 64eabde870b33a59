"""A decision where people look for it: response headers, and LiteLLM's own notes."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from tier_router.decide import Decision
from tier_router.litellm.visits import Visit
from tier_router.prune.report import HEADER

TAG = "tier-router:"
"""What our request tags begin with."""


def headers(visit: Visit) -> dict[str, str]:
    """The response headers of a request, those of the sidecar; `unrouted:` and a code where it
    was left to LiteLLM."""
    if visit.unrouted is not None:
        return {"x-tier-router-reason": f"unrouted:{visit.unrouted}"}
    decision = visit.decision
    if decision is None:
        return {}
    found = {
        "x-tier-router-tier": decision.tier,
        "x-tier-router-replica": decision.replica,
        "x-tier-router-reason": ",".join(decision.reasons),
    }
    if decision.difficulty is not None:
        found["x-tier-router-difficulty"] = f"{decision.difficulty:.3f}"
    if visit.pruned is not None and visit.pruned.header:
        found[HEADER] = visit.pruned.header
    return found


def note(bucket: MutableMapping[str, Any], group: str, decision: Decision) -> None:
    """Writes the decision where LiteLLM's logs, spend rows and pages keep routing decisions."""
    shown: dict[str, Any] = {
        "router_model_name": group,
        "routed_model": decision.model,
        "tier": decision.tier,
        "tier_label": decision.tier,
        "cause": "classifier_plugin",  # of LiteLLM's closed set, the one for what others decided
        "signals": [reason.value for reason in decision.reasons],
    }
    if decision.difficulty is not None:
        shown["score"] = round(decision.difficulty, 4)
    bucket["routing_decision"] = shown


def tag(bucket: MutableMapping[str, Any], decision: Decision) -> None:
    """Adds the tier to the request's tags."""
    untag(bucket)
    tags = bucket.get("tags")
    kept = list(tags) if isinstance(tags, list | tuple) else []
    bucket["tags"] = [*kept, TAG + decision.tier]


def untag(bucket: MutableMapping[str, Any]) -> None:
    """Takes our tags out: LiteLLM's tag routing would look for a deployment that has them."""
    tags = bucket.get("tags")
    if isinstance(tags, list) and any(_is_ours(each) for each in tags):
        bucket["tags"] = [each for each in tags if not _is_ours(each)]


def _is_ours(each: object) -> bool:
    return isinstance(each, str) and each.startswith(TAG)
