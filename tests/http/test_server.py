"""The server over real sockets: answers, framings, order, ends, and what handlers do wrong."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from typing import Any

import pytest

from tests.http.tools import both_loops, chunk, client, echo, get, post, serving, until
from tier_router_proxy.http import (
    CHUNKED,
    CLOSE,
    LENGTH,
    NONE,
    Exchange,
    Framing,
    Limits,
    Refusal,
    Server,
)


class Held:
    """A handler that answers nothing by itself."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self.gone: list[Exchange] = []

    def __call__(self, exchange: Exchange) -> None:
        self.exchanges.append(exchange)
        exchange.on_disconnect = lambda: self.gone.append(exchange)

    async def next(self, count: int = 1) -> Exchange:
        await until(lambda: len(self.exchanges) >= count)
        return self.exchanges[count - 1]


@both_loops
async def test_keep_alive_and_pipelining_in_order() -> None:
    async with serving(echo) as site, client(site.address) as c:
        for i in range(3):
            await c.send(post(b"%d" % i))
            assert (await c.answer()).body == b"POST %d" % i
        await c.send(b"".join(get(f"/{i}") for i in range(300)))
        for i in range(300):
            assert (await c.answer()).headers[b"x-path"] == b"/%d" % i
        assert (site.server.connections, site.server.active) == (1, 0)
        assert repr(site.server) == "<Server 1 connections, 0 active>"
    assert site.server.connections == 0


@both_loops
async def test_late_answers_keep_their_order() -> None:
    held = Held()
    async with serving(held) as site, client(site.address) as c:
        await c.send(get("/a") + get("/b") + post(b"c")[:30])
        first = await held.next()
        await asyncio.sleep(0.02)
        assert len(held.exchanges) == 1
        assert site.server.active == 1
        await c.send(post(b"c")[30:])
        first.respond(200, [], b"first")
        (await held.next(2)).respond(200, [], b"second")
        (await held.next(3)).respond(200, [], held.exchanges[2].request.body)
        assert [(await c.answer()).body for _ in range(3)] == [b"first", b"second", b"c"]
        assert held.exchanges[0].client.startswith("127.0.0.1:")
        assert held.gone == []


@pytest.mark.parametrize(
    ("request_bytes", "kept"),
    [
        (get(), True),
        (get(more="Connection: close\r\n"), False),
        (b"GET / HTTP/1.0\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", True),
    ],
)
@both_loops
async def test_the_connections_end(request_bytes: bytes, kept: bool) -> None:
    async with serving(echo) as site, client(site.address) as c:
        await c.send(request_bytes)
        answer = await c.answer()
        assert answer.body == b"GET "
        http10 = b"HTTP/1.0" in request_bytes
        expected = None if kept and not http10 else b"keep-alive" if kept else b"close"
        assert answer.headers.get(b"connection") == expected
        if kept:
            await c.send(get())
            assert (await c.answer()).status == 200
        else:
            assert await c.ended() == b""


