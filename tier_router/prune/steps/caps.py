"""An output limit where the client set none, learned from the lengths of answers."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection
from typing import Any

from tier_router.config.pruning import Caps, Step
from tier_router.prune.draft import Draft
from tier_router.prune.plan import Edit, Template

LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "stop", "min_tokens")
SHAPED = ("tools", "functions", "response_format", "structured_outputs", "guided_json",
          "guided_regex", "guided_grammar", "guided_choice")  # fmt: skip
"""Fields whose answers must not be cut: half a JSON value is none."""

LENGTHS = 4_096
"""Latest answers of a tier and intent that a limit is learned from."""
CUT_OFF = 0.005
"""Share of capped answers that may end at the cap; above it the cap is doubled."""
SMALLEST = 64
"""No cap is lower than this, however short the answers were."""
EVERY = 32
"""Answers after which a limit is computed anew."""
TRACKED = 512
"""Pairs of tier and intent whose lengths are kept."""


def run(draft: Draft) -> int | None:
    """Adds the limit, if there is one and nothing speaks against it; gives it back."""
    cap = draft.known.cap
    if cap is None or any(draft.body.get(name) is not None for name in LIMITS):
        return None
    if any(draft.body.get(name) for name in SHAPED):
        draft.abstain(Step.CAPS, "shaped")
        return None
    if draft.known.thinks and not _quiet(draft):
        draft.abstain(Step.CAPS, "thinking")
        return None
    path = ("max_completion_tokens",)
    draft.add(Edit(Step.CAPS, "set", path, cap, 0, 0, draft.on(Step.CAPS)))
    return cap


def _quiet(draft: Draft) -> bool:
    """Whether this request goes out with thinking off."""
    inner: Any = draft.body.get("chat_template_kwargs")
    if isinstance(inner, dict) and inner.get("enable_thinking") is False:
        return draft.known.template is not Template.NONE
    return any(e.step is Step.REASONING and e.on and e.value is False for e in draft.edits)


class Lengths:
    """Answer lengths by tier and intent, and the caps that follow from them."""

    def __init__(self, settings: Caps) -> None:
        self._settings = settings
        self._lengths: dict[tuple[str, str | None], deque[int]] = {}
        self._capped: dict[tuple[str, str | None], deque[bool]] = {}
        self._factor: dict[tuple[str, str | None], int] = {}
        self._seen: dict[tuple[str, str | None], int] = {}
        self._caps: dict[tuple[str, str | None], int] = {}

    def answered(
        self, tier: str, intent: str | None, written: int, cap: int | None, at_limit: bool
    ) -> None:
        """One answer of `written` tokens; `cap` is the one that was sent, `at_limit` whether it
        ended there."""
        key = (tier, intent)
        if key not in self._lengths and len(self._lengths) >= TRACKED:
            return
        self._lengths.setdefault(key, deque(maxlen=LENGTHS)).append(written)
        self._seen[key] = self._seen.get(key, 0) + 1
        if self._seen[key] % EVERY == 0:
            self._caps.pop(key, None)
        if cap is None:
            return
        ends = self._capped.setdefault(key, deque(maxlen=LENGTHS))
        ends.append(at_limit)
        if len(ends) >= 200 and sum(ends) > CUT_OFF * len(ends):
            self._factor[key] = self._factor.get(key, 1) * 2
            self._caps.pop(key, None)
            ends.clear()

    def cap(self, tier: str, intent: str | None) -> int | None:
        """The limit, None before enough answers were seen."""
        key = (tier, intent)
        seen = self._lengths.get(key)
        if seen is None or len(seen) < self._settings.need:
            return None
        if key not in self._caps:
            self._caps[key] = self._cap(seen, self._factor.get(key, 1))
        return self._caps[key]

    def _cap(self, seen: Collection[int], factor: int) -> int:
        at = min(len(seen) - 1, math.ceil(self._settings.quantile * len(seen)))
        longest = sorted(seen)[at]
        return max(SMALLEST, math.ceil(longest * self._settings.slack) * factor)
