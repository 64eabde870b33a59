"""The answers of `/v1/messages`, field by field in vLLM's order: text alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tier_router.testing import bodies
from tier_router.testing.answers import Part
from tier_router.testing.bodies import Json, Order
from tier_router.testing.job import Job

_STOPS = {"stop": "end_turn", "length": "max_tokens"}


class MessageShape:
    """Anthropic's `message`, or its events."""

    done = b""

    def whole(self, order: Order, jobs: Sequence[Job]) -> Json:
        """The answer that is not streamed; fields without a value are left out."""
        draft = order.drafts[0]
        stopped = {} if draft.stop is None else {"stop_sequence": draft.stop}
        return {
            "id": order.id,
            "type": "message",
            "role": "assistant",
            "content": [{"type": "text", "text": draft.text(Part.CONTENT)}],
            "model": order.model,
            "stop_reason": _reason(order),
            **stopped,
            "usage": _usage(order),
        }

    def early(self, order: Order) -> Iterator[Json]:
        """Nothing."""
        return iter(())

    def opening(self, order: Order) -> Iterator[Json]:
        """The message and its one block."""
        message: Json = {
            "id": order.id,
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": order.model,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": order.prompt_tokens, "output_tokens": 0},
        }
        yield {"type": "message_start", "message": message}
        block = {"type": "text", "text": ""}
        yield {"type": "content_block_start", "content_block": block, "index": 0}

    def event(self, order: Order, choice: int, number: int) -> Json:
        """The event of one token."""
        delta = {"type": "text_delta", "text": order.drafts[choice].pieces[number][1]}
        return {"type": "content_block_delta", "delta": delta, "index": 0}

    def closing(self, order: Order, jobs: Sequence[Job]) -> Iterator[Json]:
        """The block's end, why it ended with the usage, and the message's end."""
        yield {"type": "content_block_stop", "index": 0}
        delta = {"stop_reason": _reason(order), "stop_sequence": order.drafts[0].stop}
        yield {"type": "message_delta", "delta": delta, "usage": _usage(order)}
        yield {"type": "message_stop"}

    def frame(self, event: Json) -> bytes:
        """An event as it is sent."""
        return bodies.named_sse(event)


def _reason(order: Order) -> str:
    draft = order.drafts[0]
    return "stop_sequence" if draft.stop is not None else _STOPS[draft.finish]


def _usage(order: Order) -> Json:
    return {
        "input_tokens": order.prompt_tokens,
        "output_tokens": order.completion_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }
