"""`/v1/messages`, for Anthropic's clients."""

import json
from typing import Any

import anthropic
import pytest

from tests.sidecar.scripted import HEAD, LAST, chunk, json_answer, says, scripted
from tier_router.testing import FakeVllm, faults

MESSAGES = "/v1/messages"


def client_of(stage: Any, key: str = "none") -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=stage.sidecar.url, api_key=key, max_retries=0)


def asking(text: str, **more: Any) -> Any:
    messages = [{"role": "user", "content": text}]
    return {"model": "auto", "max_tokens": 50, "messages": messages, **more}


async def test_the_python_client(stage: Any) -> None:
    await stage.serve()
    async with client_of(stage) as client:
        told = await client.messages.create(**asking("hello", system="be brief"))
        assert told.content[0].text.startswith("m8 answers:")
        assert told.usage.output_tokens > 0
        counted = await client.messages.count_tokens(
            model="auto", messages=[{"role": "user", "content": "hello there"}]
        )
        assert counted.input_tokens > 0


async def test_the_python_client_streaming(stage: Any) -> None:
    await stage.serve()
    async with client_of(stage) as client, client.messages.stream(**asking("prove it")) as stream:
        text = "".join([piece async for piece in stream.text_stream])
        last = await stream.get_final_message()
    assert stream.response.headers["x-tier-router-tier"] == "heavy"
    assert text == last.content[0].text
    assert last.stop_reason == "max_tokens"
    assert last.usage.output_tokens == 50


async def test_errors_of_ours_have_anthropics_shape(stage: Any) -> None:
    await stage.serve()
    async with client_of(stage) as client:
        with pytest.raises(anthropic.NotFoundError) as missing:
            await client.messages.create(**asking("x", model="nope"))
        told = missing.value.body
        assert told["type"] == "error"
        assert told["error"]["type"] == "not_found_error"
        assert "auto, light, heavy" in told["error"]["message"]
        assert told["request_id"] == missing.value.response.headers["x-request-id"]
        for fake in stage.fakes:
            fake.faults.add(faults.BUSY, times=None)
        with pytest.raises(anthropic.InternalServerError) as busy:
            await client.messages.create(**asking("x"))
        assert busy.value.body["error"]["type"] == "overloaded_error"
        assert "light-0" in busy.value.body["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "kind"),
    [
        ("POST", MESSAGES, b"{", 400, "invalid_request_error"),
        ("POST", MESSAGES, b'{"max_tokens": 5}', 400, "invalid_request_error"),
        ("POST", f"{MESSAGES}/count_tokens", b"[]", 400, "invalid_request_error"),
        ("POST", f"{MESSAGES}/nope", b"{}", 404, "not_found_error"),
        ("POST", f"{MESSAGES}?beta=true", b"[]", 400, "invalid_request_error"),
        ("GET", MESSAGES, b"", 405, "invalid_request_error"),
        ("POST", MESSAGES, b" " * 20_000, 413, "request_too_large"),
    ],
)
async def test_bad_requests(
    stage: Any, method: str, path: str, body: bytes, status: int, kind: str
) -> None:
    http = await stage.serve(server={"body_limit": "10KB"})
    answer = await http.request(method, path, content=body)
    assert answer.status_code == status
    assert answer.json()["type"] == "error"
    assert answer.json()["error"]["type"] == kind


async def test_the_query_goes_along(stage: Any) -> None:
    http = await stage.serve()
    await http.post(f"{MESSAGES}?beta=true", json=asking("hello"))
    assert [r.path for fake in stage.light for r in fake.requests] == [f"{MESSAGES}?beta=true"]


async def test_an_x_api_key_is_the_sidecars_key_and_stays_here(stage: Any) -> None:
    await stage.serve(server={"api_keys": ["ours"]})
    async with client_of(stage, "wrong") as client:
        with pytest.raises(anthropic.AuthenticationError) as wrong:
            await client.messages.create(**asking("hello"))
        assert wrong.value.body["error"]["type"] == "authentication_error"
    async with client_of(stage, "ours") as client:
        await client.messages.create(**asking("hello"))
    sent = [dict(request.headers) for fake in stage.light for request in fake.requests]
    assert len(sent) == 1
    assert not sent[0].keys() & {"x-api-key", "authorization"}
    assert sent[0]["anthropic-version"]


async def test_a_replicas_key_is_sent_as_vllm_reads_it(stage: Any) -> None:
    await stage.serve(server={"api_keys": ["ours"]})
    async with FakeVllm("m8", api_key="theirs") as locked:
        config = stage.config()
        tier = {"name": "light", "model": "m8", "replicas": [locked.url], "api_key": "theirs"}
        await stage.sidecar.reload(stage.config(tiers=[tier], server=config.server.model_dump()))
        async with client_of(stage, "none") as client:
            assert (await client.messages.create(**asking("hello"))).content
    assert dict(locked.requests[0].headers)["authorization"] == "Bearer theirs"


