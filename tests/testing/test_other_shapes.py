# ruff: noqa: E501 (captured lines are as long as they were)
"""Responses, messages, tokens and embeddings against what vLLM 0.32.0 said on the wire."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tier_router.testing import FakeVllm, Flags

RESPONSE = '{"id":"resp_9c3efb206638b840","created_at":1796094912,"incomplete_details":{"reason":"max_output_tokens"},"instructions":null,"metadata":null,"model":"light","object":"response","output":[],"parallel_tool_calls":true,"temperature":0.7,"tool_choice":"none","tools":[],"top_p":0.9,"background":false,"max_output_tokens":4,"max_tool_calls":null,"previous_response_id":null,"prompt":null,"reasoning":null,"service_tier":"auto","status":"incomplete","text":null,"top_logprobs":null,"truncation":"disabled","usage":{},"user":null}'
MESSAGE_EVENTS = [
    '{"type":"message_start","message":{"id":"chatcmpl-9195d19602f86b59","type":"message","role":"assistant","content":[],"model":"light","stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":11,"output_tokens":0}}}',
    '{"type":"content_block_stop","index":0}',
    '{"type":"message_delta","delta":{"stop_reason":"max_tokens","stop_sequence":null},"usage":{"input_tokens":11,"output_tokens":3,"cache_creation_input_tokens":0,"cache_read_input_tokens":0}}',
    '{"type":"message_stop"}',
]
RESPONSE_ITEM = '{"id":"msg_b56783ee324e23ec","content":[{"annotations":[],"text":" quote","type":"output_text","logprobs":null}],"role":"assistant","status":"completed","type":"message","phase":null}'
RESPONSE_PARTS = {
    "response.output_item.added": '{"item":{"id":"msg_b5827385af4100f3","content":[],"role":"assistant","status":"in_progress","type":"message","phase":null},"output_index":0,"sequence_number":2,"type":"response.output_item.added"}',
    "response.content_part.added": '{"content_index":0,"item_id":"msg_b5827385af4100f3","output_index":0,"part":{"annotations":[],"text":"","type":"output_text","logprobs":[]},"sequence_number":3,"type":"response.content_part.added"}',
    "response.output_text.delta": '{"content_index":0,"delta":"uess","item_id":"msg_b5827385af4100f3","logprobs":[],"output_index":0,"sequence_number":4,"type":"response.output_text.delta"}',
    "response.output_text.done": '{"content_index":0,"item_id":"msg_b5827385af4100f3","logprobs":[],"output_index":0,"sequence_number":6,"text":"uess(re","type":"response.output_text.done"}',
    "response.content_part.done": '{"content_index":0,"item_id":"msg_b5827385af4100f3","output_index":0,"part":{"annotations":[],"text":"uess(re","type":"output_text","logprobs":null},"sequence_number":7,"type":"response.content_part.done"}',
    "response.output_item.done": '{"item":{"id":"msg_b5827385af4100f3","content":[{"annotations":[],"text":"uess(re","type":"output_text","logprobs":null}],"role":"assistant","status":"completed","type":"message","phase":null},"output_index":0,"sequence_number":8,"type":"response.output_item.done"}',
}
RESPONSE_EVENTS = [
    "response.created", "response.in_progress", "response.output_item.added",
    "response.content_part.added", "response.output_text.delta", "response.output_text.delta",
    "response.output_text.delta", "response.output_text.done", "response.content_part.done",
    "response.output_item.done", "response.completed",
]  # fmt: skip


async def post(fake: FakeVllm, path: str, body: Any, **more: Any) -> httpx.Response:
    async with httpx.AsyncClient(base_url=fake.url, trust_env=False) as http:
        return await http.post(path, json=body, **more)


async def get(fake: FakeVllm, path: str) -> httpx.Response:
    async with httpx.AsyncClient(base_url=fake.url, trust_env=False) as http:
        return await http.get(path)


def shape(value: Any) -> Any:
    """Names in their order and kinds of values; of lists the first entry."""
    if isinstance(value, dict):
        return [(name, shape(each)) for name, each in value.items()]
    if isinstance(value, list):
        return [shape(each) for each in value[:1]]
    return type(value).__name__


def events(text: str) -> list[Any]:
    """The events of a stream; each has its type as its name."""
    found = []
    for block in text.strip().split("\n\n"):
        name, data = block.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


async def test_a_response() -> None:
    async with FakeVllm("light") as fake:
        told = (
            await post(fake, "/v1/responses", {"input": "hello", "max_output_tokens": 4})
        ).json()
    captured = json.loads(RESPONSE)
    assert list(told) == list(captured)
    assert shape(told["output"]) == [shape(json.loads(RESPONSE_ITEM))]
    told |= {"output": [], "usage": {}}
    assert shape(told) == shape(captured)
    assert told["id"].startswith("resp_")


async def test_a_responses_stream_begins_before_anything_is_computed() -> None:
    body = {"input": "hello", "max_output_tokens": 3, "stream": True}
    async with FakeVllm("light") as fake:
        told = events((await post(fake, "/v1/responses", body)).text)
    assert [event["type"] for event in told] == RESPONSE_EVENTS
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    assert list(told[0]) == ["response", "sequence_number", "type"]
    by_type = {event["type"]: event for event in told}
    for kind, captured in RESPONSE_PARTS.items():
        assert shape(by_type[kind]) == shape(json.loads(captured))
    deltas = "".join(event["delta"] for event in told if "delta" in event)
    assert told[-1]["response"]["output"][0]["content"][0]["text"] == deltas


async def test_stored_responses() -> None:
    async with FakeVllm("light", answer=lambda body: str(len(body["messages"]))) as fake:
        first = (await post(fake, "/v1/responses", {"input": "a", "request_id": "resp_a"})).json()
        assert first["id"] == "resp_a"
        body = {"input": "b", "instructions": "c", "previous_response_id": "resp_a"}
        second = (await post(fake, "/v1/responses", body)).json()
        assert second["output"][0]["content"][0]["text"] == "4"
        assert (await get(fake, f"/v1/responses/{second['id']}")).json() == second
        unstored = (await post(fake, "/v1/responses", {"input": "a", "store": False})).json()
        missing = await get(fake, f"/v1/responses/{unstored['id']}")
        assert missing.status_code == 404
        cancelled = await post(fake, "/v1/responses/resp_a/cancel", {})
        assert cancelled.status_code == 400
    error = missing.json()["error"]
    assert error["message"] == f"Response with id '{unstored['id']}' not found."
    assert (error["type"], error["param"]) == ("invalid_request_error", "response_id")


async def test_without_a_store() -> None:
    async with FakeVllm("light", flags=Flags(response_store=False)) as fake:
        told = (await post(fake, "/v1/responses", {"input": "a"})).json()
        assert (await get(fake, f"/v1/responses/{told['id']}")).status_code == 404
        refused = await post(fake, "/v1/responses", {"input": "a", "background": True})
    assert refused.status_code == 400
    assert "VLLM_ENABLE_RESPONSES_API_STORE=1" in refused.json()["error"]["message"]


async def test_a_message() -> None:
    asked = [{"role": "user", "content": "hello"}]
    body = {"model": "light", "messages": asked, "max_tokens": 4}
    async with FakeVllm("light") as fake:
        told = (await post(fake, "/v1/messages", body)).json()
        stream = events((await post(fake, "/v1/messages", {**body, "stream": True})).text)
        counted = (await post(fake, "/v1/messages/count_tokens", body)).json()
    assert list(told) == ["id", "type", "role", "content", "model", "stop_reason", "usage"]
    assert told["stop_reason"] == "max_tokens"
    kept = [stream[0], *stream[-3:]]
    assert [shape(event) for event in kept] == [shape(json.loads(each)) for each in MESSAGE_EVENTS]
    assert list(counted) == ["input_tokens", "context_management"]
    assert counted["input_tokens"] == told["usage"]["input_tokens"]


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        ({"messages": [{"role": "user", "content": "x"}], "max_tokens": 4, "model": "nope"}, 404, {"type": "error", "error": {
            "type": "NotFoundError",
            "message": "The model `nope` does not exist. Valid aliases: light."}}),
        ({"messages": [], "model": "light"}, 400, {"error": {"message":
            "1 validation error:\n  {'type': 'missing', 'loc': 'body.max_tokens', 'msg': "
            "'Field required', 'input': '<dict of 2 items>'}",
            "type": "Bad Request", "param": "body.max_tokens", "code": 400}}),
    ],
)  # fmt: skip
async def test_errors_of_messages_have_two_shapes(body: Any, status: int, told: Any) -> None:
    async with FakeVllm("light") as fake:
        answer = await post(fake, "/v1/messages", body)
    assert (answer.status_code, answer.json()) == (status, told)


async def test_the_two_runners_have_other_paths() -> None:
    async with FakeVllm("light") as fake, FakeVllm("bge", pooling=True) as pooling:
        chat = {"messages": [{"role": "user", "content": "x"}]}
        for one, path, body in (
            (fake, "/v1/embeddings", {"input": "x"}),
            (pooling, "/v1/chat/completions", chat),
            (pooling, "/v1/responses/x", {}),
        ):
            answer = await post(one, path, body)
            assert (answer.status_code, answer.json()) == (404, {"detail": "Not Found"})
        for path in ("/health", "/load", "/metrics", "/version", "/v1/models"):
            assert (await get(pooling, path)).status_code == 200


async def test_detokenize_gives_a_text() -> None:
    async with FakeVllm("light") as fake:
        answer = await post(fake, "/detokenize", {"tokens": [1, 2]})
        refused = await post(fake, "/detokenize", {})
    assert answer.json() == {"prompt": "t1 t2"}
    assert refused.json()["error"]["param"] == "body.tokens"
