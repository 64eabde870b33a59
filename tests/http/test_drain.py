"""The end of a server: what runs may end, what waits is served, what takes too long is cut."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from tests.http.tools import both_loops, chunk, client, echo, get, post, serving, until
from tier_router_proxy.http import CHUNKED, Exchange, Limits


@both_loops
async def test_running_answers_end_and_idle_connections_close() -> None:
    held: list[Exchange] = []

    def handler(exchange: Exchange) -> None:
        if exchange.request.path == b"/held":
            held.append(exchange)
        else:
            echo(exchange)

    async with (
        serving(handler) as site,
        client(site.address) as idle,
        client(site.address) as streaming,
        client(site.address) as waiting,
        client(site.address) as sending,
    ):
        await idle.send(get())
        assert (await idle.answer()).status == 200
        await streaming.send(get("/held"))
        await until(lambda: len(held) == 1)
        held[0].start(200, b"OK", [], CHUNKED)
        assert b"connection" not in await streaming.recv()
        await waiting.send(get("/held") + get("/behind"))
        await sending.send(post(b"hello")[:-2])
        await until(lambda: len(held) == 2)

        draining = asyncio.create_task(site.server.drain(5))
        assert await idle.ended() == b""
        with pytest.raises(ConnectionRefusedError):
            async with client(site.address):
                pass
        await sending.send(b"lo")
        answer = await sending.answer()
        assert (answer.body, answer.headers[b"connection"]) == (b"POST hello", b"close")
        assert await sending.ended() == b""
        held[1].respond(200, [], b"first")
        first = await waiting.answer()
        assert (first.body, first.headers[b"connection"]) == (b"first", b"close")
        assert await waiting.ended() == b""
        held[0].write(chunk(b"x") + b"0\r\n\r\n")
        assert not draining.done()
        held[0].finish()
        assert await streaming.recv() == chunk(b"x") + b"0\r\n\r\n"
        assert await streaming.recv() == b""
        for c in (streaming, waiting, sending):
            c.close()
        began = time.perf_counter()
        assert await draining is True
        assert time.perf_counter() - began < 1
        assert (site.server.connections, site.server.active) == (0, 0)


@both_loops
async def test_what_takes_too_long_is_cut() -> None:
    gone: list[Exchange] = []

    def handler(exchange: Exchange) -> None:
        exchange.on_disconnect = lambda: gone.append(exchange)
        exchange.start(200, b"OK", [], CHUNKED)

    async with (
        serving(handler) as site,
        client(site.address) as streaming,
        client(site.address) as sending,
    ):
        await streaming.send(get())
        assert await streaming.recv()
        await sending.send(post(b"hello")[:-2])
        await until(lambda: site.server.connections == 2)
        began = time.perf_counter()
        assert await site.server.drain(0.1) is False
        assert 0.1 <= time.perf_counter() - began < 2
        assert len(gone) == 1
        with pytest.raises(ConnectionResetError):
            await streaming.recv()
        assert await sending.ended() == b""
        assert (site.server.connections, site.server.active) == (0, 0)


@both_loops
async def test_the_backlog_is_served() -> None:
    async with serving(echo) as site:
        socks = []
        for i in range(50):
            sock = socket.create_connection(site.address)  # the loop had no turn to accept it
            if i % 2:
                sock.sendall(get(f"/{i}"))
            sock.setblocking(False)
            socks.append(sock)
        draining = asyncio.create_task(site.server.drain(5))
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0.05)
        for i, sock in enumerate(socks):
            if not i % 2:  # connected before the drain, asking only now
                await loop.sock_sendall(sock, get(f"/{i}"))
            data = await loop.sock_recv(sock, 65536)
            assert data.startswith(b"HTTP/1.1 200"), data
            assert b"connection: close" in data
            assert await loop.sock_recv(sock, 65536) == b""
            sock.close()
        assert await draining is True


@both_loops
async def test_connections_accepted_in_the_last_moment_are_served() -> None:
    for turns in range(4):
        async with serving(echo) as site:
            sock = socket.create_connection(site.address)
            sock.sendall(get())
            sock.setblocking(False)
            for _ in range(turns):
                await asyncio.sleep(0)
            draining = asyncio.create_task(site.server.drain(5))
            data = await asyncio.get_running_loop().sock_recv(sock, 65536)
            assert data.startswith(b"HTTP/1.1 200")
            sock.close()
            assert await draining is True


@both_loops
async def test_connections_made_in_every_turn_are_served_or_refused() -> None:
    async with serving(echo) as site:
        draining = asyncio.create_task(site.server.drain(5))
        socks = []
        for _ in range(12):
            try:
                sock = socket.create_connection(site.address)
            except ConnectionRefusedError:
                break
            sock.sendall(get())
            sock.setblocking(False)
            socks.append(sock)
            await asyncio.sleep(0)
        else:
            pytest.fail("still listening")
        for sock in socks:
            data = await asyncio.get_running_loop().sock_recv(sock, 65536)
            assert data.startswith(b"HTTP/1.1 200")
            sock.close()
        assert await draining is True


@both_loops
async def test_a_new_connection_that_asks_nothing_holds_nothing_up_for_long() -> None:
    async with serving(echo) as site, client(site.address) as c:
        await until(lambda: site.server.connections == 1)
        assert await site.server.drain(10) is True
        assert await c.ended() == b""


@both_loops
async def test_a_request_that_is_here_already_is_served() -> None:
    async with serving(echo) as site, client(site.address) as c:
        await c.send(get())
        await c.answer()
        draining = asyncio.create_task(site.server.drain(5))
        await asyncio.sleep(0)
        c.sock.sendall(get("/late"))
        answer = await c.answer()
        assert (answer.headers[b"x-path"], answer.headers[b"connection"]) == (b"/late", b"close")
        c.close()
        assert await draining is True


@both_loops
async def test_a_slow_reader_gets_the_rest() -> None:
    size = 6_000_000

    def handler(exchange: Exchange) -> None:
        exchange.respond(200, [], bytes(size))

    async with serving(handler) as site, client(site.address, window=16_384) as c:
        await c.send(get())
        await asyncio.sleep(0.02)
        draining = asyncio.create_task(site.server.drain(5))
        await asyncio.sleep(0.02)
        answer = await c.answer()
        assert len(answer.body) == size
        c.close()
        assert await draining is True


@both_loops
async def test_lingering_clients_are_not_waited_for_beyond_the_limit() -> None:
    async with serving(echo, limits=Limits(linger=10)) as site, client(site.address) as c:
        await c.send(b"nonsense\r\n\r\n")
        assert (await c.answer()).status == 400
        began = time.perf_counter()
        assert await site.server.drain(0.1) is True
        assert time.perf_counter() - began < 2
        assert await c.ended() == b""


@both_loops
async def test_closing_twice_and_during_a_drain() -> None:
    held: list[Exchange] = []
    async with serving(held.append) as site, client(site.address) as c:
        await c.send(get())
        await until(lambda: len(held) == 1)
        draining = asyncio.create_task(site.server.drain(5))
        await asyncio.sleep(0.01)
        await site.server.close()
        assert held[0].closed
        assert await draining is True
        await site.server.close()
        assert await site.server.drain(1) is True