async def test_without_keys_of_ours_the_clients_own_reaches_vllm(stage: Any) -> None:
    async with FakeVllm("m8", api_key="theirs") as locked:
        await stage.serve(tiers=[{"name": "light", "model": "m8", "replicas": [locked.url]}])
        async with client_of(stage, "theirs") as client:
            assert (await client.messages.create(**asking("hello"))).content
        async with client_of(stage, "wrong") as client:
            with pytest.raises(anthropic.AuthenticationError):
                await client.messages.create(**asking("hello"))


async def test_an_error_event_before_the_message_begins_goes_to_another_replica(stage: Any) -> None:
    error = b'event: error\ndata: {"type":"error","error":{"type":"internal_error"}}\n\n'
    async with scripted(says(HEAD, chunk(error), LAST)) as broken:
        urls = [broken.url, stage.heavy.url]
        tiers = [
            {"name": name, "model": "m70", "replicas": [url]}
            for name, url in zip(("light", "heavy"), urls, strict=True)
        ]
        http = await stage.serve(tiers=tiers)
        answer = await http.post(MESSAGES, json=asking("hello", stream=True))
    assert broken.asked
    assert answer.headers["x-tier-router-tier"] == "heavy"
    assert "event: error" not in answer.text


async def test_an_error_event_in_a_message_that_began_is_passed_and_counted(stage: Any) -> None:
    start = b'event: message_start\ndata: {"type":"message_start","message":{}}\n\n'
    error = b'event: error\ndata: {"type":"error","error":{"type":"internal_error"}}\n\n'
    async with scripted(says(HEAD, chunk(start), chunk(error), LAST, pause=0.02)) as broken:
        http = await stage.serve(tiers=[{"name": "t", "model": "m", "replicas": [broken.url]}])
        answer = await http.post(MESSAGES, json=asking("hello", stream=True))
        assert answer.content == start + error
        line = 'tier_router_attempts_total{outcome="failed",replica="t-0",tier="t"} 1.0'
        assert line in (await http.get("/metrics")).text


async def test_a_replicas_error_in_openais_shape_comes_in_anthropics(stage: Any) -> None:
    refusal = {"error": {"message": "1 validation error: messages.0", "type": "Bad Request"}}
    body = json.dumps(refusal).encode()
    async with scripted(says(json_answer(body, b"400 Bad Request"))) as replica:
        http = await stage.serve(tiers=[{"name": "t", "model": "m", "replicas": [replica.url]}])
        answer = await http.post(MESSAGES, json=asking("hello"))
        as_it_came = await http.post("/v1/chat/completions", json=asking("hello"))
    assert (answer.status_code, as_it_came.status_code) == (400, 400)
    told = {"type": "invalid_request_error", "message": "1 validation error: messages.0"}
    assert answer.json() == {"type": "error", "error": told}
    assert as_it_came.json() == refusal


@pytest.mark.parametrize("cut", [1, 6, 13])
async def test_an_error_event_that_comes_in_two_pieces_is_counted_too(stage: Any, cut: int) -> None:
    start = b'event: message_start\ndata: {"type":"message_start","message":{}}\n'
    error = b'\nevent: error\ndata: {"type":"error","error":{"type":"internal_error"}}\n\n'
    whole = chunk(start + error)
    edge = whole.index(b"\nevent: error") + cut
    async with scripted(says(HEAD + whole[:edge], whole[edge:], LAST, pause=0.05)) as broken:
        http = await stage.serve(tiers=[{"name": "t", "model": "m", "replicas": [broken.url]}])
        answer = await http.post(MESSAGES, json=asking("hello", stream=True))
        assert answer.content == start + error
        line = 'tier_router_attempts_total{outcome="failed",replica="t-0",tier="t"} 1.0'
        assert line in (await http.get("/metrics")).text


async def test_a_replica_of_another_model_is_left_in_anthropics_shape_too(stage: Any) -> None:
    await stage.serve()
    light = stage.light[0]
    async with FakeVllm("other") as other:
        tiers = [{"name": "light", "model": "m8", "replicas": [other.url, light.url]}]
        await stage.sidecar.reload(stage.config(tiers=tiers))
        for _ in range(3):
            body = json.dumps(asking("hello"))
            answer = await stage.http.post(MESSAGES, content=body)
            assert answer.headers["x-tier-router-replica"] == "light-1"
