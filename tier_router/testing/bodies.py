"""What the answers of chats and completions share: the order behind them, usage, metrics, SSE."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tier_router.testing.answers import Draft
from tier_router.testing.job import Job

FINGERPRINT = "vllm-0.32.0-c4d9044f"
DONE = b"data: [DONE]\n\n"

_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Order:
    """A request that was understood: what is to be generated, and how it is to be sent."""

    id: str
    model: str
    created: int
    drafts: tuple[Draft, ...]
    """One for each choice."""
    prompts: tuple[int, ...]
    """Prompt tokens of each choice's sequence."""
    prompt_tokens: int
    """Prompt tokens as they are counted: once for all choices of a prompt."""
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    priority: int = 0
    prompt_details: bool = True
    """Whether `usage` says what came from the prefix cache."""

    @property
    def completion_tokens(self) -> int:
        """Tokens of all choices."""
        return sum(len(draft.pieces) for draft in self.drafts)


class Shape(Protocol):
    """How one endpoint spells its answers."""

    done: bytes
    """What ends a stream."""

    def whole(self, order: Order, jobs: Sequence[Job]) -> Json:
        """The answer that is not streamed."""
        ...

    def early(self, order: Order) -> Iterator[Json]:
        """The events that come at once, before the request is queued."""
        ...

    def opening(self, order: Order) -> Iterator[Json]:
        """The events that come with the first token, before its own."""
        ...

    def event(self, order: Order, choice: int, number: int) -> Json:
        """The event of token `number` of a choice."""
        ...

    def closing(self, order: Order, jobs: Sequence[Job]) -> Iterator[Json]:
        """The events after the last token, with the usage where it was asked for."""
        ...

    def frame(self, event: Json) -> bytes:
        """An event as it is sent."""
        ...


def encode(content: Any) -> bytes:
    """JSON as vLLM writes it: without blanks, with few escapes."""
    return _ENCODER.encode(content).encode("utf-8", "replace")


def sse(content: Any) -> bytes:
    """One event of a stream."""
    return b"data: " + encode(content) + b"\n\n"


def named_sse(content: Json) -> bytes:
    """One event of a stream whose events have names."""
    return f"event: {content['type']}\n".encode() + sse(content)


class Plain:
    """What the streams of chats and of completions share."""

    done = DONE

    def early(self, order: Order) -> Iterator[Json]:
        """Nothing."""
        return iter(())

    def frame(self, event: Json) -> bytes:
        """An event without a name."""
        return sse(event)


def head(order: Order, kind: str) -> Json:
    """The fields that begin each answer and each event."""
    return {"id": order.id, "object": kind, "created": order.created, "model": order.model}


def counts(prompt: int, completion: int) -> Json:
    """A `usage` without details."""
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
    }


def metrics(jobs: Sequence[Job]) -> Json | None:
    """How long the answer took (`--enable-per-request-metrics`); None for several choices."""
    if len(jobs) != 1:
        return None
    job = jobs[0]
    begun, first, last = (at or 0.0 for at in (job.started_at, job.first_at, job.last_at))
    took = last - job.submitted_at
    return {
        "time_to_first_token_ms": 1e3 * (first - job.submitted_at),
        "generation_time_ms": 1e3 * (last - first),
        "queue_time_ms": 1e3 * (begun - job.submitted_at),
        "mean_itl_ms": 1e3 * (last - first) / (job.tokens - 1) if job.tokens > 1 else None,
        "tokens_per_second": job.tokens / took if took > 0 else None,
    }


def metrics_of_whole(jobs: Sequence[Job]) -> Json | None:
    """`metrics` as an answer that is not streamed has them: with one field more."""
    told = metrics(jobs)
    return None if told is None else {**told, "speculative_decoding": None}


def model_card(name: str, model: str, created: int, max_model_len: int) -> Json:
    """One entry of `/v1/models`."""
    permission = {
        "id": f"modelperm-{zlib.crc32(name.encode()):016x}",
        "object": "model_permission",
        "created": created,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "vllm",
        "root": f"models/{model}",
        "parent": None,
        "max_model_len": max_model_len,
        "permission": [permission],
    }
