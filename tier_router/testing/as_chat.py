"""Responses and messages as the chats that vLLM makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tier_router.testing import tokens

Body = dict[str, Any]

_SAME = ("model", "stream", "priority", "temperature", "top_p", "ignore_eos", "request_id")


def chat_of_response(body: Mapping[str, Any], before: Sequence[Mapping[str, Any]] = ()) -> Body:
    """The chat of a response; `before` are the messages that it goes on from."""
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if isinstance(items, list):
        items = [*before, *_first(body.get("instructions")), *items]
    return _chat(body, items, body.get("max_output_tokens"))


def chat_of_message(body: Mapping[str, Any]) -> Body:
    """The chat of one of Anthropic's messages."""
    messages = body.get("messages")
    if isinstance(messages, list):
        messages = [*_first(body.get("system")), *messages]
    return _chat(body, messages, body.get("max_tokens"), body.get("stop_sequences"))


def _chat(body: Mapping[str, Any], messages: Any, limit: Any, stop: Any = None) -> Body:
    chat = {name: body[name] for name in _SAME if name in body}
    more = {"messages": messages, "max_tokens": limit, "stop": stop}
    return {**chat, **{name: value for name, value in more.items() if value is not None}}


def _first(system: Any) -> list[Body]:
    return [{"role": "system", "content": tokens.text_of(system)}] if system else []
