"""Thinking off or bounded, only where the client left it unset and the template can.

An output token costs as much time as 78 to 228 prompt tokens that are not cached, so this is the
step that saves most.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import takewhile
from typing import Any

from tier_router.config.pruning import Step
from tier_router.prune.draft import Draft
from tier_router.prune.plan import Edit, Template
from tier_router.prune.units import USER

CLIENT_FIELDS = ("reasoning_effort", "reasoning", "thinking", "thinking_token_budget",
                 "include_reasoning", "thinking_budget")  # fmt: skip
"""Body fields by which a client says how much is to be thought."""
TEMPLATE_FIELDS = frozenset({"enable_thinking", "thinking", "thinking_budget", "reasoning_effort"})
"""The same inside `chat_template_kwargs`: Qwen's, DeepSeek's and Granite's, Seed's, gpt-oss's."""
_SOFT_SWITCH = re.compile(r"(?<!\S)/(?:no_)?think(?!\S)")

SAME = 0.95
"""Share of the prompt before the switch from which it counts as standing at the end."""


def run(draft: Draft) -> None:
    """Adds the edits of the thinking fields."""
    settings = draft.config.steps.reasoning
    wanted = settings.easy if draft.known.easy else settings.other
    switch, budget = wanted.enable_thinking, wanted.thinking_token_budget
    if switch is None and budget is None:
        return
    if _client_said(draft):
        draft.abstain(Step.REASONING, "client")
        return
    on = draft.on(Step.REASONING)
    if switch is not None:
        if draft.known.template is Template.NONE:
            draft.abstain(Step.REASONING, "template")
            return
        path = ("chat_template_kwargs", "enable_thinking")
        draft.add(Edit(Step.REASONING, "set", path, switch, 0, 0, on))
    if budget is not None:
        draft.add(Edit(Step.REASONING, "set", ("thinking_token_budget",), budget, 0, 0, on))


def _client_said(draft: Draft) -> bool:
    body = draft.body
    if any(body.get(name) is not None for name in CLIENT_FIELDS):
        return True
    inner = body.get("chat_template_kwargs")
    if inner is not None and (not isinstance(inner, Mapping) or inner.keys() & TEMPLATE_FIELDS):
        return True
    return any(text.role in (USER, "system") and "think" in text.text
               and _SOFT_SWITCH.search(text.text) for text in draft.prompt.texts)  # fmt: skip


def template_of(thinking: list[int], without: list[int]) -> Template:
    """What a template does with the switch, by one prompt's tokens (vLLM's `/tokenize`) with
    thinking on and off."""
    if thinking == without:
        return Template.NONE
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1],
                                    zip(thinking, without, strict=False)))  # fmt: skip
    return Template.TAIL if same >= SAME * min(len(thinking), len(without)) else Template.HEAD


def misfired(answer: Mapping[str, Any]) -> bool:
    """Whether an answer to a request with thinking off came back empty, all of it in `reasoning`:
    send the request once more as the client wrote it, and count the tier's template as `NONE`."""
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        return False
    message = choices[0].get("message")
    if not isinstance(message, Mapping) or message.get("tool_calls"):
        return False
    thought = message.get("reasoning_content") or message.get("reasoning")
    return bool(thought) and not message.get("content")
