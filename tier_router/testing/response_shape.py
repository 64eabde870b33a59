"""The answers of `/v1/responses`, field by field in vLLM's order: text alone."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from tier_router.testing import bodies
from tier_router.testing.answers import Part
from tier_router.testing.bodies import Json, Order
from tier_router.testing.job import Job


class ResponseShape:
    """`response`, or its events; made for one request, whose body it repeats."""

    done = b""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self._body = body
        self._numbers = count()

    def whole(self, order: Order, jobs: Sequence[Job]) -> Json:
        """The answer that is not streamed, and the last event's."""
        cut = order.drafts[0].finish == "length"
        item = _item(order, order.drafts[0].text(Part.CONTENT), "completed")
        turns: list[int] = []
        usage = {
            "input_tokens": order.prompt_tokens,
            "input_tokens_details": {
                "cached_tokens": 0,
                "cache_write_tokens": 0,
                "input_tokens_per_turn": turns,
                "cached_tokens_per_turn": turns,
            },
            "output_tokens": order.completion_tokens,
            "output_tokens_details": {
                "reasoning_tokens": 0,
                "tool_output_tokens": 0,
                "output_tokens_per_turn": turns,
                "tool_output_tokens_per_turn": turns,
            },
            "total_tokens": order.prompt_tokens + order.completion_tokens,
        }
        return self._response(order, "incomplete" if cut else "completed", [item], usage)

    def early(self, order: Order) -> Iterator[Json]:
        """The events that come before anything was computed."""
        response = self._response(order, "in_progress", [], None)
        for kind in ("created", "in_progress"):
            yield self._event(f"response.{kind}", response=response)

    def opening(self, order: Order) -> Iterator[Json]:
        """The events before the first token's own."""
        item = {**_item(order, "", "in_progress"), "content": []}
        yield self._event("response.output_item.added", item=item, output_index=0)
        yield self._of_part(
            order, "response.content_part.added", part={**_text(""), "logprobs": []}
        )

    def event(self, order: Order, choice: int, number: int) -> Json:
        """The event of one token."""
        delta = order.drafts[choice].pieces[number][1]
        return self._of_part(order, "response.output_text.delta", delta=delta, logprobs=[])

    def closing(self, order: Order, jobs: Sequence[Job]) -> Iterator[Json]:
        """The events that end it; the last one repeats the whole answer."""
        text = order.drafts[0].text(Part.CONTENT)
        yield self._of_part(order, "response.output_text.done", text=text, logprobs=[])
        yield self._of_part(order, "response.content_part.done", part=_text(text))
        item = _item(order, text, "completed")
        yield self._event("response.output_item.done", item=item, output_index=0)
        yield self._event("response.completed", response=self.whole(order, jobs))

    def frame(self, event: Json) -> bytes:
        """An event as it is sent."""
        return bodies.named_sse(event)

    def _response(self, order: Order, status: str, output: list[Json], usage: Json | None) -> Json:
        body, cut = self._body, status == "incomplete"
        return {
            "id": order.id,
            "created_at": order.created,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "instructions": body.get("instructions"),
            "metadata": body.get("metadata"),
            "model": order.model,
            "object": "response",
            "output": output,
            "parallel_tool_calls": True,
            "temperature": 0.7,
            "tool_choice": "none",
            "tools": [],
            "top_p": 0.9,
            "background": bool(body.get("background")),
            "max_output_tokens": body.get("max_output_tokens") or 4_096,
            "max_tool_calls": None,
            "previous_response_id": body.get("previous_response_id"),
            "prompt": None,
            "reasoning": None,
            "service_tier": "auto",
            "status": status,
            "text": None,
            "top_logprobs": None,
            "truncation": "disabled",
            "usage": usage,
            "user": None,
        }

    def _of_part(self, order: Order, kind: str, **more: Any) -> Json:
        place = {"content_index": 0, "item_id": _item_id(order), "output_index": 0}
        return self._event(kind, **place, **more)

    def _event(self, kind: str, **more: Any) -> Json:
        return dict(sorted({**more, "sequence_number": next(self._numbers), "type": kind}.items()))


def _item(order: Order, text: str, status: str) -> Json:
    return {
        "id": _item_id(order),
        "content": [_text(text)],
        "role": "assistant",
        "status": status,
        "type": "message",
        "phase": None,
    }


def _text(text: str) -> Json:
    return {"annotations": [], "text": text, "type": "output_text", "logprobs": None}


def _item_id(order: Order) -> str:
    return f"msg_{zlib.crc32(order.id.encode()):016x}"
