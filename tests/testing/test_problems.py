# ruff: noqa: E501 (captured lines are as long as they were)
"""Requests that vLLM refuses, and the very bytes it refuses them with (0.32.0)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tier_router.testing import FakeVllm, Speed

USER = [{"role": "user", "content": "hi"}]

CASES = {
    "unknown model": (
        {"model": "nope", "messages": USER},
        404,
        '{"error":{"message":"The model `nope` does not exist. Valid aliases: light, tiny-light, '
        'alias-small.","type":"NotFoundError","param":"model","code":404}}',
    ),
    "array": (
        [],
        400,
        "{\"error\":{\"message\":\"1 validation error:\\n  {'type': 'model_attributes_type', 'loc': "
        "'body', 'msg': 'Input should be a valid dictionary or object to extract fields from', "
        "'input': '<list of 0 items>'}\",\"type\":\"Bad Request\",\"param\":\"body\",\"code\":400}}",
    ),
    "no messages": (
        {"model": "light"},
        400,
        "{\"error\":{\"message\":\"1 validation error:\\n  {'type': 'missing', 'loc': "
        "'body.messages', 'msg': 'Field required', 'input': '<dict of 1 items>'}\",\"type\":"
        "\"Bad Request\",\"param\":\"body.messages\",\"code\":400}}",
    ),
    "messages of a wrong type": (
        {"model": "light", "messages": "x"},
        400,
        "{\"error\":{\"message\":\"1 validation error:\\n  {'type': 'list_type', 'loc': "
        "'body.messages', 'msg': 'Input should be a valid list', 'input': 'x'}\",\"type\":"
        "\"Bad Request\",\"param\":\"body.messages\",\"code\":400}}",
    ),
    "no message": (
        {"model": "light", "messages": []},
        400,
        '{"error":{"message":"Cannot apply chat template to an empty conversation. Provide at least '
        'one message.","type":"BadRequestError","param":null,"code":400}}',
    ),
    "max_tokens of a wrong type": (
        {"messages": USER, "max_tokens": "many"},
        400,
        "{\"error\":{\"message\":\"1 validation error:\\n  {'type': 'int_parsing', 'loc': "
        "'body.max_tokens', 'msg': 'Input should be a valid integer, unable to parse string as an "
        "integer', 'input': 'many'}\",\"type\":\"Bad Request\",\"param\":\"body.max_tokens\","
        "\"code\":400}}",
    ),
    "max_tokens below one": (
        {"messages": USER, "max_tokens": -1},
        400,
        '{"error":{"message":"max_tokens must be at least 1, got -1. (parameter=max_tokens, '
        'value=-1)","type":"BadRequestError","param":"max_tokens","code":400}}',
    ),
    "max_tokens over the context": (
        {"messages": USER, "max_tokens": 5000},
        400,
        '{"error":{"message":"max_tokens=5000 cannot be greater than max_model_len=2048. Please '
        'request fewer output tokens. (parameter=max_tokens, value=5000)","type":"BadRequestError",'
        '"param":"max_tokens","code":400}}',
    ),
    "hot": (
        {"messages": USER, "temperature": 5},
        400,
        '{"error":{"message":"temperature must be in [0, 2], got 5.0. (parameter=temperature, '
        'value=5.0)","type":"BadRequestError","param":"temperature","code":400}}',
    ),
    "no choices": (
        {"messages": USER, "n": 0},
        400,
        '{"error":{"message":"n must be at least 1, got 0.","type":"BadRequestError","param":null,'
        '"code":400}}',
    ),
    "too long": (
        {"messages": [{"role": "user", "content": "x " * 20_000}], "stream": True},
        400,
        '{"error":{"message":"This model\'s maximum context length is 2048 tokens. However, your '
        "prompt contains at least 2049 input tokens, which exceeds this limit even without any "
        "output tokens. Please reduce the length of the input prompt. (parameter=input_tokens, "
        'value=2049)","type":"BadRequestError","param":"input_tokens","code":400}}',
    ),
    "stream options": (
        {"messages": USER, "stream_options": {"include_usage": True}},
        400,
        '{"error":{"message":"Stream options can only be defined when `stream=True`. '
        '(parameter=stream_options)","type":"BadRequestError","param":"stream_options",'
        '"code":400}}',
    ),
    "tool choice": (
        {"messages": USER, "tool_choice": "auto"},
        400,
        '{"error":{"message":"When using `tool_choice`, `tools` must be set. '
        '(parameter=tool_choice)","type":"BadRequestError","param":"tool_choice","code":400}}',
    ),
    "salt": (
        {"messages": USER, "cache_salt": ""},
        400,
        '{"error":{"message":"Parameter \'cache_salt\' must be a non-empty string if provided. '
        '(parameter=cache_salt)","type":"BadRequestError","param":"cache_salt","code":400}}',
    ),
    "priority": (
        {"messages": USER, "priority": "high"},
        400,
        "{\"error\":{\"message\":\"1 validation error:\\n  {'type': 'int_parsing', 'loc': "
        "'body.priority', 'msg': 'Input should be a valid integer, unable to parse string as an "
        "integer', 'input': 'high'}\",\"type\":\"Bad Request\",\"param\":\"body.priority\","
        "\"code\":400}}",
    ),
    "image": (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        400,
        '{"error":{"message":"light is not a multimodal model","type":"BadRequestError",'
        '"param":null,"code":400}}',
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
async def test_refused_in_the_same_words(light: FakeVllm, dial: Any, case: str) -> None:
    body, status, says = CASES[case]
    wire = await dial(light)
    wire.send(body)
    got, headers, raw = await wire.answer()
    assert (got, raw.decode()) == (status, says)
    assert headers["content-type"] == "application/json"
    assert light.engine.steps == 0
    wire.send({"messages": USER})  # the connection is none the worse
    assert (await wire.answer())[0] == 200


@pytest.mark.parametrize(
    ("raw", "kind", "says"),
    [
        (
            b'{"model": "light", x',
            "application/json",
            "{\"error\":{\"message\":\"1 validation error:\\n  {'type': 'json_invalid', 'loc': "
            "'body.19', 'msg': 'JSON decode error', 'input': '<dict of 0 items>', 'ctx': {'error': "
            "'Expecting property name enclosed in double quotes'}}\",\"type\":\"Bad Request\","
            "\"param\":\"body.19\",\"code\":400}}",
        ),
        (
            b"",
            "application/json",
            "{\"error\":{\"message\":\"1 validation error:\\n  {'type': 'missing', 'loc': 'body', "
            "'msg': 'Field required', 'input': 'None'}\",\"type\":\"Bad Request\",\"param\":"
            "\"body\",\"code\":400}}",
        ),
        (
            b'{"model": "light"}',
            "text/plain",
            '{"error":{"message":"1 validation error:\\n  Unsupported Media Type: Only '
            "'application/json' is allowed\",\"type\":\"Bad Request\",\"param\":null,\"code\":400}}",
        ),
    ],
)  # fmt: skip
async def test_bodies_that_are_no_json(
    light: FakeVllm, dial: Any, raw: bytes, kind: str, says: str
) -> None:
    wire = await dial(light)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\ncontent-type: {kind}\r\n"
    wire.writer.write(f"{head}content-length: {len(raw)}\r\n\r\n".encode() + raw)
    assert (await wire.answer())[::2] == (400, says.encode())
    assert light.requests[0].raw == raw


async def test_what_vllm_takes_is_taken(light: FakeVllm, dial: Any, ask: Any) -> None:
    wire = await dial(light)
    for more in (
        {"model": "alias-small"},
        {"model": None},
        {"max_tokens": 2000, "ignore_eos": False},
        {"max_tokens": 3.0},
        {"max_tokens": "3"},
        {"unheard_of": {"x": 1}},
        {"priority": -1},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]},
        {"stop": None, "tools": None, "stream_options": None},
    ):
        wire.send(ask(**more))
        status, _, body = await wire.answer()
        assert (status, json.loads(body)["model"]) == (200, "light")


async def test_the_newer_output_limit_wins_and_the_context_cuts(
    light: FakeVllm, dial: Any, ask: Any
) -> None:
    wire = await dial(light)
    wire.send(ask(max_tokens=9, max_completion_tokens=3))
    assert json.loads((await wire.answer())[2])["usage"]["completion_tokens"] == 3
    wire.send(ask("x" * 8000, max_tokens=2000, ignore_eos=True))
    usage = json.loads((await wire.answer())[2])["usage"]
    assert usage["total_tokens"] == 2048


async def test_keys(dial: Any, ask: Any) -> None:
    async with FakeVllm("light", api_key="secret") as fake:
        wire = await dial(fake)
        for headers, status in [
            ("", 401),
            ("authorization: Bearer wrong\r\n", 401),
            ("x-api-key: secret\r\n", 401),
            ("Authorization: Bearer secret\r\n", 200),
        ]:
            wire.send(ask(), headers=headers)
            got, _, body = await wire.answer()
            assert got == status
            assert status == 200 or body == b'{"error":"Unauthorized"}'
        for path in ("/health", "/ping", "/load", "/version", "/metrics"):
            wire.send(path=path, method="GET")
            assert (await wire.answer())[0] == 200


async def test_a_full_queue_is_503_and_counts_choices(dial: Any, ask: Any) -> None:
    async with FakeVllm("light", speed=Speed(slots=1, queue=2)) as fake:
        busy, other = await dial(fake), await dial(fake)
        busy.send(ask(max_tokens=1000, ignore_eos=True, stream=True))
        assert (await busy.head())[0] == 200  # at once, before any token
        other.send(ask(n=2, stream=True))
        status, headers, body = await other.answer()
        assert status == 503
        assert "retry-after" not in headers
        assert json.loads(body) == {
            "error": {
                "message": "The engine is currently busy and cannot accept new requests. Please try "
                "again later or on a different instance.",
                "type": "Service Unavailable",
                "param": None,
                "code": 503,
            }
        }
        assert fake.engine.rejected_total == 1
