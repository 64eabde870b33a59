"""Each fault, as a client without any mercy sees it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tier_router.testing import (
    BAD_GATEWAY,
    BUSY,
    DEAD,
    DRAINING,
    TOO_MANY,
    BadChunks,
    CloseBeforeAnswer,
    CloseIdle,
    ErrorInStream,
    ErrorMidStream,
    FakeVllm,
    Garbage,
    Hang,
    Reset,
    SlowChunks,
    SlowFirstToken,
    Status,
    TruncatedBody,
    anything,
)

DIED = (
    b'data: {"error": {"message": "EngineCore encountered an issue. See stack trace (above) for '
    b'the root cause.", "type": "InternalServerError", "param": null, "code": 500}}\n\n'
)
DONE = b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    ("fault", "status", "says"),
    [
        (BUSY, 503, b'"type":"Service Unavailable","param":null,"code":503}}'),
        (TOO_MANY, 429, b'"code":429}}'),
        (DRAINING, 500, b'"message":"cannot schedule new futures after shutdown"'),
        (DEAD, 500, b'"message":"EngineCore encountered an issue.'),
        (BAD_GATEWAY, 502, b"<html>"),
        (Status(418), 418, b'"code":418'),
        (Status(500, "boom"), 500, b"boom"),
        (Status(404, {"a": 1}, (("x-why", "so"),)), 404, b'{"a":1}'),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_status(
    light: FakeVllm, dial: Any, ask: Any, fault: Status, status: int, says: bytes, stream: bool
) -> None:
    light.faults.add(fault)
    wire = await dial(light)
    wire.send(ask(stream=stream))
    got, headers, body = await wire.answer()
    assert got == status
    assert says in body
    for name, value in fault.headers:
        assert headers[name] == value
    assert ("retry-after" in headers) == (status == 429)
    html = body.startswith(b"<html>")
    assert headers["content-type"].startswith(
        "text/" if html or body == b"boom" else "application/"
    )
    wire.send(ask())  # only once, and the connection lives
    assert (await wire.answer())[0] == 200
    assert [request.status for request in light.requests] == [status, 200]
    assert all(request.finished and not request.aborted for request in light.requests)


async def test_an_error_as_the_first_event(light: FakeVllm, dial: Any, ask: Any) -> None:
    light.faults.add(ErrorInStream(), times=2)
    wire = await dial(light)
    wire.send(ask(stream=True))
    assert (await wire.head())[0] == 200
    assert await wire.chunks() == [DIED, DONE]
    wire.send(ask())
    assert (await wire.answer())[0] == 500


async def test_an_error_in_mid_stream(light: FakeVllm, dial: Any, ask: Any) -> None:
    light.faults.add(ErrorMidStream(after=3), times=2)
    wire = await dial(light)
    wire.send(ask(stream=True, max_tokens=10))
    await wire.head()
    chunks = await wire.chunks()
    assert len(chunks) == 5
    assert chunks[3:] == [DIED, DONE]
    assert (light.requests[0].events, light.requests[0].finished) == (5, True)
    wire.send(ask())
    assert (await wire.answer())[0] == 500


@pytest.mark.parametrize("stream", [False, True])
async def test_it_hangs(light: FakeVllm, dial: Any, ask: Any, stream: bool) -> None:
    light.faults.add(Hang())
    wire = await dial(light)
    wire.send(ask(stream=stream))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(wire.reader.read(1), 0.1)
    assert light.requests[0].status is None


async def test_it_hangs_after_the_head(
    light: FakeVllm, dial: Any, ask: Any, eventually: Any
) -> None:
    light.faults.add(Hang(head=True))
    wire = await dial(light)
    wire.send(ask(stream=True))
    status, headers = await wire.head()
    assert (status, headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(wire.reader.read(1), 0.1)
    wire.hang_up()
    await eventually(lambda: light.requests[0].aborted)


@pytest.mark.parametrize("stream", [False, True])
async def test_reset_at_once(light: FakeVllm, dial: Any, ask: Any, stream: bool) -> None:
    light.faults.add(Reset())
    wire = await dial(light)
    wire.send(ask(stream=stream))
    with pytest.raises(ConnectionResetError):
        await wire.rest()
    assert not light.requests[0].aborted  # the client did not leave
    assert not light.requests[0].finished


async def test_reset_after_events(light: FakeVllm, dial: Any, ask: Any) -> None:
    light.faults.add(Reset(after_chunks=2))
    wire = await dial(light)
    wire.send(ask(stream=True, max_tokens=10))
    await wire.head()
    assert b'"role"' in await wire.chunk()
    assert b'"content":"ligh"' in await wire.chunk()
    with pytest.raises(ConnectionResetError):
        await wire.rest()


async def test_reset_after_bytes(light: FakeVllm, dial: Any, ask: Any) -> None:
    for stream in (False, True):
        light.faults.add(Reset(after_bytes=300))
        wire = await dial(light)
        wire.send(ask(stream=stream))
        seen = await asyncio.wait_for(wire.reader.readexactly(300), 5)
        assert seen.startswith(b"HTTP/1.1 200 OK\r\n")
        with pytest.raises(ConnectionResetError):
            await wire.rest()


async def test_reset_in_the_body(light: FakeVllm, dial: Any, ask: Any) -> None:
    light.faults.add(Reset(after_chunks=1))
    wire = await dial(light)
    wire.send(ask())
    _, headers = await wire.head()
    half = int(headers["content-length"]) // 2
    assert len(await asyncio.wait_for(wire.reader.readexactly(half), 5)) == half
    with pytest.raises(ConnectionResetError):
        await wire.rest()


@pytest.mark.parametrize("stream", [False, True])
async def test_closed_before_the_answer(light: FakeVllm, dial: Any, ask: Any, stream: bool) -> None:
    light.faults.add(CloseBeforeAnswer())
    wire = await dial(light)
    wire.send(ask(stream=stream))
    assert await wire.rest() == b""
    assert not light.requests[0].aborted


async def test_a_slow_first_token(light: FakeVllm, dial: Any, ask: Any) -> None:
    loop = asyncio.get_running_loop()
    light.faults.add(SlowFirstToken(0.2), times=2)
    wire = await dial(light)
    start = loop.time()
    wire.send(ask(stream=True))
    await wire.head()
    await wire.chunk()
    assert loop.time() - start >= 0.2
    await wire.chunks()
    assert loop.time() - start < 1.5  # it was slow once, and not for each event
    wire.send(ask())
    start = loop.time()
    await wire.answer()
    assert loop.time() - start >= 0.2


@pytest.mark.parametrize("stream", [False, True])
async def test_slow_chunks(light: FakeVllm, dial: Any, ask: Any, stream: bool) -> None:
    loop = asyncio.get_running_loop()
    light.faults.add(SlowChunks(0.05))
    wire = await dial(light)
    start = loop.time()
    wire.send(ask(stream=stream, max_tokens=2))
    if stream:
        await wire.head()
        assert len(await wire.chunks()) == 4  # role, two tokens, [DONE]
    else:
        body = (await wire.answer())[2]
        assert json.loads(body)["object"] == "chat.completion"
    assert loop.time() - start >= 0.15


async def test_garbage(light: FakeVllm, dial: Any, ask: Any) -> None:
    light.faults.add(Garbage())
    wire = await dial(light)
    wire.send(ask())
    assert not (await wire.rest()).startswith(b"HTTP")


@pytest.mark.parametrize("rst", [False, True])
async def test_closed_while_idle(light: FakeVllm, dial: Any, ask: Any, rst: bool) -> None:
    light.faults.add(CloseIdle(after=0.05, rst=rst))
    wire = await dial(light)
    wire.send(ask())
    assert (await wire.answer())[0] == 200
    if rst:
        with pytest.raises(ConnectionResetError):
            await wire.rest()
    else:
        assert await wire.rest() == b""


async def test_closing_all_idle_connections_by_hand(light: FakeVllm, dial: Any, ask: Any) -> None:
    idle, busy = await dial(light), await dial(light)
    light.faults.add(Hang(head=True))
    busy.send(ask(stream=True))
    await busy.head()
    idle.send(ask())
    await idle.answer()
    assert (light.connections.open, light.connections.busy, light.connections.accepted) == (2, 1, 2)
    light.connections.close_idle()
    assert await idle.rest() == b""
    assert light.connections.open == 1


async def test_idle_connections_are_closed_after_a_while(dial: Any, ask: Any) -> None:
    async with FakeVllm("light", keep_alive=0.1) as fake:
        wire = await dial(fake)
        await asyncio.sleep(0.15)  # as in uvicorn, the first request may take its time
        wire.send(ask())
        await wire.answer()
        wire.send(ask())
        await wire.answer()
        start = asyncio.get_running_loop().time()
        assert await wire.rest() == b""
        assert asyncio.get_running_loop().time() - start > 0.08


@pytest.mark.parametrize("stream", [False, True])
async def test_chunks_that_are_none(light: FakeVllm, dial: Any, ask: Any, stream: bool) -> None:
    light.faults.add(BadChunks())
    wire = await dial(light)
    wire.send(ask(stream=stream))
    _, headers = await wire.head()
    assert headers["transfer-encoding"] == "chunked"
    if stream:
        assert b'"role"' in await wire.chunk()
    assert await wire.rest() == b"zz\r\nno chunk\r\n"


async def test_a_body_that_ends_too_soon(light: FakeVllm, dial: Any, ask: Any) -> None:
    light.faults.add(TruncatedBody(missing=50))
    wire = await dial(light)
    wire.send(ask())
    _, headers = await wire.head()
    body = await wire.rest()
    assert len(body) == int(headers["content-length"]) - 50
    light.faults.add(TruncatedBody(after=2))
    wire = await dial(light)
    wire.send(ask(stream=True))
    await wire.head()
    raw = await wire.rest()
    assert raw.count(b"data: ") == 2
    assert not raw.endswith(b"0\r\n\r\n")


async def test_which_requests_meet_a_fault(light: FakeVllm, dial: Any, ask: Any) -> None:
    wire = await dial(light)

    async def status(body: Any = None, path: str = "/v1/chat/completions") -> int:
        wire.send(body, path, "POST" if body else "GET")
        return int((await wire.answer())[0])

    light.faults.add(BUSY, times=2)
    assert await status(path="/health") == 200  # a probe takes no fault away
    assert [await status(ask()) for _ in range(3)] == [503, 503, 200]

    light.faults.add(DEAD, times=None, when=lambda request: request.path == "/health")
    assert [await status(path="/health") for _ in range(3)] == [500] * 3
    assert await status(ask()) == 200
    light.faults.clear()
    assert await status(path="/health") == 200

    light.faults.add(DEAD, when=anything)
    light.faults.add(BUSY)
    assert len(light.faults) == 2
    assert await status(path="/load") == 500
    assert await status(ask()) == 503
    assert len(light.faults) == 0

    light.faults.add(BUSY, when=lambda request: "bad" in str(request.body))
    assert [await status(ask("good")), await status(ask("bad"))] == [200, 503]


async def test_a_fault_ends_with_its_answer(light: FakeVllm, dial: Any, ask: Any) -> None:
    wire = await dial(light)
    for fault in (Reset(after_bytes=100_000), CloseIdle(after=0.05)):
        light.faults.add(fault)
        for _ in range(2):
            wire.send(ask())
            assert (await wire.answer())[0] == 200
        await asyncio.sleep(0.1)
    for _ in range(120):  # far more than the bytes of the first fault
        wire.send(ask())
        assert (await wire.answer())[0] == 200
