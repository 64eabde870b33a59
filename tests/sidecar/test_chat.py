"""Chat requests through the sidecar: where they go, and that nothing is lost on the way."""

import asyncio
import gc
import json
from collections.abc import Callable
from typing import Any

import pytest

from tier_router.config import parse
from tier_router.testing import FakeVllm, Speed, faults
from tier_router_proxy.attempt import Attempt
from tier_router_proxy.http.connection import Connection
from tier_router_proxy.http.requests import RequestReader
from tier_router_proxy.relay import Relay
from tier_router_proxy.upstreams import Incoming

CHAT = "/v1/chat/completions"


def chat(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "auto", "messages": [{"role": "user", "content": text}], **more}


def port_of(stage: Any) -> int:
    return int(stage.sidecar.url.rpartition(":")[2])


async def test_an_answer_says_where_it_came_from(stage: Any) -> None:
    await stage.serve()
    easy, hard = await stage.ask("hello"), await stage.ask("prove it")
    assert easy.status_code == hard.status_code == 200
    assert easy.json()["model"] == "m8"
    assert hard.json()["model"] == "m70"
    assert easy.headers["x-tier-router-tier"] == "light"
    assert easy.headers["x-tier-router-replica"] in ("light-0", "light-1")
    assert easy.headers["x-tier-router-reason"] == "easy"
    assert easy.headers["x-tier-router-difficulty"] == "0.100"
    assert hard.headers["x-tier-router-tier"] == "heavy"
    assert hard.headers["x-tier-router-reason"] == "hard"


@pytest.mark.parametrize(
    ("model", "headers", "tier"),
    [
        ("heavy", {}, "heavy"),
        ("m70", {}, "heavy"),
        ("gpt-big", {}, "heavy"),
        ("auto", {"x-tier-router-tier": "heavy"}, "heavy"),
        ("gpt-any", {}, "light"),
    ],
)
async def test_pins(stage: Any, model: str, headers: dict[str, str], tier: str) -> None:
    await stage.serve(aliases={"gpt-big": "heavy", "gpt-any": "auto"})
    answer = await stage.ask("hello", model=model, headers=headers)
    assert answer.headers["x-tier-router-tier"] == tier
    assert answer.headers["x-tier-router-reason"] == ("pinned" if tier == "heavy" else "easy")


async def test_the_body_arrives_untouched_but_for_the_model(stage: Any) -> None:
    http = await stage.serve()
    raw = (
        b'{"seed": 123456789012345678901234567890, "model":"auto", "temperature": 1.0e-2,'
        b'"x_vendor": {"b": [1, 2.50,  null], "a": "\\u00e9\\/"},'
        b'"messages": [ {"role":"user", "content":"hello", "note": 1.10} ] }'
    )
    await http.post(CHAT, content=raw, headers={"content-type": "application/json"})
    sent = next(r for fake in stage.light for r in fake.requests).raw
    assert json.loads(sent) == json.loads(raw) | {"model": "m8"}
    for piece in (
        b"123456789012345678901234567890",
        b"1.0e-2",
        b'{"b": [1, 2.50,  null], "a": "\\u00e9\\/"}',
        b'[ {"role":"user", "content":"hello", "note": 1.10} ]',
    ):
        assert piece in sent, "the very bytes"


async def test_headers_on_the_way_out(stage: Any) -> None:
    await stage.serve()
    given = {
        "x-request-id": "abc-1",
        "traceparent": "00-1-2-03",
        "x-tier-router-tier": "light",
        "authorization": "Bearer clients-own",
        "te": "trailers",
        "connection": "x-secret, keep-alive",
        "x-secret": "1",
    }
    answer = await stage.ask("hello", headers=given)
    assert answer.headers["x-request-id"] == "abc-1"
    sent = dict(next(r for fake in stage.light for r in fake.requests).headers)
    assert sent["x-request-id"] == "abc-1"
    assert sent["traceparent"] == "00-1-2-03"
    assert sent["authorization"] == "Bearer clients-own"
    assert not sent.keys() & {"x-tier-router-tier", "te", "x-secret", "accept-encoding"}


