"""The pool and its connections, against scripted upstreams over real sockets."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from tests.http.tools import (
    GRANULARITY,
    Ear,
    answer,
    both_loops,
    chunk,
    hang,
    read_request,
    reset,
    until,
    upstream,
)
from tier_router_proxy.http import Call, Pool, Reason, Wheel
from tier_router_proxy.http.messages import FramingKind

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def wheel() -> Wheel:
    return Wheel(granularity=GRANULARITY)


def ask(pool: Pool, body: bytes | list[bytes] | None = None) -> tuple[Call, Ear]:
    ear = Ear()
    return pool.send(b"POST", b"/v1", [(b"x", b"y")], body, ear), ear


async def ok(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers every request with its body."""
    while True:
        _, body = await read_request(reader)
        writer.write(answer(body or b"-"))


@both_loops
async def test_one_connection_serves_many_calls() -> None:
    heads: list[bytes] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head, body = await read_request(reader)
            heads.append(head)
            writer.write(answer(body))

    async with upstream(script) as up:
        pool = Pool(up.url + "/base/", wheel())
        for i, body in enumerate([b"hi", [b"a", b"b", b"c"], b"x" * 100_000, [b""]]):
            call, ear = ask(pool, body)
            assert repr(call) == ("<Call running, reused>" if i else "<Call running>")
            head = await ear.end()
            assert call.reused == (i > 0)
            assert head.status == 200
            assert ear.data == (body if isinstance(body, bytes) else b"".join(body))
            assert repr(call).startswith("<Call over")
        assert up.connections == 1
        assert repr(pool) == f"<Pool {up.url}/base/: 0 active, 1 idle>"
        assert heads[0] == (
            b"POST /base/v1 HTTP/1.1\r\nhost: %s\r\nx: y\r\ncontent-length: 2\r\n\r\n" % pool.host
        )
        await pool.close()
        assert (pool.active, pool.idle) == (0, 0)
        await up_lost(up.lost)


async def up_lost(event: asyncio.Event) -> None:
    async with asyncio.timeout(2):
        await event.wait()


@both_loops
async def test_targets_and_bodiless_requests() -> None:
    lines: list[bytes] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head, _ = await read_request(reader)
            lines.append(head.partition(b"\r\n")[0])
            assert b"content-length" not in head
            length = b"Content-Length: 5\r\n\r\n"
            writer.write(HEAD + length + (b"" if head.startswith(b"HEAD") else b"hello"))

    async with upstream(script) as up:
        pool = Pool(up.url, wheel())
        for method, target in [
            (b"GET", b"/a?b"),
            (b"HEAD", b"/a"),
            (b"GET", b"http://elsewhere:1/a?b"),
            (b"GET", b"http://elsewhere?b"),
            (b"OPTIONS", b"*"),
        ]:
            ear = Ear()
            pool.send(method, target, [], None, ear)
            head = await ear.end()
            assert head.header(b"content-length") == b"5"
            assert ear.data == (b"" if method == b"HEAD" else b"hello")
        assert lines == [
            b"GET /a?b HTTP/1.1",
            b"HEAD /a HTTP/1.1",
            b"GET /a?b HTTP/1.1",
            b"GET /?b HTTP/1.1",
            b"OPTIONS * HTTP/1.1",
        ]
        assert up.connections == 1
        with pytest.raises(ValueError):
            pool.send(b"GET", b"/a\r\nx: y", [], None, Ear())
        with pytest.raises(ValueError):
            pool.send(b"GET", b"/", [(b"a", b"b\r\nc: d")], None, Ear())
        assert pool.active == 0
        await pool.close()


