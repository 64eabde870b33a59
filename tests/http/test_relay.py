"""Both sides together: what a client and an upstream see of each other through a relay."""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc

import pytest

from tests.http.tools import (
    GRANULARITY,
    Relay,
    answer,
    both_loops,
    chunk,
    client,
    get,
    hang,
    post,
    read_request,
    relaying,
    reset,
    serving,
    until,
    upstream,
)
from tier_router_proxy.http import Exchange, Limits, Pool, Wheel

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@both_loops
async def test_bytes_go_through_as_they_are() -> None:
    parts = [chunk(b"data: %d\n\n" % i) for i in range(50)] + [b"0\r\nX-T: 1\r\n\r\n"]

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head, body = await read_request(reader)
            if head.startswith(b"GET"):
                writer.write(CHUNKED)
                for part in parts:
                    writer.write(part[:7])
                    await asyncio.sleep(0)
                    writer.write(part[7:])
            else:
                writer.write(answer(body))

    async with relaying(script) as (site, pool, up), client(site.address) as c:
        for _ in range(3):
            await c.send(get())
            assert (await c.answer()).raw == b"".join(parts)
            await c.send(post(b"x" * 100_000) + post(b"y"))
            assert (await c.answer()).body == b"x" * 100_000
            assert (await c.answer()).body == b"y"
        assert up.connections == 1
        assert (pool.active, pool.idle) == (0, 1)


@pytest.mark.parametrize("state", ["waiting", "streaming", "pipelined", "flooded"])
@both_loops
async def test_a_client_that_leaves_stops_the_upstream(state: str) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        if state == "streaming":
            writer.write(CHUNKED + chunk(b"x"))
        await hang(reader)

    async with relaying(script) as (site, pool, up), client(site.address) as c:
        await c.send(get())
        await until(lambda: up.connections == 1)
        if state == "streaming":
            assert await c.recv()
        elif state == "pipelined":
            await c.send(get() + post(b"x" * 1000)[:300])
        elif state == "flooded":
            await c.send(post(b"x" * 300_000)[:200_000])
        await asyncio.sleep(0.02)
        began = time.perf_counter()
        c.close()
        async with asyncio.timeout(2):
            await up.lost.wait()
        assert time.perf_counter() - began < 0.3
        assert (pool.active, pool.idle) == (0, 0)
        assert up.connections == 1


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("when", ["before", "within"])
@both_loops
async def test_an_upstream_that_dies_is_no_end(how: str, when: str) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        if when == "within":
            writer.write(CHUNKED + chunk(b"half"))
            await asyncio.sleep(0.02)
        if how == "rst":
            reset(writer)

    async with relaying(script) as (site, pool, _), client(site.address) as c:
        await c.send(get())
        if when == "before":
            assert (await c.answer()).status == 502
            await c.send(get())
            assert (await c.answer()).status == 502
        else:
            await c.cut_off()
        assert (pool.active, pool.idle) == (0, 0)


@both_loops
async def test_a_slow_client_slows_the_upstream_down() -> None:
    size, piece = 60_000_000, bytes(64_000)
    sent = 0

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await read_request(reader)
        writer.write(CHUNKED)
        data = chunk(piece)
        while sent < size:
            writer.write(data)
            sent += len(piece)
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await hang(reader)

    limits = Limits(write_timeout=5)
    async with relaying(script, limits=limits) as (site, pool, _):
        async with client(site.address, window=16_384) as c:
            gc.collect()
            tracemalloc.start()
            try:
                await c.send(get())
                got = await c.recv()
                await asyncio.sleep(0.4)
                stuck = sent
                await asyncio.sleep(0.1)
                assert sent == stuck < size / 2  # what the kernel's buffers take
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            # The write buffer, one read above its mark, and the script's own buffer of one chunk.
            assert peak < 256 * 1024 + 3 * 300_000
            assert pool.active == 1
            total = len(got)
            while not got.endswith(b"0\r\n\r\n"):
                got = await c.recv(1_000_000)
                assert got
                total += len(got)
            assert total > size
        await until(lambda: pool.idle == 1)


@both_loops
async def test_a_slow_client_is_no_silent_upstream() -> None:
    """While paused, the deadline does not run; a relay arms it at every piece."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(CHUNKED)
        for _ in range(100):
            writer.write(chunk(bytes(100_000)))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await hang(reader)

    class Timed(Relay):
        def on_data(self, data: bytes) -> None:
            super().on_data(data)
            self.call.expect(0.1)

    async with upstream(script) as up:
        pool = Pool(up.url, Wheel(granularity=GRANULARITY))

        def handler(exchange: Exchange) -> None:
            Timed(exchange, pool)

        async with serving(handler) as site, client(site.address, window=16_384) as c:
            await c.send(get())
            await asyncio.sleep(0.4)
            answer = await c.answer()
            assert answer.complete
            assert len(answer.body) == 10_000_000
        await pool.close()


@both_loops
async def test_a_client_that_leaves_while_the_upstream_is_paused() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(CHUNKED)
        while True:
            writer.write(chunk(bytes(100_000)))
            await writer.drain()

    async with relaying(script) as (site, pool, up), client(site.address, window=16_384) as c:
        await c.send(get())
        await asyncio.sleep(0.2)
        c.close()
        async with asyncio.timeout(2):
            await up.lost.wait()
        assert (pool.active, pool.idle) == (0, 0)
        await until(lambda: site.server.connections == 0)


@both_loops
async def test_an_early_refusal_of_an_upload_reaches_the_client() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()
        writer.write(answer(b"no", "413 Content Too Large"))
        await asyncio.sleep(0.05)

    async with relaying(script, window=8192) as (site, pool, up), client(site.address) as c:
        for i in range(3):
            await c.send(post(b"x" * 4_000_000))
            reply = await c.answer()
            assert (reply.status, reply.body) == (413, b"no")
            assert (pool.idle, up.connections) == (0, i + 1)


@both_loops
async def test_many_at_once() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            _, body = await read_request(reader)
            writer.write(CHUNKED + chunk(body) + b"0\r\n\r\n")

    async with relaying(script) as (site, pool, up):

        async def one(i: int) -> None:
            async with client(site.address) as c:
                for j in range(10):
                    await c.send(post(b"%d/%d" % (i, j)))
                    assert (await c.answer()).body == b"%d/%d" % (i, j)

        await asyncio.gather(*(one(i) for i in range(40)))
        assert pool.active == site.server.active == 0
        assert pool.idle == up.connections <= 40
