"""The classifier of LiteLLM's complexity router: `classifier_type: custom`."""

from __future__ import annotations

from typing import Any

from tier_router.litellm.logger import TierCallback

NAMES = ("SIMPLE", "MEDIUM", "COMPLEX", "REASONING")
"""LiteLLM's own tiers, smallest first."""


def name_of(place: int, tiers: int) -> str:
    """LiteLLM's name for tier number `place` of `tiers`: the ends meet, the middle is rounded up.

    Two tiers are SIMPLE and REASONING, three SIMPLE, COMPLEX and REASONING, four all of them.
    """
    if tiers < 2:
        return NAMES[0]
    return NAMES[-(-place * (len(NAMES) - 1) // (tiers - 1))]


class TierClassifier:
    """Says which of LiteLLM's tiers a request belongs to, by the router of a callback.

    LiteLLM does not tell it what is in flight, so load moves nothing here.
    """

    def __init__(self, callback: TierCallback) -> None:
        self._callback = callback

    def __deepcopy__(self, memo: object) -> TierClassifier:
        """Itself: LiteLLM copies its model list, and there is one router for all copies."""
        return self

    async def classify(self, context: Any) -> str | None:
        """The name of a tier; None where the request cannot be read, which LiteLLM then judges by
        its own means.  Raises ConfigError."""
        wanted = self._callback.brain.wanted(context.structured_messages)
        return None if wanted is None else name_of(*wanted)