@pytest.mark.parametrize(
    ("raw", "kind", "body", "kept"),
    [
        (answer(b"hello"), FramingKind.LENGTH, b"hello", True),
        (answer(b""), FramingKind.LENGTH, b"", True),
        (answer(b"x", more="Connection: close\r\n"), FramingKind.LENGTH, b"x", False),
        (CHUNKED + chunk(b"a") + b"0\r\n\r\n", FramingKind.CHUNKED, b"1\r\na\r\n0\r\n\r\n", True),
        (HEAD + b"\r\nuntil the end", FramingKind.CLOSE, b"until the end", False),
        (HEAD + b"\r\n", FramingKind.CLOSE, b"", False),
        (b"HTTP/1.1 204 No Content\r\n\r\n", FramingKind.NONE, b"", True),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", FramingKind.LENGTH, b"x", False),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + answer(b"x"), FramingKind.LENGTH, b"x", True),
        (answer(b"x") + b"surplus", FramingKind.LENGTH, b"x", False),
        (answer(b"x") + answer(b"y"), FramingKind.LENGTH, b"x", False),
        (b"HTTP/1.1 204 No Content\r\n\r\nx", FramingKind.NONE, b"", False),
    ],
)
@pytest.mark.parametrize("step", [1, 10_000])
@both_loops
async def test_framings(raw: bytes, kind: FramingKind, body: bytes, kept: bool, step: int) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        for i in range(0, len(raw), step):
            writer.write(raw[i : i + step])
            await asyncio.sleep(0)
        if kind is not FramingKind.CLOSE:
            await hang(reader)

    async with upstream(script) as up:
        pool = Pool(up.url, wheel())
        _, ear = ask(pool)
        head = await ear.end()
        assert head.framing.kind is kind
        assert ear.data == body
        if kept:
            assert pool.idle == 1
        else:
            await until(lambda: pool.idle == 0, 1)  # well before the idle timeout
        await pool.close()


@pytest.mark.parametrize("how", ["fin", "rst"])
@both_loops
async def test_stale_connections_fail_no_call(how: str) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(answer())
        await writer.drain()
        if how == "fin":
            return
        # Reset exactly when the next request arrives, as a server does that has closed by then.
        await reader.read(1)
        reset(writer)

    async with upstream(script) as up:
        pool = Pool(up.url, wheel())
        reused = 0
        for i in range(60):
            call, ear = ask(pool, b"x")
            reused += call.reused
            await ear.end()
            assert ear.data == b"ok"
            if how == "fin" and i % 3 == 0:
                await asyncio.sleep(0.001)
        assert how == "fin" or reused > 20
        assert pool.active == 0
        await pool.close()


@both_loops
async def test_retried_once_only_and_never_a_fresh_one() -> None:
    requests = 0

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        await read_request(reader)
        requests += 1
        if requests == 1:
            writer.write(answer())
            await read_request(reader)
            requests += 1

    async with upstream(script) as up:
        pool = Pool(up.url, wheel())
        _, ear = ask(pool)
        await ear.end()
        call, ear = ask(pool, b"again")  # dies on the reused one, then on the fresh one
        assert call.reused
        failure = await ear.failure()
        assert (failure.reason, failure.started) == (Reason.CLOSED, False)
        assert not call.reused
        assert (requests, up.connections) == (3, 2)
        _, ear = ask(pool)  # and on a fresh one at once
        assert (await ear.failure()).reason is Reason.CLOSED
        assert up.connections == 3
        assert (pool.active, pool.idle) == (0, 0)


@both_loops
async def test_not_retried_after_a_byte() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(answer())
        await read_request(reader)
        writer.write(b"H")
        await asyncio.sleep(0.02)

    async with upstream(script) as up:
        pool = Pool(up.url, wheel())
        _, ear = ask(pool)
        await ear.end()
        _, ear = ask(pool)
        failure = await ear.failure()
        assert (failure.reason, failure.started) == (Reason.CLOSED, True)
        assert up.connections == 1


@both_loops
async def test_the_deadline_goes_along_with_a_retry() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        if up.connections == 1:
            writer.write(answer())
            await read_request(reader)
        else:
            await hang(reader)

    async with upstream(script) as up:
        pool = Pool(up.url, wheel())
        _, ear = ask(pool)
        await ear.end()
        call, ear = ask(pool)
        call.expect(0.15)
        failure = await ear.failure()
        assert failure.reason is Reason.TIMEOUT
        assert up.connections == 2


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize(
    "part", [b"HTTP/1.1 2", HEAD + b"Content-Length: 9\r\n\r\nabc", CHUNKED + chunk(b"abc")]
)
@both_loops
async def test_upstream_dies_in_the_middle(how: str, part: bytes) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(part)
        await asyncio.sleep(0.02)
        if how == "rst":
            reset(writer)

    async with upstream(script) as up:
        pool = Pool(up.url, wheel())
        _, ear = ask(pool)
        failure = await ear.failure()
        assert (failure.reason, failure.started) == (Reason.CLOSED, True)
        assert "middle" in failure.message
        assert pool.idle == pool.active == 0


