"""The answers of `/v1/completions`, field by field in vLLM's order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tier_router.testing import bodies
from tier_router.testing.answers import Part
from tier_router.testing.bodies import FINGERPRINT, Json, Order, Plain
from tier_router.testing.job import Job

_KIND = "text_completion"


class TextShape(Plain):
    """`text_completion`, streamed or not."""

    def whole(self, order: Order, jobs: Sequence[Job]) -> Json:
        """The answer that is not streamed."""
        cached = {"cached_tokens": 0, "created_cache_tokens": None, "multimodal_tokens": None}
        return {
            **bodies.head(order, _KIND),
            "choices": [_choice(order, index) for index in range(len(order.drafts))],
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": {
                **bodies.counts(order.prompt_tokens, order.completion_tokens),
                "prompt_tokens_details": cached if order.prompt_details else None,
                "completion_tokens_details": None,
            },
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": bodies.metrics_of_whole(jobs),
        }

    def opening(self, order: Order) -> Iterator[Json]:
        """Nothing."""
        return iter(())

    def event(self, order: Order, choice: int, number: int) -> Json:
        """The chunk with one token."""
        draft = order.drafts[choice]
        last = number == len(draft.pieces) - 1
        entry = {
            "index": choice,
            "text": draft.pieces[number][1],
            "logprobs": None,
            "finish_reason": draft.finish if last else None,
            "stop_reason": draft.stop if last else None,
            "prompt_token_ids": None,
            "token_ids": None,
        }
        chunk = {**bodies.head(order, _KIND), "choices": [entry]}
        if order.continuous_usage:
            chunk["usage"] = bodies.counts(order.prompt_tokens, number + 1)
        if last and not order.include_usage:
            chunk["system_fingerprint"] = FINGERPRINT
        return chunk

    def closing(self, order: Order, jobs: Sequence[Job]) -> Iterator[Json]:
        """The chunk with the usage and no choices, where it was asked for."""
        if not order.include_usage:
            return
        usage = bodies.counts(order.prompt_tokens, order.completion_tokens)
        details = {"cached_tokens": 0} if order.prompt_details else None
        yield {
            **bodies.head(order, _KIND),
            "choices": [],
            "usage": {**usage, "prompt_tokens_details": details},
            "system_fingerprint": FINGERPRINT,
            "metrics": bodies.metrics(jobs),
        }


def _choice(order: Order, index: int) -> Json:
    draft = order.drafts[index]
    return {
        "index": index,
        "text": draft.text(Part.CONTENT),
        "logprobs": None,
        "finish_reason": draft.finish,
        "stop_reason": draft.stop,
        "token_ids": None,
        "prompt_logprobs": None,
        "prompt_token_ids": None,
        "routed_experts": None,
    }