async def test_an_id_is_made_where_none_is_given(stage: Any) -> None:
    await stage.serve()
    ids = {(await stage.ask()).headers["x-request-id"] for _ in range(3)}
    ids.add((await stage.ask(headers={"x-request-id": "bad id!"})).headers["x-request-id"])
    assert len(ids) == 4
    assert all(len(one) == 32 for one in ids)


async def test_tier_defaults_and_key(stage: Any) -> None:
    await stage.serve()
    config = stage.config()
    tier = config.tiers[0].model_copy(update={"defaults": {"max_tokens": 7}})
    await stage.sidecar.reload(config.model_copy(update={"tiers": (tier, *config.tiers[1:])}))
    assert (await stage.ask()).json()["usage"]["completion_tokens"] <= 7


SSE = (
    ": keep-alive\n\n"
    'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\r\n\r\n'
    'event: x\ndata: {"choices":\ndata: [{"delta":{"content":"é日本🙂"}}]}\n\n'
    'data: {"choices":[{"delta":{"content":"0\\r\\n\\r\\n"}}]}\n\n'
    "data: [DONE]\n\n"
).encode()
"""Comments, CRLF, data of several lines, characters of several bytes."""


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10_000])
async def test_a_stream_passes_byte_for_byte(stage: Any, size: int) -> None:
    """Whatever the chunks are and wherever the packets are cut."""
    pieces = [SSE[at : at + size] for at in range(0, len(SSE), size)]
    chunks = [b"%x;ext=1\r\n%s\r\n" % (len(piece), piece) for piece in pieces]
    raw = b"".join(chunks) + b"0\r\nx-trailer: 1\r\n\r\n"
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-own: a\r\n"
        b"transfer-encoding: chunked\r\n\r\n"
    )

    async def upstream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head)
        for at in range(0, len(raw), 11):
            writer.write(raw[at : at + 11])
            await asyncio.sleep(0)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(upstream, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    config = parse(f"tiers: [{{name: t, model: m, replicas: ['{url}']}}]\nserver: {{port: 0}}")
    await stage.serve()
    await stage.sidecar.reload(config)
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(stage))
    body = json.dumps(chat("hello", stream=True)).encode()
    request = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
    writer.write(f"{request}content-length: {len(body)}\r\n\r\n".encode() + body)
    got_head, _, got = (await reader.read()).partition(b"\r\n\r\n")
    assert got == raw
    assert b"x-own: a" in got_head
    assert b"x-tier-router-tier: t" in got_head
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()


async def test_the_first_token_is_not_held_back(stage: Any) -> None:
    slow = await stage.stack.enter_async_context(FakeVllm("m8", speed=Speed(step=0.05)))
    stage.light[:] = [slow]
    http = await stage.serve()
    loop, times = asyncio.get_running_loop(), []
    body = chat("hello", stream=True, max_tokens=8, ignore_eos=True)
    async with http.stream("POST", CHAT, json=body) as answer:
        async for _ in answer.aiter_raw():
            times.append(loop.time())
    assert times[-1] - times[0] > 0.2, "pieces come as they are made"


async def test_several_choices(stage: Any) -> None:
    await stage.serve()
    answer = await stage.ask("hello", n=3, max_tokens=4)
    assert [choice["index"] for choice in answer.json()["choices"]] == [0, 1, 2]


async def test_text_completions_are_routed_too(stage: Any) -> None:
    http = await stage.serve()
    easy = await http.post("/v1/completions", json={"model": "auto", "prompt": "hello"})
    assert easy.json()["object"] == "text_completion"
    assert easy.headers["x-tier-router-tier"] == "light"
    hard = await http.post(
        "/v1/completions", json={"model": "auto", "prompt": "prove it", "stream": True}
    )
    assert hard.headers["x-tier-router-tier"] == "heavy"
    assert hard.content.endswith(b"data: [DONE]\n\n")
    tokens = await http.post("/v1/completions", json={"model": "auto", "prompt": [1, 2, 3]})
    assert tokens.headers["x-tier-router-reason"] == "unsure", "token ids cannot be read"


