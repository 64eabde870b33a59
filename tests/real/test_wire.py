"""The fake that the other tests use says on the wire what the real server says: equal statuses,
equal fields in equal order, equal types, and the same kinds of events in a stream."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.real.servers import Vllm
from tier_router.testing import FakeVllm

SAY = [{"role": "user", "content": "Say something."}]
TOOL = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}},
}
TOOLS = {
    "tools": [TOOL],
    "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
    "chat_template_kwargs": {"enable_thinking": False},
}
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
STREAM = {"stream": True, "stream_options": {"include_usage": True}}

CASES: dict[str, tuple[str, Any]] = {
    "chat": (CHAT, {"model": "light", "messages": SAY, "max_tokens": 4}),
    "two choices": (CHAT, {"model": "light", "messages": SAY, "max_tokens": 3, "n": 2}),
    "stream": (CHAT, {"model": "light", "messages": SAY, "max_tokens": 4, **STREAM}),
    "text": (TEXT, {"model": "light", "prompt": "Once", "max_tokens": 4}),
    "text stream": (TEXT, {"model": "light", "prompt": "Once", "max_tokens": 3, **STREAM}),
    "another model": (CHAT, {"model": "nope", "messages": SAY}),
    "no messages": (CHAT, {"model": "light"}),
    "empty messages": (CHAT, {"model": "light", "messages": []}),
    "too long": (
        CHAT,
        {"model": "light", "messages": [{"role": "user", "content": "a b " * 9000}]},
    ),
    "too much wanted": (CHAT, {"model": "light", "messages": SAY, "max_tokens": 1_000_000}),
    "a negative limit": (CHAT, {"model": "light", "messages": SAY, "max_tokens": -1}),
    "a temperature": (CHAT, {"model": "light", "messages": SAY, "temperature": -1}),
    "no JSON": (CHAT, b"{"),
    "a named tool": (CHAT, {"model": "light", "messages": SAY, "max_tokens": 60, **TOOLS}),
    "tokenize": ("/tokenize", {"model": "light", "messages": SAY}),
    "tokenize text": ("/tokenize", {"model": "light", "prompt": "Once upon"}),
    "a path": ("/v1/nothing", {}),
}
"""By name: path and body."""

READ = ("/v1/models", "/load", "/version", "/health")


@pytest.fixture
async def fake() -> AsyncIterator[FakeVllm]:
    async with FakeVllm("light", max_model_len=2048) as server:
        yield server


async def said(url: str, path: str, body: Any = None) -> tuple[int, str, Any]:
    """(status, media type, shape of the body)."""
    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as http:
        if body is None:
            answer = await http.get(path)
        else:
            raw = body if isinstance(body, bytes) else json.dumps(body).encode()
            headers = {"content-type": "application/json"}
            answer = await http.post(path, content=raw, headers=headers)
    kind = answer.headers.get("content-type", "").partition(";")[0]
    if kind == "text/event-stream":
        return answer.status_code, kind, events(answer.text)
    return answer.status_code, kind, shape(json.loads(answer.text)) if answer.text else ""


def events(text: str) -> list[Any]:
    """The shapes of a stream's events, each kind once, in the order in which it comes."""
    assert text.endswith("data: [DONE]\n\n")
    found: list[Any] = []
    for line in text.split("\n\n")[:-2]:
        one = shape(json.loads(line.removeprefix("data: ")))
        if one not in found:
            found.append(one)
    return found


def shape(value: Any) -> Any:
    """Fields in order with the types of their values; texts that may be absent are all one type,
    since which of them a model with random weights fills is chance."""
    if isinstance(value, dict):
        if value.keys() <= {"content", "reasoning"}:
            return ANY  # a piece of an answer, or of a thought
        return {
            name: ANY if name in FREE else shape(each)
            for name, each in value.items()
            if name != "tool_calls"  # whether random weights come to call one is chance too
        }
    if isinstance(value, list):
        return [shape(each) for each in value[:1]]
    return "number" if isinstance(value, int | float) else type(value).__name__


FREE = frozenset({"content", "reasoning", "finish_reason", "stop_reason"})
ANY = "any"


@pytest.mark.parametrize("name", CASES)
async def test_answers_have_the_shape_of_the_real_ones(
    flagged: Vllm, fake: FakeVllm, name: str
) -> None:
    path, body = CASES[name]
    assert await said(fake.url, path, body) == await said(flagged.url, path, body)


@pytest.mark.parametrize("path", READ)
async def test_what_is_read_has_the_shape_of_the_real_ones(
    flagged: Vllm, fake: FakeVllm, path: str
) -> None:
    assert await said(fake.url, path) == await said(flagged.url, path)


async def test_metrics_that_are_read_have_the_real_names(flagged: Vllm, fake: FakeVllm) -> None:
    async def names(url: str) -> set[str]:
        async with httpx.AsyncClient(trust_env=False) as http:
            text = (await http.get(f"{url}/metrics")).text
        return {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE vllm:")}

    mine = await names(fake.url)
    assert {"vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"} <= mine
    assert mine <= await names(flagged.url)