@both_loops
async def test_requests_of_every_kind() -> None:
    async with serving(echo) as site, client(site.address) as c:
        await c.send(b"GET http://elsewhere/v1/models?a HTTP/1.1\r\nHost: elsewhere\r\n\r\n")
        assert (await c.answer()).headers[b"x-path"] == b"/v1/models"
        await c.send(
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            + chunk(b"hello ")
            + chunk(b"world")
            + b"0\r\nX-Trailer: 1\r\n\r\n"
        )
        assert (await c.answer()).body == b"POST hello world"
        await c.send(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
        answer = await c.answer(head=True)
        assert (answer.headers[b"content-length"], answer.body) == (b"5", b"")
        for part in [post(b"slowly")[i : i + 1] for i in range(len(post(b"slowly")))]:
            await c.send(part)
        assert (await c.answer()).body == b"POST slowly"


@both_loops
async def test_large_answers_and_bodies() -> None:
    body = b"0123456789" * 300_000
    async with serving(echo) as site, client(site.address) as c:
        sending = asyncio.create_task(c.send(post(body)))
        answer = await c.answer()
        await sending
        assert answer.body == b"POST " + body


# Answers of a relay.


def relayed(framing: Framing, *data: bytes, status: int = 200, headers: Any = ()) -> Any:
    def handler(exchange: Exchange) -> None:
        exchange.start(status, b"Fine", list(headers), framing)
        assert exchange.started
        for piece in data:
            exchange.write(piece)
        exchange.finish()
        assert exchange.closed

    return handler


EVENTS = [chunk(b"data: 1\n\n"), chunk(b"data: [DONE]\n\n"), b"0\r\n\r\n"]


@both_loops
async def test_framings_go_through_byte_for_byte() -> None:
    async with serving(relayed(CHUNKED, *EVENTS)) as site, client(site.address) as c:
        for _ in range(2):
            await c.send(get())
            answer = await c.answer()
            assert answer.headers == {b"transfer-encoding": b"chunked"}
            assert answer.raw == b"".join(EVENTS)
    async with serving(relayed(LENGTH(4), b"ab", b"cd")) as site, client(site.address) as c:
        for _ in range(2):
            await c.send(get())
            answer = await c.answer()
            assert (answer.headers, answer.raw) == ({b"content-length": b"4"}, b"abcd")
    async with serving(relayed(CLOSE, b"ab", b"cd")) as site, client(site.address) as c:
        await c.send(get())
        answer = await c.answer()
        assert (answer.headers, answer.raw) == ({b"connection": b"close"}, b"abcd")


@pytest.mark.parametrize("more", [b"", b"Connection: keep-alive\r\n"])
@both_loops
async def test_http10_gets_no_chunks(more: bytes) -> None:
    async with serving(relayed(CHUNKED, *EVENTS)) as site, client(site.address) as c:
        await c.send(b"GET / HTTP/1.0\r\n" + more + b"\r\n")
        assert await c.ended() == (
            b"HTTP/1.1 200 Fine\r\nconnection: close\r\n\r\ndata: 1\n\ndata: [DONE]\n\n"
        )


@both_loops
async def test_http10_keeps_alive_with_a_length() -> None:
    async with serving(relayed(LENGTH(2), b"ab")) as site, client(site.address) as c:
        for _ in range(2):
            await c.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            answer = await c.answer()
            assert answer.headers == {b"content-length": b"2", b"connection": b"keep-alive"}


@pytest.mark.parametrize(
    ("method", "status", "framing", "headers", "expected"),
    [
        (b"HEAD", 200, NONE, [(b"content-length", b"9")], {b"content-length": b"9"}),
        (b"HEAD", 200, LENGTH(9), [], {b"content-length": b"9"}),
        (b"HEAD", 200, CHUNKED, [], {b"transfer-encoding": b"chunked"}),
        (b"HEAD", 200, CLOSE, [], {}),
        (b"GET", 304, NONE, [(b"content-length", b"9")], {b"content-length": b"9"}),
        (b"GET", 204, NONE, [(b"content-length", b"0")], {}),
        (b"GET", 200, NONE, [], {b"content-length": b"0"}),
    ],
)
@both_loops
async def test_answers_without_a_body(
    method: bytes, status: int, framing: Framing, headers: Any, expected: Any
) -> None:
    data = [] if (method, status) == (b"GET", 200) else [b"must not be seen"]
    handler = relayed(framing, *data, status=status, headers=headers)
    async with serving(handler) as site, client(site.address) as c:
        for _ in range(2):
            await c.send(method + b" / HTTP/1.1\r\nHost: a\r\n\r\n")
            answer = await c.answer(head=True)
            assert (answer.status, answer.headers, answer.raw) == (status, expected, b"")
        assert c.rest == b""


@both_loops
async def test_whole_answers_without_a_body() -> None:
    statuses = iter([204, 304, 200])

    def handler(exchange: Exchange) -> None:
        exchange.respond(next(statuses), [(b"content-length", b"7")], b"body")

    async with serving(handler) as site, client(site.address) as c:
        await c.send(get() * 3)
        first, second, third = [await c.answer() for _ in range(3)]
        assert (first.status, first.headers) == (204, {})
        assert second.status == 304
        assert (third.headers, third.body) == ({b"content-length": b"4"}, b"body")


@both_loops
async def test_a_head_goes_out_although_no_body_follows_yet() -> None:
    held = Held()
    async with serving(held) as site, client(site.address) as c:
        await c.send(get())
        exchange = await held.next()
        exchange.start(200, b"OK", [], CHUNKED)
        assert (await c.recv()).endswith(b"\r\n\r\n")
        exchange.write(chunk(b"a"))
        assert await c.recv() == chunk(b"a")
        exchange.write(b"0\r\n\r\n")
        exchange.finish()
        assert await c.recv() == b"0\r\n\r\n"


@pytest.mark.parametrize(
    ("framing", "data"),
    [
        (LENGTH(5), [b"abc"]),
        (LENGTH(5), [b"abc", b"defgh"]),
        (NONE, [b"x"]),
    ],
)
@both_loops
async def test_an_answer_of_another_length_is_cut(framing: Framing, data: list[bytes]) -> None:
    async with serving(relayed(framing, *data)) as site, client(site.address) as c:
        await c.send(get() + get())
        rest = await c.ended()
        assert rest.count(b"HTTP/1.1") <= 1
        assert not rest.endswith(b"efgh")
        assert site.server.active == 0


@pytest.mark.parametrize("framing", [CHUNKED, LENGTH(100), CLOSE])
@both_loops
async def test_abort_cuts_with_a_reset(framing: Framing) -> None:
    held = Held()
    async with serving(held) as site, client(site.address) as c:
        await c.send(get())
        exchange = await held.next()
        exchange.start(200, b"OK", [], framing)
        exchange.write(chunk(b"half"))
        assert b"half" in await c.recv()
        exchange.abort()
        await c.cut_off()
        await until(lambda: site.server.connections == 0)
        assert site.server.active == 0
        assert held.gone == []


@both_loops
async def test_calls_after_the_end_do_nothing() -> None:
    held = Held()
    async with serving(held) as site, client(site.address) as c, client(site.address) as d:
        await c.send(get())
        finished = await held.next()
        finished.respond(200, [], b"x")
        await d.send(get())
        left = await held.next(2)
        d.close()
        await until(lambda: left.closed)
        for exchange in (finished, left):
            exchange.respond(200, [], b"y")
            exchange.start(200, b"OK", [], CHUNKED)
            exchange.write(b"z")
            exchange.finish()
            exchange.abort()
        await c.send(get())
        (await held.next(3)).respond(200, [], b"next")
        assert [(await c.answer()).body for _ in range(2)] == [b"x", b"next"]
        assert repr(finished) == "<Exchange b'GET' b'/' closed>"


# Clients that leave.


@pytest.mark.parametrize("state", ["waiting", "streaming", "pipelined", "flooded"])
@pytest.mark.parametrize("how", ["fin", "rst"])
@both_loops
async def test_disconnects_are_noticed_at_once(state: str, how: str) -> None:
    held = Held()
    async with serving(held) as site, client(site.address) as c:
        await c.send(get())
        exchange = await held.next()
        if state == "streaming":
            exchange.start(200, b"OK", [], CHUNKED)
            exchange.write(chunk(b"x"))
            assert await c.recv()
        elif state == "pipelined":
            await c.send(post(b"x" * 1000)[:500])
        elif state == "flooded":  # beyond the limit at which the server stops reading
            await c.send(post(b"x" * 300_000)[:200_000])
        await asyncio.sleep(0.02)
        assert not exchange.closed
        began = time.perf_counter()
        if how == "fin":
            c.close()
        else:
            c.reset()
        await until(lambda: held.gone == [exchange])
        assert time.perf_counter() - began < 0.3
        assert exchange.closed
        assert site.server.active == 0
        await until(lambda: site.server.connections == 0)
        assert len(held.exchanges) == 1
        assert held.gone == [exchange]


@both_loops
async def test_a_client_that_stops_sending_has_left_whatever_it_has_not_read() -> None:
    held = Held()
    async with serving(held) as site, client(site.address, window=4096) as c:
        await c.send(get())
        exchange = await held.next()
        exchange.start(200, b"OK", [], CHUNKED)
        exchange.write(chunk(bytes(8_000_000)))
        await asyncio.sleep(0.03)
        c.sock.shutdown(socket.SHUT_WR)
        await until(lambda: held.gone == [exchange], 1)
        await until(lambda: site.server.connections == 0, 1)


@both_loops
async def test_clients_that_leave_between_and_within_requests() -> None:
    held = Held()
    async with serving(held) as site:
        for sent in (b"", b"GET", post(b"12345")[:-3]):
            async with client(site.address) as c:
                await c.send(sent)
                await until(lambda: site.server.connections == 1)
            await until(lambda: site.server.connections == 0)
        assert held.exchanges == []


@both_loops
async def test_a_client_may_stop_sending_once_it_is_answered() -> None:
    body = b"x" * 3_000_000
    async with (
        serving(lambda exchange: exchange.respond(200, [], body)) as site,
        client(site.address, window=4096) as c,
    ):
        await c.send(get())
        await asyncio.sleep(0.03)
        c.sock.shutdown(socket.SHUT_WR)
        answer = await c.answer()
        assert answer.complete
        assert answer.body == body


# Handlers that fail.


@both_loops
async def test_a_failing_handler_is_answered_for(caplog: pytest.LogCaptureFixture) -> None:
    def handler(exchange: Exchange) -> None:
        if exchange.request.path == b"/start":
            exchange.start(200, b"OK", [], LENGTH(5))
        if exchange.request.path != b"/fine":
            raise ZeroDivisionError("on purpose")
        exchange.respond(200, [], b"fine")

    async with serving(handler) as site:
        with caplog.at_level(logging.ERROR, "tier_router_proxy"):
            async with client(site.address) as c:
                await c.send(get("/fail") + get("/fine"))
                failed = await c.answer()
                assert failed.status == 500
                assert json.loads(failed.body)["error"]["type"] == "server_error"
                assert "purpose" not in failed.body.decode()
                assert (await c.answer()).body == b"fine"
            async with client(site.address) as c:
                await c.send(get("/start"))
                assert not (await c.ended()).endswith(b"fine")
        assert site.server.active == 0
    assert [record.exc_info is not None for record in caplog.records] == [True, True]
    assert "ZeroDivisionError" in caplog.text


@both_loops
async def test_failing_callbacks_and_refusals(caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_: object) -> Any:
        raise ZeroDivisionError

    def handler(exchange: Exchange) -> None:
        exchange.on_disconnect = broken

    async with serving(handler, refuse=broken) as site:
        async with client(site.address) as c:
            await c.send(get())
            await until(lambda: site.server.active == 1)
        await until(lambda: site.server.connections == 0)
        assert site.server.active == 0
        async with client(site.address) as c:
            await c.send(b"nonsense\r\n\r\n")
            assert (await c.answer()).status == 400
    assert [record.msg.split(":")[0] for record in caplog.records] == [
        "on_disconnect failed",
        "no error answer for %r",
    ]


@both_loops
async def test_what_a_handler_must_not_do() -> None:
    problems: list[str] = []

    def handler(exchange: Exchange) -> None:
        for headers in ([(b"a", b"b\r\nc: d")], [(b"a\n", b"b")]):
            with pytest.raises(ValueError):
                exchange.respond(200, headers)
        with pytest.raises(ValueError):
            exchange.start(200, b"OK\r\nx: y", [], CHUNKED)
        with pytest.raises(ValueError):
            exchange.start(101, b"", [], NONE)
        exchange.start(200, b"OK", [(b"connection", b"x"), (b"content-length", b"1")], LENGTH(2))
        with pytest.raises(RuntimeError):
            exchange.start(200, b"OK", [], LENGTH(2))
        with pytest.raises(RuntimeError):
            exchange.respond(200, [])
        exchange.write(b"ab")
        exchange.finish()
        problems.append("none")

    async with serving(handler) as site, client(site.address) as c:
        await c.send(get())
        assert (await c.answer()).headers == {b"content-length": b"2"}
        assert problems == ["none"]


# Refusals.


@both_loops
async def test_refusals_are_shaped_by_the_caller() -> None:
    def refuse(refusal: Refusal) -> Any:
        return [(b"x-code", refusal.code.encode())], b"no"

    async with serving(echo, refuse=refuse) as site, client(site.address) as c:
        await c.send(get("/first") + b"GET / HTTP/1.1\r\n\r\n" + get("/never"))
        assert (await c.answer()).headers[b"x-path"] == b"/first"
        answer = await c.answer()
        assert (answer.status, answer.body) == (400, b"no")
        assert answer.headers[b"x-code"] == b"bad_host"
        assert answer.headers[b"connection"] == b"close"
        assert await c.ended() == b""


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (b"nonsense\r\n\r\n", 400, "bad_method"),
        (b"GET nonsense\r\n\r\n", 400, "bad_request"),
        (get(more="X: " + "x" * 5000 + "\r\n"), 431, "headers_too_large"),
        (get("/" + "x" * 5000), 431, "headers_too_large"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n", 413, "body_too_large"),
        (
            post(b"x", "Transfer-Encoding: chunked\r\n"),
            400,
            "bad_request",
        ),
        (post(b"x", "Content-Length: 2\r\n"), 400, "bad_request"),
        (get(more="X: a\r\n b\r\n"), 400, "bad_request"),
        (b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400, "bad_host"),
    ],
)
@both_loops
async def test_refusals(data: bytes, status: int, code: str) -> None:
    async with serving(echo, limits=Limits(head=4096, body=10_000)) as site:
        async with client(site.address) as c:
            await c.send(data)
            answer = await c.answer()
            assert answer.status == status
            error = json.loads(answer.body)["error"]
            assert (error["code"], error["type"]) == (code, "invalid_request_error")
            assert answer.headers[b"content-type"] == b"application/json"
            assert await c.ended() == b""
        await until(lambda: site.server.connections == 0)