async def test_a_conversation_stays_up_and_comes_down(stage: Any) -> None:
    http = await stage.serve()

    async def tier(*texts: str) -> str:
        messages = []
        for text in texts:
            messages += [{"role": "user", "content": text}, {"role": "assistant", "content": "."}]
        answer = await http.post(CHAT, json={"model": "auto", "messages": messages[:-1]})
        return answer.headers["x-tier-router-tier"]

    assert await tier("prove it", "yes") == "heavy"
    assert await tier("hello", "yes") == "light"
    assert await tier("prove it", "hello", "hello", "hello", "hello") == "light"


async def test_one_conversation_keeps_its_replica(stage: Any) -> None:
    await stage.serve()
    for text in ("one", "two", "three", "four"):
        seen = {(await stage.ask(text)).headers["x-tier-router-replica"] for _ in range(4)}
        assert len(seen) == 1


async def test_a_400_of_the_replica_is_relayed_as_it_came(stage: Any) -> None:
    await stage.serve()
    answer = await stage.ask("hello", max_tokens=-1)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == 400
    assert answer.headers["x-tier-router-tier"] == "light"
    assert sum(stage.served().values()) == 1, "not tried elsewhere"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("when", ["waiting", "streaming"])
async def test_a_client_that_hangs_up_is_noticed_upstream(
    stage: Any, eventually: Callable[..., Any], stream: bool, when: str
) -> None:
    slow = await stage.stack.enter_async_context(
        FakeVllm("m8", speed=Speed(step=0.02, prefill=20 if when == "waiting" else 8000))
    )
    stage.light[:] = [slow]
    await stage.serve()
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(stage))
    raw = json.dumps(chat("word " * 60, stream=stream, max_tokens=500, ignore_eos=True)).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(raw)}\r\n\r\n"
    writer.write(head.encode() + raw)
    await eventually(lambda: len(slow.requests) == 1)
    if stream and when == "streaming":
        await reader.readuntil(b"data: ")
    writer.close()
    await writer.wait_closed()
    await eventually(lambda: slow.requests[0].aborted)
    await eventually(lambda: stage.sidecar.router.ledger.in_flight("light-0") == 0)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answered_request_leaves_nothing_for_the_collector(
    stage: Any, stream: bool
) -> None:
    await stage.serve()
    await stage.ask("hello", stream=stream)
    gc.collect()
    gc.disable()
    try:
        for _ in range(5):
            await stage.ask("hello", stream=stream)
        left = [each for each in gc.get_objects() if type(each) in (Incoming, Relay, Attempt)]
    finally:
        gc.enable()
    assert left == []


async def test_a_client_that_leaves_leaves_nothing_for_the_collector(
    stage: Any, eventually: Callable[..., Any]
) -> None:
    await stage.serve()
    for fake in stage.fakes:
        fake.faults.add(faults.SlowFirstToken(30), times=None)
    raw = json.dumps(chat("hello", stream=True)).encode()
    head = b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"
    kinds = (Incoming, Relay, Attempt, Connection, RequestReader)

    def left() -> list[Any]:
        return [each for each in gc.get_objects() if type(each) in kinds]

    gc.collect()
    gc.disable()
    try:
        for number in range(3):
            _, writer = await asyncio.open_connection("127.0.0.1", port_of(stage))
            writer.write(head % (CHAT.encode(), len(raw)) + raw)
            await eventually(lambda n=number: sum(len(f.requests) for f in stage.fakes) > n)
            writer.close()
            await writer.wait_closed()
        await eventually(lambda: left() == [])
    finally:
        gc.enable()
