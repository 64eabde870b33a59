"""Chats and completions: from the body to an order, through the engine, and out."""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any
from uuid import uuid4

from tier_router.testing import problems, tokens
from tier_router.testing.answers import Draft, Writer
from tier_router.testing.bodies import Order, Shape, encode
from tier_router.testing.chat_shape import ChatShape
from tier_router.testing.engine import Engine
from tier_router.testing.exchange import JSON, Exchange, Headers
from tier_router.testing.job import Feed, Job
from tier_router.testing.plan import Fault
from tier_router.testing.recorded import Recorded
from tier_router.testing.text_shape import TextShape

CHAT, TEXT = ChatShape(), TextShape()

_INTEGER = re.compile(r"-?[0-9]+")
_MEDIA = ("image_url", "input_image", "input_audio", "audio_url", "video_url")


def chat_order(request: Recorded, body: dict[str, Any], writer: Writer, limit: int) -> Order:
    """What a checked chat asks for, or `Refused`."""
    for message in body["messages"]:
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            media = isinstance(part, dict) and part.get("type") in _MEDIA
            if media and not writer.multimodal:
                raise problems.not_multimodal(writer.model)
    prompt = tokens.count(tokens.render(body))
    room = _room(body, prompt, limit)
    drafts = tuple(writer.chat(body, room, choice) for choice in range(body.get("n") or 1))
    return _order(request, body, writer, "chatcmpl", drafts, (prompt,) * len(drafts), prompt)


def text_order(request: Recorded, body: dict[str, Any], writer: Writer, limit: int) -> Order:
    """What a checked completion asks for, or `Refused`."""
    n = body.get("n") or 1
    drafts: list[Draft] = []
    prompts: list[int] = []
    for prompt, size in _prompts(body["prompt"]):
        room = _room({"max_tokens": 16, **body}, size, limit)  # 16: the API's own default
        drafts += (writer.completion(body, prompt, room, choice) for choice in range(n))
        prompts += [size] * n
    total = sum(prompts) // n
    return _order(request, body, writer, "cmpl", drafts, prompts, total)


async def generate(
    exchange: Exchange, order: Order, shape: Shape, engine: Engine, fault: Fault
) -> Sequence[Job]:
    """The jobs of an order that was answered; they leave the engine if the client does."""
    if not engine.admits(len(order.prompts)):
        engine.rejected_total += 1
        raise problems.Refused(503, problems.BUSY)
    jobs = _submitted(order, engine)
    try:
        feed = Feed(jobs)
        if order.stream:
            await _stream(exchange, order, shape, jobs, feed, fault)
        else:
            async for _ in feed:
                pass
            content = encode(shape.whole(order, jobs))
            if not await fault.whole(exchange, content):
                await exchange.respond(200, content, (*_load_header(exchange, engine), *JSON))
    finally:
        for job in jobs:
            engine.cancel(job)
    return jobs


def response_order(request: Recorded, body: dict[str, Any], writer: Writer, limit: int) -> Order:
    """What the checked chat of a response asks for; its id is the client's, or a new one."""
    order = chat_order(request, body, writer, limit)
    return replace(order, id=body.get("request_id") or f"resp_{uuid4().hex[:16]}")


def _submitted(order: Order, engine: Engine) -> list[Job]:
    return [
        engine.submit(prompt, len(draft.pieces), order.priority)
        for prompt, draft in zip(order.prompts, order.drafts, strict=True)
    ]


async def _stream(
    exchange: Exchange, order: Order, shape: Shape, jobs: Sequence[Job], feed: Feed, fault: Fault
) -> None:
    """The head at once, and an event for each token when it comes."""
    await exchange.open(200)
    number = 0
    async with aclosing(_events(order, shape, jobs, feed)) as events:
        async for data in events:
            if await fault.before(exchange, number):
                return
            await exchange.send(data)
            number += 1
    await exchange.end()


async def _events(
    order: Order, shape: Shape, jobs: Sequence[Job], feed: Feed
) -> AsyncGenerator[bytes, None]:
    for chunk in shape.early(order):
        yield shape.frame(chunk)
    opened = False
    async for token in feed:
        if not opened:
            for chunk in shape.opening(order):
                yield shape.frame(chunk)
            opened = True
        yield shape.frame(shape.event(order, feed.choice, token))
    for chunk in shape.closing(order, jobs):
        yield shape.frame(chunk)
    if shape.done:
        yield shape.done


def _room(body: Mapping[str, Any], prompt: int, limit: int) -> int:
    """Output tokens that fit and that the client wants; `Refused` where none fits."""
    if prompt >= limit:
        raise problems.too_long(limit)
    wanted = problems.output_limit(body)
    return min(limit - prompt, limit if wanted is None else wanted)


def _prompts(prompt: Any) -> list[tuple[str, int]]:
    """Each prompt's text and tokens: a text, token numbers, or a list of either."""
    if isinstance(prompt, str):
        return [(prompt, max(1, tokens.count(prompt)))]
    if isinstance(prompt, list) and prompt and all(type(entry) is int for entry in prompt):
        return [(" ".join(map(str, prompt)), len(prompt))]
    if isinstance(prompt, list) and prompt and all(isinstance(one, str | list) for one in prompt):
        return [pair for entry in prompt for pair in _prompts(entry)]
    raise problems.bad_prompt(prompt)


def _order(
    request: Recorded,
    body: Mapping[str, Any],
    writer: Writer,
    kind: str,
    drafts: Sequence[Draft],
    prompts: Sequence[int],
    prompt_tokens: int,
) -> Order:
    name = request.header("x-request-id") or body.get("request_id") or uuid4().hex[:16]
    options = body.get("stream_options") or {}
    rank = request.header("x-vllm-priority") or ""
    return Order(
        id=f"{kind}-{name}",
        model=writer.model,
        created=int(time.time()),
        drafts=tuple(drafts),
        prompts=tuple(prompts),
        prompt_tokens=prompt_tokens,
        stream=bool(body.get("stream")),
        include_usage=bool(options.get("include_usage")),
        continuous_usage=bool(options.get("continuous_usage_stats")),
        priority=int(rank) if _INTEGER.fullmatch(rank) else body.get("priority") or 0,
    )


def _load_header(exchange: Exchange, engine: Engine) -> Headers:
    """The ORCA header, where the request asks for it."""
    wanted = exchange.request.header("endpoint-load-metrics-format")
    gauges = engine.gauges
    named = {
        "num_requests_waiting": float(gauges.waiting),
        "kv_cache_usage_perc": gauges.kv_usage,
    }
    if wanted == "json":
        told = "JSON " + json.dumps({"named_metrics": named})
    elif wanted == "text":
        told = "TEXT " + ", ".join(f"named_metrics.{name}={value}" for name, value in named.items())
    else:
        return ()
    return (("endpoint-load-metrics", told),)
