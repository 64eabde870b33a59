# ruff: noqa: E501 (captured lines are as long as they were)
"""Answers against what vLLM 0.32.0 said on the wire: same fields, same order, same SSE."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tier_router.testing import FakeVllm

# Captured from vLLM 0.32.0 with --enable-per-request-metrics, --enable-prompt-tokens-details and
# --enable-request-id-headers.
CHAT = (
    '{"id":"chatcmpl-abc-1","object":"chat.completion","created":1796094855,"model":"light",'
    '"choices":[{"index":0,"message":{"role":"assistant","content":null,"refusal":null,'
    '"annotations":null,"audio":null,"function_call":null,"reasoning":"exe0063 addedannotations '
    'respon"},"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null,'
    '"routed_experts":null}],"service_tier":null,"system_fingerprint":"vllm-0.32.0-c4d9044f",'
    '"usage":{"prompt_tokens":11,"total_tokens":16,"completion_tokens":5,"prompt_tokens_details":'
    '{"cached_tokens":0,"created_cache_tokens":0,"multimodal_tokens":null},'
    '"completion_tokens_details":{"reasoning_tokens":5}},"prompt_logprobs":null,'
    '"prompt_token_ids":null,"prompt_text":null,"kv_transfer_params":null,'
    '"ec_transfer_params":null,"metrics":{"time_to_first_token_ms":40.4,'
    '"generation_time_ms":15.1,"queue_time_ms":0.03,"mean_itl_ms":3.7,"tokens_per_second":90.0,'
    '"speculative_decoding":null}}'
)
STREAM_USAGE = """\
data: {"id":"chatcmpl-813832cbc1f41d25","object":"chat.completion.chunk","created":1796094855,"model":"light","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null,"prompt_text":null}

data: {"id":"chatcmpl-813832cbc1f41d25","object":"chat.completion.chunk","created":1796094855,"model":"light","choices":[{"index":0,"delta":{"reasoning":"DEBUG"},"logprobs":null,"finish_reason":null,"token_ids":null}]}

data: {"id":"chatcmpl-813832cbc1f41d25","object":"chat.completion.chunk","created":1796094855,"model":"light","choices":[{"index":0,"delta":{"reasoning":"posix"},"logprobs":null,"finish_reason":null,"token_ids":null}]}

data: {"id":"chatcmpl-813832cbc1f41d25","object":"chat.completion.chunk","created":1796094855,"model":"light","choices":[{"index":0,"delta":{"reasoning":"String"},"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null}]}

data: {"id":"chatcmpl-813832cbc1f41d25","object":"chat.completion.chunk","created":1796094855,"model":"light","choices":[],"usage":{"prompt_tokens":11,"total_tokens":14,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":0,"created_cache_tokens":0},"completion_tokens_details":{"reasoning_tokens":3}},"system_fingerprint":"vllm-0.32.0-c4d9044f","metrics":{"time_to_first_token_ms":2.9,"generation_time_ms":5.0,"queue_time_ms":0.01,"mean_itl_ms":2.5,"tokens_per_second":375.5}}

data: [DONE]

"""
STREAM_CONTINUOUS = """\
data: {"id":"chatcmpl-ab7d57cd1d59d997","object":"chat.completion.chunk","created":1796094855,"model":"light","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"usage":{"prompt_tokens":11,"total_tokens":11,"completion_tokens":0,"completion_tokens_details":{"reasoning_tokens":0}},"prompt_token_ids":null,"prompt_text":null}

data: {"id":"chatcmpl-ab7d57cd1d59d997","object":"chat.completion.chunk","created":1796094855,"model":"light","choices":[{"index":0,"delta":{"reasoning":"release"},"logprobs":null,"finish_reason":null,"token_ids":null}],"usage":{"prompt_tokens":11,"total_tokens":12,"completion_tokens":1,"completion_tokens_details":{"reasoning_tokens":1}}}

data: {"id":"chatcmpl-ab7d57cd1d59d997","object":"chat.completion.chunk","created":1796094855,"model":"light","choices":[{"index":0,"delta":{"reasoning":"SCRI"},"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null}],"usage":{"prompt_tokens":11,"total_tokens":13,"completion_tokens":2,"completion_tokens_details":{"reasoning_tokens":2}}}

data: {"id":"chatcmpl-ab7d57cd1d59d997","object":"chat.completion.chunk","created":1796094855,"model":"light","choices":[],"usage":{"prompt_tokens":11,"total_tokens":13,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":0,"created_cache_tokens":0},"completion_tokens_details":{"reasoning_tokens":2}},"system_fingerprint":"vllm-0.32.0-c4d9044f","metrics":{"time_to_first_token_ms":5.3,"generation_time_ms":2.5,"queue_time_ms":0.0,"mean_itl_ms":2.5,"tokens_per_second":253.2}}

data: [DONE]

"""
STREAM_TWO = """\
data: {"id":"chatcmpl-a8fdfaeae9546b79","object":"chat.completion.chunk","created":1796094865,"model":"light","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null,"prompt_text":null}

data: {"id":"chatcmpl-a8fdfaeae9546b79","object":"chat.completion.chunk","created":1796094865,"model":"light","choices":[{"index":1,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null,"prompt_text":null}

data: {"id":"chatcmpl-a8fdfaeae9546b79","object":"chat.completion.chunk","created":1796094865,"model":"light","choices":[{"index":0,"delta":{"reasoning":"zero"},"logprobs":null,"finish_reason":null,"token_ids":null}]}

data: {"id":"chatcmpl-a8fdfaeae9546b79","object":"chat.completion.chunk","created":1796094865,"model":"light","choices":[{"index":1,"delta":{"reasoning":"lse"},"logprobs":null,"finish_reason":null,"token_ids":null}]}

data: {"id":"chatcmpl-a8fdfaeae9546b79","object":"chat.completion.chunk","created":1796094865,"model":"light","choices":[{"index":0,"delta":{"reasoning":" text"},"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null}],"system_fingerprint":"vllm-0.32.0-c4d9044f"}

data: {"id":"chatcmpl-a8fdfaeae9546b79","object":"chat.completion.chunk","created":1796094865,"model":"light","choices":[{"index":1,"delta":{"reasoning":"bl"},"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null}],"system_fingerprint":"vllm-0.32.0-c4d9044f"}

data: [DONE]

"""
STREAM_TOOL_START = """\
data: {"id":"chatcmpl-8b493b2d844b2d73","object":"chat.completion.chunk","created":1796094893,"model":"light","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null,"prompt_text":null}

data: {"id":"chatcmpl-8b493b2d844b2d73","object":"chat.completion.chunk","created":1796094893,"model":"light","choices":[{"index":0,"delta":{"content":null,"tool_calls":[{"id":"chatcmpl-tool-ba5b47b636fc8acf","type":"function","index":0,"function":{"name":"get_weather"}}]},"logprobs":null,"finish_reason":null,"token_ids":null}]}

data: {"id":"chatcmpl-8b493b2d844b2d73","object":"chat.completion.chunk","created":1796094893,"model":"light","choices":[{"index":0,"delta":{"content":null,"tool_calls":[{"index":0,"function":{"arguments":"{\\""}}]},"logprobs":null,"finish_reason":null,"token_ids":null}]}

"""
COMPLETION = (
    '{"id":"cmpl-9875579a3fdb6460","object":"text_completion","created":1796094912,"model":"light",'
    '"choices":[{"index":0,"text":"uplic 60ENDED","logprobs":null,"finish_reason":"length",'
    '"stop_reason":null,"token_ids":null,"prompt_logprobs":null,"prompt_token_ids":null,'
    '"routed_experts":null}],"service_tier":null,"system_fingerprint":"vllm-0.32.0-c4d9044f",'
    '"usage":{"prompt_tokens":1,"total_tokens":4,"completion_tokens":3,"prompt_tokens_details":'
    '{"cached_tokens":0,"created_cache_tokens":null,"multimodal_tokens":null},'
    '"completion_tokens_details":null},"kv_transfer_params":null,"ec_transfer_params":null,'
    '"metrics":{"time_to_first_token_ms":6.7,"generation_time_ms":6.4,"queue_time_ms":0.1,'
    '"mean_itl_ms":3.2,"tokens_per_second":227.3,"speculative_decoding":null}}'
)
COMPLETION_STREAM = """\
data: {"id":"cmpl-ac991f3df7318134","object":"text_completion","created":1796094912,"model":"light","choices":[{"index":0,"text":" BACK","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]}

data: {"id":"cmpl-ac991f3df7318134","object":"text_completion","created":1796094912,"model":"light","choices":[{"index":0,"text":" avoid","logprobs":null,"finish_reason":"length","stop_reason":null,"prompt_token_ids":null,"token_ids":null}]}

data: {"id":"cmpl-ac991f3df7318134","object":"text_completion","created":1796094912,"model":"light","choices":[],"usage":{"prompt_tokens":1,"total_tokens":3,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":0}},"system_fingerprint":"vllm-0.32.0-c4d9044f","metrics":{"time_to_first_token_ms":3.2,"generation_time_ms":2.7,"queue_time_ms":0.0,"mean_itl_ms":2.7,"tokens_per_second":330.6}}

data: [DONE]

"""
MODELS = (
    '{"object":"list","data":[{"id":"light","object":"model","created":1796094855,'
    '"owned_by":"vllm","root":"models/tiny-light","parent":null,"max_model_len":2048,'
    '"permission":[{"id":"modelperm-b5fa56dfcfae0210","object":"model_permission",'
    '"created":1796094855,"allow_create_engine":false,"allow_sampling":true,"allow_logprobs":true,'
    '"allow_search_indices":false,"allow_view":true,"allow_fine_tuning":false,"organization":"*",'
    '"group":null,"is_blocking":false}]}]}'
)

THINK = {"chat_template_kwargs": {"enable_thinking": True}}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def shape(value: Any) -> Any:
    """Fields in order, with the types of their values; what a value must be is told elsewhere."""
    if isinstance(value, dict):
        return [(key, shape(inner)) for key, inner in value.items()]
    if isinstance(value, list):
        return [shape(inner) for inner in value]
    return type(value).__name__


def stream_shape(text: str) -> Any:
    """The shape of each event, and the way it is written."""
    assert text.endswith("\n\n")
    events = text.removesuffix("\n\n").split("\n\n")
    assert all(event.startswith("data: ") for event in events)
    bodies = [event.removeprefix("data: ") for event in events]
    return [body if body == "[DONE]" else shape(json.loads(body)) for body in bodies]


async def streamed(wire: Any, body: dict[str, Any], path: str = "/v1/chat/completions") -> str:
    wire.send({**body, "stream": True}, path)
    status, headers = await wire.head()
    assert status == 200
    assert list(headers) == [
        "date", "server", "content-type", "vary", "x-request-id", "transfer-encoding",
    ]  # fmt: skip
    assert headers["content-type"] == "text/event-stream; charset=utf-8"
    assert (headers["server"], headers["transfer-encoding"]) == ("uvicorn", "chunked")
    chunks = await wire.chunks()
    assert all(chunk.endswith(b"\n\n") and chunk.count(b"data: ") == 1 for chunk in chunks)
    return b"".join(chunks).decode()


async def test_chat(light: FakeVllm, dial: Any, ask: Any) -> None:
    wire = await dial(light)
    wire.send(ask(max_tokens=5, **THINK), headers="X-Request-Id: abc-1\r\n")
    status, headers, body = await wire.answer()
    assert status == 200
    assert list(headers) == [
        "date", "server", "content-length", "content-type", "vary", "x-request-id",
    ]  # fmt: skip
    assert headers["x-request-id"] == "abc-1"
    assert shape(json.loads(body)) == shape(json.loads(CHAT))
    assert json.loads(body)["id"] == "chatcmpl-abc-1"
    assert b": " not in body.replace(b"thinks:", b"")


@pytest.mark.parametrize(
    ("more", "captured"),
    [
        ({"max_tokens": 3, "stream_options": {"include_usage": True}}, STREAM_USAGE),
        (
            {
                "max_tokens": 2,
                "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            },
            STREAM_CONTINUOUS,
        ),
        ({"max_tokens": 2, "n": 2}, STREAM_TWO),
    ],
)
async def test_chat_streams(
    light: FakeVllm, dial: Any, ask: Any, more: dict[str, Any], captured: str
) -> None:
    text = await streamed(await dial(light), ask(**more, **THINK))
    assert stream_shape(text) == stream_shape(captured)


async def test_content_comes_where_reasoning_came(light: FakeVllm, dial: Any, ask: Any) -> None:
    text = await streamed(await dial(light), ask(max_tokens=3))
    assert (
        '"delta":{"content":"ligh"},"logprobs":null,"finish_reason":null,"token_ids":null' in text
    )
    assert text.count('"system_fingerprint"') == 1


async def test_tool_calls(light: FakeVllm, dial: Any, ask: Any) -> None:
    wire = await dial(light)
    text = await streamed(wire, ask(tools=[WEATHER]))
    begin = "".join(text.partition("\n\n")[:2]) + "\n\n".join(text.split("\n\n")[1:3]) + "\n\n"
    assert stream_shape(begin) == stream_shape(STREAM_TOOL_START)
    assert '"finish_reason":"tool_calls"' in text
    wire.send(ask(tools=[WEATHER]))
    _, _, body = await wire.answer()
    message = json.loads(body)["choices"][0]["message"]
    assert list(message) == [
        "role", "content", "refusal", "annotations", "audio", "function_call", "tool_calls",
        "reasoning",
    ]  # fmt: skip
    assert message["tool_calls"][0]["function"] == {
        "name": "get_weather",
        "arguments": '{"city": "text"}',
    }
    turns = [*ask()["messages"], {"role": "tool", "content": "sunny", "tool_call_id": "x"}]
    wire.send({"tools": [WEATHER], "messages": turns})
    _, _, body = await wire.answer()
    assert json.loads(body)["choices"][0]["message"]["content"].startswith("light answers:")


async def test_completions(light: FakeVllm, dial: Any) -> None:
    wire = await dial(light)
    wire.send({"prompt": "once", "max_tokens": 3}, "/v1/completions")
    _, _, body = await wire.answer()
    assert shape(json.loads(body)) == shape(json.loads(COMPLETION))
    usage = {"max_tokens": 2, "stream_options": {"include_usage": True}}
    text = await streamed(wire, {"prompt": "once", **usage}, "/v1/completions")
    assert stream_shape(text) == stream_shape(COMPLETION_STREAM)


@pytest.mark.parametrize(
    ("prompt", "n", "choices", "tokens"),
    [
        ("abcd" * 5, 1, 1, 5),
        ([1, 2, 3], 2, 2, 3),
        (["a", "b" * 8], 1, 2, 3),
        ([[1], [2, 3]], 2, 4, 3),
    ],
)
async def test_prompts_of_all_kinds(
    light: FakeVllm, dial: Any, prompt: Any, n: int, choices: int, tokens: int
) -> None:
    wire = await dial(light)
    wire.send({"prompt": prompt, "n": n, "max_tokens": 2}, "/v1/completions")
    _, _, body = await wire.answer()
    answer = json.loads(body)
    assert [choice["index"] for choice in answer["choices"]] == list(range(choices))
    assert answer["usage"]["prompt_tokens"] == tokens
    assert answer["usage"]["completion_tokens"] == 2 * choices


async def test_the_small_pages(light: FakeVllm, dial: Any) -> None:
    wire = await dial(light)

    async def get(path: str) -> tuple[int, bytes]:
        wire.send(path=path, method="GET")
        status, _, body = await wire.answer()
        return status, body

    assert await get("/health") == await get("/ping") == (200, b"")
    assert await get("/version") == (200, b'{"version":"0.32.0"}')
    assert await get("/load") == (200, b'{"server_load":0}')
    for unknown in ("/", "/v1/models/light", "/server_info", "/v1/embeddings"):
        assert await get(unknown) == (404, b'{"detail":"Not Found"}')
    assert await get("/v1/chat/completions") == (405, b'{"detail":"Method Not Allowed"}')
    _, body = await get("/v1/models")
    assert shape(json.loads(body)["data"][:1]) == shape(json.loads(MODELS)["data"])
    assert [card["id"] for card in json.loads(body)["data"]] == [
        "light",
        "tiny-light",
        "alias-small",
    ]
    assert {card["max_model_len"] for card in json.loads(body)["data"]} == {2048}


async def test_tokenize_counts_as_usage_does(light: FakeVllm, dial: Any, ask: Any) -> None:
    wire = await dial(light)
    wire.send(ask("How many tokens are these?"), "/tokenize")
    _, _, body = await wire.answer()
    counted = json.loads(body)
    assert list(counted) == ["count", "max_model_len", "tokens", "token_strs"]
    assert len(counted["tokens"]) == counted["count"]
    wire.send(ask("How many tokens are these?"))
    _, _, body = await wire.answer()
    assert json.loads(body)["usage"]["prompt_tokens"] == counted["count"]


async def test_load_comes_with_the_answer_where_it_is_asked_for(
    light: FakeVllm, dial: Any, ask: Any
) -> None:
    wire = await dial(light)
    wire.send(ask(), headers="endpoint-load-metrics-format: json\r\n")
    _, headers, _ = await wire.answer()
    assert headers["endpoint-load-metrics"] == (
        'JSON {"named_metrics": {"num_requests_waiting": 0.0, "kv_cache_usage_perc": 0.0}}'
    )