@both_loops
async def test_a_reset_does_not_end_an_answer_that_ends_with_the_connection() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(HEAD + b"\r\nhalf of")
        await asyncio.sleep(0.02)
        reset(writer)

    async with upstream(script) as up:
        _, ear = ask(Pool(up.url, wheel()))
        assert (await ear.failure()).reason is Reason.CLOSED
        assert ear.data == b"half of"


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"x" * 70_000,
        CHUNKED + b"zz\r\n",
        CHUNKED + b"1\r\nabc",
    ],
)
@both_loops
async def test_what_is_not_http(raw: bytes) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(raw)
        await hang(reader)

    async with upstream(script) as up:
        _, ear = ask(Pool(up.url, wheel()))
        failure = await ear.failure()
        assert (failure.reason, failure.started) == (Reason.BAD_ANSWER, True)
        await up_lost(up.lost)


@both_loops
async def test_unsolicited_bytes_close_an_idle_connection() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(answer())
        await asyncio.sleep(0.03)
        writer.write(answer(b"for nobody"))
        await hang(reader)

    async with upstream(script) as up:
        pool = Pool(up.url, wheel())
        _, ear = ask(pool)
        await ear.end()
        assert pool.idle == 1
        await until(lambda: pool.idle == 0)
        await up_lost(up.lost)


@both_loops
async def test_idle_connections_are_closed_in_time_and_in_number() -> None:
    async with upstream(ok) as up:
        pool = Pool(up.url, wheel(), idle_timeout=0.1, max_idle=2)
        ears = [ask(pool)[1] for _ in range(4)]
        for ear in ears:
            await ear.end()
        assert up.connections == 4
        assert pool.idle == 2
        await asyncio.sleep(0.06)
        call, ear = ask(pool)
        assert call.reused
        await ear.end()
        await until(lambda: pool.idle == 1, 1)  # the one that was not used again
        await until(lambda: pool.idle == 0, 1)


@both_loops
async def test_a_connection_at_its_idle_limit_is_not_used() -> None:
    async with upstream(ok) as up:
        pool = Pool(up.url, wheel(), idle_timeout=0.03)
        _, ear = ask(pool)
        await ear.end()
        time.sleep(0.04)  # noqa: ASYNC251 - the loop must not get to close it by itself
        call, ear = ask(pool)
        assert not call.reused
        await ear.end()
        await pool.close()


@both_loops
async def test_close_lets_calls_end() -> None:
    go = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        await go.wait()
        writer.write(answer())
        await hang(reader)

    async with upstream(script) as up:
        pool = Pool(up.url, wheel())
        _, ear = ask(pool)
        await until(lambda: up.connections == 1)
        await pool.close()
        assert pool.active == 1
        go.set()
        await ear.end()
        assert pool.idle == 0
        await up_lost(up.lost)


# Cut off, in every state.


@both_loops
async def test_abort_while_waiting_and_while_streaming() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, body = await read_request(reader)
        if body == b"stream":
            writer.write(CHUNKED + chunk(b"x"))
        await hang(reader)

    for what in (b"wait", b"stream"):
        async with upstream(script) as up:
            pool = Pool(up.url, wheel())
            call, ear = ask(pool, what)
            if what == b"stream":
                await ear.begun.wait()
            else:
                await until(lambda up=up: up.connections == 1)
            began = time.perf_counter()
            call.abort()
            assert (pool.active, pool.idle) == (0, 0)
            await up_lost(up.lost)
            assert time.perf_counter() - began < 0.5
            call.abort()
            call.pause()
            call.resume()
            call.expect(1)
            assert not ear.over.is_set()


@pytest.mark.parametrize("when", ["head", "data"])
@both_loops
async def test_abort_from_the_listener(when: str) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(CHUNKED + chunk(b"x") + b"0\r\n\r\n")
        await hang(reader)

    class Fickle(Ear):
        def on_head(self, head: object) -> None:
            if when == "head":
                call.abort()

        def on_data(self, data: bytes) -> None:
            assert when == "data"
            call.abort()

    async with upstream(script) as up:
        ear = Fickle()
        call = Pool(up.url, wheel()).send(b"GET", b"/", [], None, ear)
        await up_lost(up.lost)
        assert not ear.over.is_set()