@both_loops
async def test_a_refused_head_request_gets_no_body() -> None:
    async with serving(echo) as site, client(site.address) as c:
        await c.send(b"HEAD / HTTP/1.1\r\n\r\n")
        assert (await c.ended()).endswith(b"\r\n\r\n")


# Listening.


@both_loops
async def test_listening_in_several_places() -> None:
    server = Server(echo)
    assert (server.connections, server.active) == (0, 0)
    await server.close()
    assert await server.drain(1)
    addresses = [await server.listen(host, 0) for host in ("127.0.0.1", "::1", "localhost")]
    for address in addresses:
        async with client(address) as c:
            await c.send(get())
            assert (await c.answer()).status == 200
    with pytest.raises(OSError, match="in use"):
        await server.listen("127.0.0.1", addresses[0][1])
    await server.close()
    with pytest.raises(ConnectionRefusedError):
        async with client(addresses[0]):
            pass


@both_loops
async def test_workers_share_a_port() -> None:
    first, second = Server(echo), Server(echo)
    host, port = await first.listen("127.0.0.1", 0, reuse_port=True)
    assert await second.listen(host, port, reuse_port=True) == (host, port)
    await first.close()
    async with client((host, port)) as c:
        await c.send(get())
        assert (await c.answer()).status == 200
    await second.close()


@both_loops
async def test_ipv6_clients_have_brackets() -> None:
    held = Held()
    server = Server(held)
    address = await server.listen("::1", 0)
    async with client(address) as c:
        await c.send(get())
        assert (await held.next()).client.startswith("[::1]:")
    await server.close()
