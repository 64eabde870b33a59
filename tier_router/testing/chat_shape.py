"""The answers of `/v1/chat/completions`, field by field in vLLM's order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tier_router.testing import bodies
from tier_router.testing.answers import Draft, Part
from tier_router.testing.bodies import FINGERPRINT, Json, Order, Plain
from tier_router.testing.job import Job

_CHUNK = "chat.completion.chunk"


class ChatShape(Plain):
    """`chat.completion` and its chunks."""

    def whole(self, order: Order, jobs: Sequence[Job]) -> Json:
        """The answer that is not streamed."""
        cached = {"cached_tokens": 0, "created_cache_tokens": 0, "multimodal_tokens": None}
        return {
            **bodies.head(order, "chat.completion"),
            "choices": [_choice(order, index) for index in range(len(order.drafts))],
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": _usage(order, cached),
            "prompt_logprobs": None,
            "prompt_token_ids": None,
            "prompt_text": None,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": bodies.metrics_of_whole(jobs),
        }

    def opening(self, order: Order) -> Iterator[Json]:
        """The role of each choice."""
        for index in range(len(order.drafts)):
            choice = {
                "index": index,
                "delta": {"role": "assistant", "content": ""},
                "logprobs": None,
                "finish_reason": None,
            }
            chunk = {**bodies.head(order, _CHUNK), "choices": [choice]}
            if order.continuous_usage:
                chunk["usage"] = _usage_so_far(order, 0, 0)
            yield {**chunk, "prompt_token_ids": None, "prompt_text": None}

    def event(self, order: Order, choice: int, number: int) -> Json:
        """The chunk with one token."""
        draft = order.drafts[choice]
        last = number == len(draft.pieces) - 1
        entry: Json = {
            "index": choice,
            "delta": _delta(order, draft, choice, number),
            "logprobs": None,
            "finish_reason": draft.finish if last else None,
        }
        if last:
            entry["stop_reason"] = draft.stop
        chunk = {**bodies.head(order, _CHUNK), "choices": [{**entry, "token_ids": None}]}
        if order.continuous_usage:
            thought = min(number + 1, draft.reasoning_tokens)
            chunk["usage"] = _usage_so_far(order, number + 1, thought)
        if last and not order.include_usage:
            chunk["system_fingerprint"] = FINGERPRINT
        return chunk

    def closing(self, order: Order, jobs: Sequence[Job]) -> Iterator[Json]:
        """The chunk with the usage and no choices, where it was asked for."""
        if not order.include_usage:
            return
        yield {
            **bodies.head(order, _CHUNK),
            "choices": [],
            "usage": _usage(order, {"cached_tokens": 0, "created_cache_tokens": 0}),
            "system_fingerprint": FINGERPRINT,
            "metrics": bodies.metrics(jobs),
        }


def _usage(order: Order, prompt_details: Json) -> Json:
    thought = sum(draft.reasoning_tokens for draft in order.drafts)
    return {
        **bodies.counts(order.prompt_tokens, order.completion_tokens),
        "prompt_tokens_details": prompt_details if order.prompt_details else None,
        "completion_tokens_details": {"reasoning_tokens": thought},
    }


def _usage_so_far(order: Order, completion: int, thought: int) -> Json:
    details = {"reasoning_tokens": thought}
    return {
        **bodies.counts(order.prompt_tokens, completion),
        "completion_tokens_details": details,
    }


def _choice(order: Order, index: int) -> Json:
    draft = order.drafts[index]
    message: Json = {
        "role": "assistant",
        "content": draft.text(Part.CONTENT) or None,
        "refusal": None,
        "annotations": None,
        "audio": None,
        "function_call": None,
    }
    if name := draft.text(Part.CALL):
        called = {"name": name, "arguments": draft.text(Part.ARGUMENTS)}
        call = {"id": _call_id(order, index), "type": "function", "function": called}
        message["tool_calls"] = [call]
    message["reasoning"] = draft.text(Part.REASONING) or None
    return {
        "index": index,
        "message": message,
        "logprobs": None,
        "finish_reason": draft.finish,
        "stop_reason": draft.stop,
        "token_ids": None,
        "routed_experts": None,
    }


def _delta(order: Order, draft: Draft, choice: int, number: int) -> Json:
    kind, piece = draft.pieces[number]
    if kind is Part.REASONING:
        return {"reasoning": piece}
    if kind is Part.CONTENT:
        return {"content": piece}
    call: dict[str, Any] = {"index": 0, "function": {"arguments": piece}}
    if kind is Part.CALL:
        call = {
            "id": _call_id(order, choice),
            "type": "function",
            "index": 0,
            "function": {"name": piece},
        }
    return {"content": None, "tool_calls": [call]}


def _call_id(order: Order, choice: int) -> str:
    return f"chatcmpl-tool-{order.id.removeprefix('chatcmpl-')}-{choice}"