def blackhole() -> tuple[socket.socket, list[socket.socket], str]:
    """A listener that completes no further handshake: its backlog is full."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen(0)
    fillers = []
    for _ in range(4):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(sock.getsockname())
        fillers.append(filler)
    return sock, fillers, f"http://127.0.0.1:{sock.getsockname()[1]}"


@both_loops
async def test_connecting_times_out_or_is_aborted() -> None:
    sock, fillers, url = blackhole()
    try:
        pool = Pool(url, wheel(), connect_timeout=0.05)
        _, ear = ask(pool)
        failure = await ear.failure()
        assert (failure.reason, failure.started) == (Reason.CONNECT_TIMEOUT, False)
        pool.connect_timeout = 30
        call, ear = ask(pool)
        call.expect(0.05)
        assert (await ear.failure()).reason is Reason.TIMEOUT
        call, ear = ask(pool)
        await asyncio.sleep(0.01)
        assert pool.active == 1
        call.pause()
        call.resume()
        call.abort()
        assert pool.active == 0
        await asyncio.sleep(0.01)
        assert not ear.over.is_set()
        assert not pool._connecting
    finally:
        for each in [sock, *fillers]:
            each.close()


@both_loops
async def test_aborted_in_the_turn_that_connects() -> None:
    async with upstream(ok) as up:
        pool = Pool(up.url, wheel())
        for turns in range(6):
            call, ear = ask(pool)
            for _ in range(turns):
                await asyncio.sleep(0)
            done = ear.over.is_set()  # uvloop needs few turns
            call.abort()
            await asyncio.sleep(0.01)
            assert ear.over.is_set() == done
            if done:
                break
            assert (pool.active, pool.idle) == (0, 0)
        await pool.close()
        await until(lambda: all(writer.transport.is_closing() for writer in up.writers))


@both_loops
async def test_nobody_there() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    pool = Pool(f"http://127.0.0.1:{port}", wheel())
    _, ear = ask(pool)
    failure = await ear.failure()
    assert (failure.reason, failure.started) == (Reason.CONNECT, False)
    assert failure.message == "no connection: refused"


@pytest.mark.parametrize("host", ["a..b", "no-such-host.invalid"])
@both_loops
async def test_names_that_lead_nowhere(host: str) -> None:
    _, ear = ask(Pool(f"http://{host}:1", wheel()))
    assert (await ear.failure()).reason is Reason.CONNECT


# Flow control and time.


@both_loops
async def test_deadlines() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        for _ in range(6):
            await asyncio.sleep(0.05)
            writer.write((CHUNKED if _ == 0 else b"") + chunk(b"x"))
        await hang(reader)

    class Patient(Ear):
        def on_data(self, data: bytes) -> None:
            super().on_data(data)
            call.expect(0.12)

    async with upstream(script) as up:
        ear = Patient()
        call = Pool(up.url, wheel()).send(b"GET", b"/", [], None, ear)
        call.expect(0.2)
        began = time.perf_counter()
        failure = await ear.failure()
        assert (failure.reason, failure.started) == (Reason.TIMEOUT, True)
        assert failure.message == "answer stalled within the time limit"
        assert 0.3 + 0.12 - 0.05 < time.perf_counter() - began < 2
        await up_lost(up.lost)


@pytest.mark.parametrize("clear", [0, float("inf")])
@both_loops
async def test_cleared_deadlines(clear: float) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            await asyncio.sleep(0.15)
            writer.write(answer())

    async with upstream(script) as up:
        pool = Pool(up.url, wheel())
        call, ear = ask(pool)
        call.expect(0.05)
        call.expect(clear)
        await ear.end()
        _, ear = ask(pool)  # nor does one of an earlier call count
        await ear.end()
        assert up.connections == 1
        await pool.close()


@both_loops
async def test_pause_holds_back_data_and_deadline() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(CHUNKED + chunk(b"1"))
        await asyncio.sleep(0.03)
        writer.write(chunk(b"2"))
        await asyncio.sleep(0.2)
        writer.write(b"0\r\n\r\n")
        await hang(reader)

    async with upstream(script) as up:
        pool = Pool(up.url, wheel())
        call, ear = ask(pool)
        await ear.begun.wait()
        call.pause()
        call.expect(0.1)
        await asyncio.sleep(0.18)
        assert ear.data == chunk(b"1")
        assert not ear.over.is_set()
        call.expect(5)
        call.resume()
        await ear.end()
        assert ear.data == chunk(b"1") + chunk(b"2") + b"0\r\n\r\n"
        assert pool.idle == 1
        await pool.close()


@both_loops
async def test_a_call_paused_at_its_end_leaves_a_reading_connection() -> None:
    class Full(Ear):
        def on_data(self, data: bytes) -> None:
            super().on_data(data)
            call.pause()

    async with upstream(ok) as up:
        pool = Pool(up.url, wheel())
        for _ in range(3):
            ear = Full()
            call = pool.send(b"GET", b"/", [], None, ear)
            await ear.end()
            assert pool.idle == 1
        assert up.connections == 1
        up.writers[0].close()
        await until(lambda: pool.idle == 0)


@both_loops
async def test_paused_before_connected() -> None:
    async with upstream(ok) as up:
        pool = Pool(up.url, wheel())
        call, ear = ask(pool)
        call.pause()
        await asyncio.sleep(0.05)
        assert ear.head is None
        call.resume()
        await ear.end()
        await pool.close()


@both_loops
async def test_large_upload_to_a_slow_upstream() -> None:
    body = bytes(range(256)) * 32_000

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.05)
        got = b"".join([await reader.readexactly(256_000) for _ in range(32)])
        writer.write(answer(b"same" if got == body else b"other"))
        await hang(reader)

    async with upstream(script, window=8192) as up:
        pool = Pool(up.url, wheel())
        _, ear = ask(pool, [body[:100], body[100:]])
        await ear.end()
        assert ear.data == b"same"
        assert pool.idle == 1
        await pool.close()


@pytest.mark.parametrize("then", ["wait", "close", "reset"])
@both_loops
async def test_early_answers_are_delivered(then: str) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()
        writer.write(answer(b"too much", "413 Content Too Large"))
        await writer.drain()
        if then == "reset":
            await asyncio.sleep(0.02)
        elif then == "wait":
            await asyncio.Event().wait()

    async with upstream(script, window=8192) as up:
        pool = Pool(up.url, wheel())
        _, ear = ask(pool, b"x" * 8_000_000)
        head = await ear.end()
        assert (head.status, ear.data) == (413, b"too much")
        assert (pool.active, pool.idle) == (0, 0)


# Addresses.


@pytest.mark.parametrize(
    ("url", "address", "host", "base"),
    [
        ("http://vllm", ("vllm", 80), b"vllm", b""),
        ("http://vllm:8000/", ("vllm", 8000), b"vllm:8000", b""),
        ("https://vllm/gpu/0/", ("vllm", 443), b"vllm", b"/gpu/0"),
        ("https://vllm:80", ("vllm", 80), b"vllm:80", b""),
        ("http://[::1]:8000/v", ("::1", 8000), b"[::1]:8000", b"/v"),
        ("http://büro.example", ("büro.example", 80), b"xn--bro-hoa.example", b""),
    ],
)
@both_loops
async def test_urls(url: str, address: tuple[str, int], host: bytes, base: bytes) -> None:
    pool = Pool(url, wheel())
    assert (pool._address, pool.host, pool._base) == (address, host, base)


@pytest.mark.parametrize(
    "url",
    ["vllm:8000", "ftp://vllm", "http://", "http://u:p@vllm", "http://vllm/?a", "http://vllm/#a"],
)
@both_loops
async def test_bad_urls(url: str) -> None:
    with pytest.raises(ValueError, match="URL"):
        Pool(url, wheel())


@both_loops
async def test_ipv6() -> None:
    server = await asyncio.start_server(lambda r, w: _serve_once(r, w), "::1", 0)
    port = server.sockets[0].getsockname()[1]
    pool = Pool(f"http://[::1]:{port}", wheel())
    _, ear = ask(pool)
    await ear.end()
    await pool.close()
    server.close()


async def _serve_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)
    writer.write(answer())
    writer.close()
