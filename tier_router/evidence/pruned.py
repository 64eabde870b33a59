"""What pruning would take out of a log's requests, were every prefix cache cold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tier_router.config import Config
from tier_router.config.pruning import Mode
from tier_router.prune.pipeline import plan
from tier_router.prune.plan import Known
from tier_router.prune.warm import COLD
from tier_router.request import View

REQUESTS, TOKENS = "requests", "tokens"
"""Sums that stand beside the steps' names: requests looked at, and their prompt tokens."""


def prune(
    body: Mapping[str, Any], view: View, tier: str, intent: str | None, config: Config
) -> Counter[str]:
    """Prompt tokens that each step would take out, those it may only observe too."""
    place, settings = config.ladder[tier], config.pruning
    if settings.mode is Mode.OFF:
        settings = settings.model_copy(update={"mode": Mode.OBSERVE})
    known = Known(easy=place == 0, intent=intent)
    found = plan(body, view, config.tiers[place], COLD, settings, known=known)
    counts = Counter({REQUESTS: 1, TOKENS: found.tokens_before})
    for edit in (*found.sent, *found.observed):
        counts[edit.step.value] += edit.saved
    return counts


def told(counts: Counter[str]) -> dict[str, Any] | None:
    """The sums, as the report has them: {requests, tokens, removed, steps: {name: tokens}}."""
    if not counts[REQUESTS]:
        return None
    steps = {name: n for name, n in counts.most_common() if name not in (REQUESTS, TOKENS) and n}
    return {
        "requests": counts[REQUESTS],
        "tokens": counts[TOKENS],
        "removed": sum(steps.values()),
        "steps": steps,
    }
