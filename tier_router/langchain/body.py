"""LangChain's messages and call options as the request body that the core reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage, convert_to_openai_messages

from tier_router.request import View
from tier_router.router import TierRouter
from tier_router.view import PIN_HEADER

READ = (
    "model", "tools", "functions", "tool_choice", "response_format", "structured_outputs",
    "logprobs", "reasoning", "reasoning_effort", "chat_template_kwargs", "max_tokens",
    "max_completion_tokens", "n", "modalities", "stream", "stop", "min_tokens", "thinking",
    "thinking_token_budget", "include_reasoning",
)  # fmt: skip
"""Call options that say what a request needs, and (`model`) which tier the caller names."""


def body_of_messages(messages: Sequence[BaseMessage], options: Mapping[str, Any]) -> dict[str, Any]:
    """A call as the body of a chat completion."""
    body: dict[str, Any] = {name: options[name] for name in READ if options.get(name) is not None}
    body["messages"] = convert_to_openai_messages(list(messages))
    extra = options.get("extra_body")
    return {**extra, **body} if isinstance(extra, Mapping) else body


def view_of_messages(
    router: TierRouter,
    messages: Sequence[BaseMessage],
    options: Mapping[str, Any],
    tier: str | None = None,
) -> View:
    """The view of a call; `tier` pins.  Raises RequestError."""
    body = body_of_messages(messages, options)
    return router.view(body, {PIN_HEADER: tier} if tier else {})
