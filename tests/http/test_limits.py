"""Timeouts and sizes of one client's connection, over real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from dataclasses import replace

import pytest

from tests.http.tools import Client, both_loops, chunk, client, echo, get, post, serving, until
from tier_router_proxy.http import CHUNKED, CLOSE, LENGTH, Exchange, Limits

# Short enough to wait for, long enough for a busy machine to come in between.
SHORT = 0.12
NEVER = 30.0
PATIENT = Limits(head_timeout=NEVER, body_timeout=NEVER, idle_timeout=NEVER, write_timeout=NEVER)


@pytest.mark.parametrize(
    ("limits", "sent", "word"),
    [
        (replace(PATIENT, head_timeout=SHORT), b"GET / HTTP/1.1\r\nHost: ", "headers"),
        (replace(PATIENT, body_timeout=SHORT), post(b"hello")[:-1], "body"),
    ],
)
@both_loops
async def test_unfinished_requests_time_out(limits: Limits, sent: bytes, word: str) -> None:
    async with serving(echo, limits=limits) as site, client(site.address) as c:
        await c.send(get())
        assert (await c.answer()).status == 200
        await c.send(sent)
        answer = await c.answer()
        assert answer.status == 408
        error = json.loads(answer.body)["error"]
        assert error["code"] == "request_timeout"
        assert word in error["message"]
        assert await c.ended() == b""
    assert site.server.connections == 0


@both_loops
async def test_a_slow_loris_cannot_stretch_the_head() -> None:
    limits = replace(PATIENT, head_timeout=SHORT)
    async with serving(echo, limits=limits) as site, client(site.address) as c:
        began = time.perf_counter()
        await c.send(b"GET / HTTP/1.1\r\n")

        async def dribble() -> None:
            while True:
                await asyncio.sleep(0.02)
                await c.send(b"a: b\r\n")

        dribbling = asyncio.create_task(dribble())
        assert (await c.answer()).status == 408
        assert SHORT <= time.perf_counter() - began < 2
        dribbling.cancel()


@both_loops
async def test_a_slow_body_may_come_while_it_comes() -> None:
    limits = replace(PATIENT, head_timeout=SHORT, body_timeout=SHORT)
    data = post(b"0123456789")
    async with serving(echo, limits=limits) as site, client(site.address) as c:
        await c.send(data[:-10])
        for i in range(10):
            await asyncio.sleep(SHORT / 4)
            await c.send(data[len(data) - 10 + i :][:1])
        assert (await c.answer()).body == b"POST 0123456789"


@pytest.mark.parametrize("before", [b"", b"\r\n", get()])
@both_loops
async def test_idle_connections_are_closed_without_a_word(before: bytes) -> None:
    limits = replace(PATIENT, idle_timeout=SHORT)
    async with serving(echo, limits=limits) as site, client(site.address) as c:
        began = time.perf_counter()
        await c.send(before)
        if before.strip():
            await c.answer()
        assert await c.ended() == b""
        assert SHORT <= time.perf_counter() - began < 2


@both_loops
async def test_a_long_answer_is_no_idleness() -> None:
    held: list[Exchange] = []
    limits = Limits(head_timeout=SHORT, body_timeout=SHORT, idle_timeout=SHORT, write_timeout=SHORT)
    async with serving(held.append, limits=limits) as site, client(site.address) as c:
        await c.send(get())
        await asyncio.sleep(3 * SHORT)
        held[0].start(200, b"OK", [], CHUNKED)
        await asyncio.sleep(3 * SHORT)
        held[0].write(b"0\r\n\r\n")
        held[0].finish()
        assert (await c.answer()).complete


@pytest.mark.parametrize("finished", [True, False])
@both_loops
async def test_a_client_that_takes_nothing_is_cut_off(finished: bool) -> None:
    gone: list[bool] = []

    def handler(exchange: Exchange) -> None:
        exchange.on_disconnect = lambda: gone.append(True)
        size = 20_000_000
        exchange.start(200, b"OK", [], LENGTH(size))
        exchange.write(bytes(size if finished else size - 1))
        if finished:
            exchange.finish()

    limits = replace(PATIENT, write_timeout=SHORT)
    async with serving(handler, limits=limits) as site, client(site.address, window=4096) as c:
        await c.send(get())
        await until(lambda: site.server.connections == 1)
        began = time.perf_counter()
        await until(lambda: site.server.connections == 0)
        assert SHORT / 2 < time.perf_counter() - began < 2
        assert gone == ([] if finished else [True])
        assert site.server.active == 0


@pytest.mark.parametrize("more", ["", "Connection: close\r\n"])
@both_loops
async def test_a_client_that_takes_little_may_go_on(more: str) -> None:
    size = 8_000_000
    limits = replace(PATIENT, write_timeout=SHORT)
    async with (
        serving(lambda exchange: exchange.respond(200, [], bytes(size)), limits=limits) as site,
        client(site.address, window=65536) as c,
    ):
        await c.send(get(more=more))
        got = 0
        began = time.perf_counter()
        while time.perf_counter() - began < 4 * SHORT:
            got += len(await c.recv(100_000))
            await asyncio.sleep(0.01)
        assert got < size
        while got < size:
            data = await c.recv(1_000_000)
            assert data
            got += len(data)


@both_loops
async def test_reading_stops_behind_an_unfinished_answer() -> None:
    held: list[Exchange] = []
    limits = replace(PATIENT, pipelined=10_000)
    body = b"x" * 8_000_000
    async with serving(held.append, limits=limits) as site, client(site.address) as c:
        await c.send(get())
        sending = asyncio.create_task(c.send(post(body)))
        await asyncio.sleep(0.1)
        assert not sending.done()
        [connection] = site.server._shared.open  # type: ignore[union-attr]
        assert connection._held.size < 10_000 + 300_000
        held[0].respond(200, [], b"first")
        await sending
        await until(lambda: len(held) == 2)
        assert held[1].request.body == body
        held[1].respond(200, [], b"second")
        assert [(await c.answer()).body for _ in range(2)] == [b"first", b"second"]


@both_loops
async def test_no_next_request_while_the_last_answer_is_stuck() -> None:
    served: list[Exchange] = []

    def handler(exchange: Exchange) -> None:
        served.append(exchange)
        exchange.respond(200, [], bytes(8_000_000))

    async with serving(handler) as site, client(site.address, window=4096) as c:
        await c.send(get() * 3)
        await asyncio.sleep(0.05)
        assert len(served) == 1
        c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1_000_000)
        for _ in range(3):
            assert (await c.answer()).complete
        assert len(served) == 3


@both_loops
async def test_expectations() -> None:
    expect = "Expect: 100-continue\r\n"
    data = post(b"hello", expect)
    async with serving(echo, limits=Limits(body=10)) as site, client(site.address) as c:
        for _ in range(2):
            await c.send(data[:-5])
            assert await c.recv() == b"HTTP/1.1 100 Continue\r\n\r\n"
            await c.send(data[-5:])
            assert (await c.answer()).body == b"POST hello"
        await c.send(data)  # one that does not wait is not told to go on
        assert (await c.recv()).startswith(b"HTTP/1.1 200")
        await c.send(post(b"x" * 11, expect)[:-11])
        assert (await c.recv()).startswith(b"HTTP/1.1 413")
        assert await c.ended() == b""


@both_loops
async def test_an_expectation_waits_its_turn() -> None:
    held: list[Exchange] = []
    async with serving(held.append) as site, client(site.address) as c:
        await c.send(get() + post(b"hello", "Expect: 100-continue\r\n")[:-5])
        await until(lambda: len(held) == 1)
        held[0].respond(200, [], b"x")
        await c.answer()
        data = c.rest
        while not data:
            data = await c.recv()
        assert data == b"HTTP/1.1 100 Continue\r\n\r\n"
        c.rest = b""
        await c.send(b"hello")
        await until(lambda: len(held) == 2)
        assert held[1].request.body == b"hello"
        held[1].respond(200, [], b"y")
        assert (await c.answer()).body == b"y"


@both_loops
async def test_a_refused_client_can_read_why() -> None:
    body = b"x" * 5_000_000
    async with serving(echo, limits=Limits(body=1000)) as site, client(site.address) as c:
        try:
            await c.send(post(body))
        except ConnectionError:
            pytest.fail("reset before the refusal could be read")
        assert (await c.answer()).status == 413
        assert await c.ended() == b""


async def _send_without_end(c: Client) -> None:
    while True:
        await c.send(b"x" * 1000)
        await asyncio.sleep(0.005)


@both_loops
async def test_lingering_ends() -> None:
    limits = Limits(body=1000, linger=SHORT)
    async with serving(echo, limits=limits) as site, client(site.address) as c:
        await c.send(post(b"x" * 2000)[:200])
        assert (await c.answer()).status == 413
        sending = asyncio.create_task(_send_without_end(c))
        await until(lambda: site.server.connections == 0)
        with pytest.raises(ConnectionError):
            await sending
    async with serving(echo, limits=Limits(linger=0)) as site, client(site.address) as c:
        await c.send(b"nonsense\r\n\r\n")
        assert (await c.answer()).status == 400
        await until(lambda: site.server.connections == 0)


@both_loops
async def test_lingering_begins_when_everything_is_sent() -> None:
    size = 8_000_000

    def handler(exchange: Exchange) -> None:
        exchange.start(200, b"OK", [], CLOSE)
        exchange.write(bytes(size))
        exchange.finish()

    limits = Limits(linger=SHORT / 2, write_timeout=1)
    async with serving(handler, limits=limits) as site, client(site.address, window=4096) as c:
        await c.send(get())
        await asyncio.sleep(2 * SHORT)
        c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1_000_000)
        assert len((await c.answer()).body) == size
        began = time.perf_counter()
        await until(lambda: site.server.connections == 0)  # although the client stays
        assert time.perf_counter() - began < 3


@both_loops
async def test_surplus_bytes_do_not_spoil_the_last_answer() -> None:
    held: list[Exchange] = []
    async with serving(held.append) as site, client(site.address) as c:
        await c.send(get(more="Connection: close\r\n"))
        await until(lambda: len(held) == 1)
        await c.send(b"x" * 100_000)
        await asyncio.sleep(0.02)
        held[0].respond(200, [], b"last")
        assert (await c.answer()).body == b"last"
        assert await c.ended() == b""
        assert len(held) == 1


@both_loops
async def test_limits_can_be_replaced() -> None:
    async with serving(echo) as site, client(site.address) as old:
        await old.send(post(b"x" * 20))
        assert (await old.answer()).status == 200
        site.server.limits = Limits(body=10)
        assert site.server.limits.body == 10
        await old.send(post(b"x" * 20))
        async with client(site.address) as new:
            await new.send(post(b"x" * 20))
            assert (await new.answer()).status == 413
        await old.answer()  # of which the limits were set when it became idle
        await old.send(post(b"x" * 20))
        assert (await old.answer()).status == 413


@both_loops
async def test_chunked_bodies_are_limited_while_they_come() -> None:
    async with serving(echo, limits=Limits(body=100)) as site, client(site.address) as c:
        await c.send(
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"x" * 99)
        )
        await asyncio.sleep(0.01)
        await c.send(chunk(b"xx"))
        assert (await c.answer()).status == 413
