"""Upstreams behind TLS: the name is sent and checked, and calls behave as without it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.http.tools import GRANULARITY, Ear, answer, both_loops, chunk, read_request, upstream
from tier_router_proxy.http import Pool, Reason, Wheel

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Seen:
    def __init__(self, port: int) -> None:
        self.url = f"https://localhost:{port}"
        self.names: list[str] = []
        self.connections = 0
        self.lost = asyncio.Event()


@asynccontextmanager
async def tls_upstream(certificate: Path) -> AsyncIterator[Seen]:
    """Echoes bodies; a body of `stream` starts a stream without an end."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.sni_callback = lambda _, name, __: seen.names.append(name)  # type: ignore[assignment]

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.connections += 1
        try:
            while True:
                _, body = await read_request(reader)
                if body == b"stream":
                    writer.write(CHUNKED + chunk(b"x"))
                    await reader.read()
                    raise EOFError
                writer.write(answer(body))
        except (EOFError, ConnectionError):
            seen.lost.set()
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=context)
    seen = Seen(server.sockets[0].getsockname()[1])
    try:
        yield seen
    finally:
        server.close()
        await asyncio.sleep(0.02)


@both_loops
async def test_calls_over_tls(certificate: Path) -> None:
    async with tls_upstream(certificate) as seen:
        trusting = ssl.create_default_context(cafile=str(certificate))
        pool = Pool(seen.url, Wheel(granularity=GRANULARITY), tls=trusting)
        for body in (b"hello", b"x" * 300_000, b"bye"):
            ear = Ear()
            pool.send(b"POST", b"/", [], body, ear)
            await ear.end()
            assert ear.data == body
        assert (seen.names, seen.connections, pool.idle) == (["localhost"], 1, 1)
        ear = Ear()
        call = pool.send(b"POST", b"/", [], b"stream", ear)
        await ear.begun.wait()
        call.abort()
        async with asyncio.timeout(2):
            await seen.lost.wait()
        assert not ear.over.is_set()
        await pool.close()


@both_loops
async def test_an_unknown_certificate_is_refused(certificate: Path) -> None:
    async with tls_upstream(certificate) as seen:
        pool = Pool(seen.url, Wheel(granularity=GRANULARITY))
        ear = Ear()
        pool.send(b"GET", b"/", [], None, ear)
        failure = await ear.failure()
        assert failure.reason is Reason.CONNECT
        assert "certificate refused" in failure.message
        assert (pool.active, pool.idle) == (0, 0)


@both_loops
async def test_no_tls_on_the_other_side() -> None:
    async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello?")
        await writer.drain()

    async with upstream(script) as up:
        pool = Pool(up.url.replace("http", "https"), Wheel(granularity=GRANULARITY))
        ear = Ear()
        pool.send(b"GET", b"/", [], None, ear)
        failure = await ear.failure()
        assert (failure.reason, failure.message) == (Reason.CONNECT, "no connection: TLS failed")
        assert pool.active == 0
