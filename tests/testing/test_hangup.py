"""Clients that leave, and servers that stop."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from tier_router.testing import FakeVllm, SlowFirstToken, Speed, Status

AT_ONCE = 0.1
"""Seconds within which a hang-up is to be seen; vLLM takes 0.03."""

STEADY = Speed(slots=1, prefill=1e9, step=0.005)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("rst", [False, True])
async def test_a_running_request_leaves_with_its_client(
    dial: Any, ask: Any, eventually: Any, stream: bool, rst: bool
) -> None:
    async with FakeVllm("light", speed=STEADY) as fake:
        wire = await dial(fake)
        wire.send(ask(max_tokens=5000, ignore_eos=True, stream=stream))
        await eventually(lambda: fake.engine.running)
        if stream:
            await wire.head()
            await wire.chunk()
        if rst:
            sock: Any = wire.writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        wire.hang_up()
        assert await eventually(lambda: fake.requests[0].aborted) < AT_ONCE
        assert await eventually(lambda: fake.engine.running == 0) < AT_ONCE
        assert not fake.requests[0].finished
        assert fake.requests[0].aborted_at is not None
        assert fake.connections.open == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_a_waiting_request_leaves_the_line(
    dial: Any, ask: Any, eventually: Any, stream: bool
) -> None:
    async with FakeVllm("light", speed=STEADY) as fake:
        first, second, third = [await dial(fake) for _ in range(3)]
        first.send(ask(max_tokens=60, ignore_eos=True))
        await eventually(lambda: fake.engine.running == 1)
        second.send(ask(stream=stream, max_tokens=5000, ignore_eos=True))
        if stream:
            await second.head()
        third.send(ask(max_tokens=1))
        await eventually(lambda: fake.engine.waiting == 2)
        second.hang_up()
        assert await eventually(lambda: fake.engine.waiting == 1) < AT_ONCE
        assert fake.requests[1].aborted
        assert (await first.answer())[0] == (await third.answer())[0] == 200


async def test_a_client_that_reads_no_more_is_noticed_when_it_leaves(
    dial: Any, ask: Any, eventually: Any
) -> None:
    async with FakeVllm("light", max_model_len=200_000) as fake:
        wire = await dial(fake)
        wire.writer.transport.pause_reading()
        wire.send(ask(max_tokens=100_000, ignore_eos=True, stream=True))
        await eventually(lambda: fake.requests and fake.requests[0].events > 20)
        wire.hang_up()
        assert await eventually(lambda: fake.requests[0].aborted) < AT_ONCE
        await eventually(lambda: fake.engine.running == 0)


async def test_a_slow_reader_holds_the_writer_back(light: FakeVllm, dial: Any, ask: Any) -> None:
    size = 30_000_000  # more than the sockets' buffers hold
    light.faults.add(Status(200, b"x" * size))
    wire = await dial(light)
    wire.send(ask())
    await wire.head()
    await asyncio.sleep(0.05)
    assert not light.requests[0].finished
    assert len(await asyncio.wait_for(wire.reader.readexactly(size), 20)) == size
    wire.send(ask())
    assert (await wire.answer())[0] == 200
    assert light.requests[0].finished


async def test_leaving_while_a_fault_sleeps(dial: Any, ask: Any, eventually: Any) -> None:
    async with FakeVllm("light") as fake:
        fake.faults.add(SlowFirstToken(5))
        wire = await dial(fake)
        wire.send(ask(stream=True))
        await wire.head()
        wire.hang_up()
        assert await eventually(lambda: fake.requests[0].aborted) < AT_ONCE


async def test_load_counts_at_once_and_metrics_late(dial: Any, ask: Any, eventually: Any) -> None:
    async with FakeVllm("light", speed=Speed(slots=2, step=0.1)) as fake:
        wires = [await dial(fake) for _ in range(4)]
        for wire in wires:
            wire.send(ask(max_tokens=100, ignore_eos=True))
        probe = await dial(fake)

        async def get(path: str) -> str:
            probe.send(path=path, method="GET")
            return str((await probe.answer())[2].decode())

        await eventually(lambda: len(fake.requests) >= 4)
        assert await get("/load") == '{"server_load":4}'
        assert 'vllm:num_requests_running{engine="0",model_name="light"} 0.0' in await get(
            "/metrics"
        )
        await asyncio.sleep(0.25)
        page = await get("/metrics")
        assert 'vllm:num_requests_running{engine="0",model_name="light"} 2.0' in page
        assert 'vllm:num_requests_waiting{engine="0",model_name="light"} 2.0' in page
        for wire in wires:
            wire.hang_up()
        await eventually(lambda: all(request.aborted for request in fake.requests[:4]))
        assert await get("/load") == '{"server_load":0}'


async def test_stopping_ends_all_and_starting_again_keeps_the_port(
    dial: Any, ask: Any, eventually: Any
) -> None:
    fake = FakeVllm("light", speed=STEADY)
    await fake.start()
    port, busy, idle = fake.port, await dial(fake), await dial(fake)
    busy.send(ask(max_tokens=5000, ignore_eos=True, stream=True))
    await busy.head()
    idle.send(path="/health", method="GET")
    await idle.answer()
    before = asyncio.all_tasks()
    await fake.stop()
    assert asyncio.all_tasks() < before
    assert fake.connections.open == 0
    assert fake.engine.running + fake.engine.waiting <= 1
    assert not any(request.aborted for request in fake.requests)
    with pytest.raises(OSError):
        await dial(fake)
    await fake.stop()
    await fake.start()
    assert fake.port == port
    wire = await dial(fake)
    wire.send(ask(max_tokens=1))
    assert (await wire.answer())[0] == 200
    await fake.stop()


async def test_stopping_with_grace_lets_an_answer_end(dial: Any, ask: Any) -> None:
    async with FakeVllm("light", speed=STEADY) as fake:
        wire = await dial(fake)
        wire.send(ask(max_tokens=30, ignore_eos=True, stream=True))
        await wire.head()
        stopping = asyncio.create_task(fake.stop(grace=5))
        assert (await wire.chunks())[-1] == b"data: [DONE]\n\n"
        await stopping
        with pytest.raises(OSError):
            await dial(fake)


async def test_requests_are_recorded_as_they_came(light: FakeVllm, dial: Any, ask: Any) -> None:
    wire = await dial(light)
    body = ask(user="ünï")
    wire.send(body, path="/v1/chat/completions?x=1", headers="X-Two: a\r\nX-Two: b\r\n")
    await wire.answer()
    seen = light.requests[0]
    assert (seen.method, seen.path, seen.route) == (
        "POST",
        "/v1/chat/completions?x=1",
        "/v1/chat/completions",
    )
    assert seen.body == body
    assert seen.raw.startswith(b'{"model"')
    assert [value for name, value in seen.headers if name == "x-two"] == ["a", "b"]
    assert seen.header("X-Two") == "a"
    assert (seen.status, seen.finished, seen.aborted) == (200, True, False)
    assert seen.finished_at is not None
    assert seen.finished_at >= seen.started_at


async def test_requests_in_one_packet_are_answered_in_order(
    light: FakeVllm, dial: Any, ask: Any
) -> None:
    wire = await dial(light)
    for size in (5, 1, 3):
        wire.send(ask(max_tokens=size), headers=f"x-request-id: {size}\r\n")
    ids = [(await wire.answer())[1]["x-request-id"] for _ in range(3)]
    assert ids == ["5", "1", "3"]


async def test_what_is_not_http_is_refused_as_uvicorn_does(light: FakeVllm, dial: Any) -> None:
    wire = await dial(light)
    wire.writer.write(b"\x16\x03\x01 what is this\r\n\r\n")
    status, _, body = await wire.answer()
    assert (status, body) == (400, b"Invalid HTTP request received.")
    assert await wire.rest() == b""
    assert light.requests == []


async def test_old_and_closing_clients(light: FakeVllm, dial: Any, ask: Any) -> None:
    wire = await dial(light)
    wire.send(ask(), headers="connection: close\r\n")
    assert (await wire.answer())[1]["connection"] == "close"
    assert await wire.rest() == b""
    wire = await dial(light)
    wire.writer.write(b"GET /version HTTP/1.0\r\n\r\n")
    assert (await wire.rest()).endswith(b'{"version":"0.32.0"}')


async def test_a_client_that_waits_for_permission_gets_it(light: FakeVllm, dial: Any) -> None:
    wire = await dial(light)
    wire.writer.write(
        b"POST /tokenize HTTP/1.1\r\nHost: x\r\nexpect: 100-continue\r\n"
        b"content-type: application/json\r\ncontent-length: 14\r\n\r\n"
    )
    assert (await wire.head())[0] == 100
    wire.writer.write(b'{"prompt":"x"}')
    assert (await wire.answer())[0] == 200


async def test_an_answer_that_cannot_be_made_is_loud(dial: Any, ask: Any) -> None:
    def broken(body: dict[str, Any]) -> str:
        raise LookupError("no such answer")

    loud: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: loud.append(context))
    async with FakeVllm("light", answer=broken) as fake:
        wire = await dial(fake)
        wire.send(ask())
        assert await wire.rest() == b""
    assert isinstance(loud[0]["exception"], LookupError)
