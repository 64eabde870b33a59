"""Peers on loopback for the wire's tests: clients, upstreams, a relay, and both kinds of loop."""

from __future__ import annotations

import asyncio
import functools
import inspect
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from tier_router_proxy.http import (
    Call,
    Exchange,
    Handler,
    Head,
    Limits,
    Pool,
    Server,
    UpstreamFailure,
    Wheel,
    client_headers,
    upstream_headers,
)
from tier_router_proxy.http.framing import Walker
from tier_router_proxy.http.responses import HeadReader

uvloop = pytest.importorskip("uvloop")

# Fine enough for tests to wait for timeouts of hundredths of a second.
GRANULARITY = 0.02
# A test that hangs fails after this long.
LIMIT = 20.0

Test = Callable[..., Awaitable[None]]


def both_loops(test: Test) -> Callable[..., None]:
    """Run a test on stock asyncio and on uvloop; what the loop has to report fails it, too."""
    return pytest.mark.parametrize(
        "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
    )(_runner(test))


def _runner(test: Test) -> Callable[..., None]:
    @functools.wraps(test)
    def run(new_loop: Callable[[], asyncio.AbstractEventLoop], **given: Any) -> None:
        reports: list[dict[str, Any]] = []

        async def main() -> None:
            asyncio.get_running_loop().set_exception_handler(
                lambda _, context: reports.append(context)
            )
            async with asyncio.timeout(LIMIT):
                await test(**given)

        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(main())
        if reports:
            pytest.fail(f"the loop had to report {reports}")

    run.__signature__ = _signature(test)  # type: ignore[attr-defined]
    del run.__wrapped__  # type: ignore[attr-defined]
    return run


def _signature(test: Test) -> Any:
    signature = inspect.signature(test)
    loop = inspect.Parameter("new_loop", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return signature.replace(parameters=[loop, *signature.parameters.values()])


# Clients.


@dataclass
class Answer:
    """What a client read."""

    status: int
    headers: dict[bytes, bytes]
    # As it came over the wire, and with the chunks taken apart.
    raw: bytes
    body: bytes
    complete: bool


class Client:
    """One client connection, with plain sockets' manners."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.rest = b""

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.sock, data)

    async def recv(self, size: int = 65536) -> bytes:
        return await asyncio.get_running_loop().sock_recv(self.sock, size)

    async def answer(self, *, head: bool = False) -> Answer:
        """The next answer; ends early, and says so, if the connection does."""
        reader = HeadReader(1 << 20, no_body=head)
        data, self.rest = self.rest, b""
        while not data or (found := reader.feed(data)) is None:
            data = await self.recv()
            if not data:
                raise EOFError("no answer")
        top, data = found
        walker = Walker(top.framing)
        raw, body = b"", []
        while True:
            pieces, end = walker.payload(data)
            raw += data[:end]
            body += pieces
            if walker.done:
                self.rest = data[end:]
                return Answer(top.status, dict(top.headers), raw, b"".join(body), True)
            data = await self.recv()
            if not data:
                whole = top.framing.kind.value == "close"
                return Answer(top.status, dict(top.headers), raw, b"".join(body), whole)

    async def ended(self, seconds: float = 5.0) -> bytes:
        """Everything until the server closes or resets."""
        data = self.rest
        async with asyncio.timeout(seconds):
            while True:
                try:
                    more = await self.recv()
                except ConnectionError:
                    return data
                if not more:
                    return data
                data += more

    async def cut_off(self) -> None:
        """Read until the connection is reset; an ordinary end would pass for the answer's."""
        with pytest.raises(ConnectionResetError):
            await self._read_all()

    async def _read_all(self) -> None:
        while await self.recv():
            pass

    def reset(self) -> None:
        """Go away with a reset."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def close(self) -> None:
        self.sock.close()


@asynccontextmanager
async def client(address: tuple[str, int], *, window: int = 0) -> AsyncIterator[Client]:
    """A connected client; `window` makes its receive buffer small."""
    sock = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
    try:
        sock.setblocking(False)
        if window:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        await asyncio.get_running_loop().sock_connect(sock, address)
        yield Client(sock)
    finally:
        sock.close()


def get(path: str = "/", more: str = "") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: a\r\n{more}\r\n".encode()


def post(body: bytes, more: str = "") -> bytes:
    head = f"POST / HTTP/1.1\r\nHost: a\r\n{more}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


# Servers.


@dataclass
class Site:
    server: Server
    address: tuple[str, int]
    wheel: Wheel


@asynccontextmanager
async def serving(
    handler: Handler, *, limits: Limits | None = None, **more: Any
) -> AsyncIterator[Site]:
    """A server that answers with this handler."""
    wheel = Wheel(granularity=GRANULARITY)
    server = Server(handler, limits or Limits(), wheel, **more)
    address = await server.listen("127.0.0.1", 0)
    try:
        yield Site(server, address, wheel)
    finally:
        await server.close()
        wheel.close()


def echo(exchange: Exchange) -> None:
    """Answers with what it was asked."""
    request = exchange.request
    exchange.respond(200, [(b"x-path", request.path)], request.method + b" " + request.body)


Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Upstream:
    """A scripted upstream; the script runs once per connection."""

    url: str
    connections: int = 0
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    # Connections that ended from the other side while a script read on (see `gone`).
    lost: asyncio.Event = field(default_factory=asyncio.Event)


@asynccontextmanager
async def upstream(script: Script, *, window: int = 0) -> AsyncIterator[Upstream]:
    """An upstream that does as the script says; what it still has open is closed at the end."""
    tasks: set[asyncio.Task[Any]] = set()
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if window:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    sock.bind(("127.0.0.1", 0))
    up = Upstream(f"http://127.0.0.1:{sock.getsockname()[1]}")

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        up.connections += 1
        up.writers.append(writer)
        try:
            await script(reader, writer)
        except (EOFError, ConnectionError, RuntimeError):
            # The latter is uvloop's word for writing to a connection that is closed.
            up.lost.set()
        except asyncio.CancelledError:
            pass  # the test is over
        finally:
            writer.close()
            tasks.discard(task)

    server = await asyncio.start_server(connected, sock=sock, backlog=1024)
    try:
        yield up
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        for writer in up.writers:
            writer.close()
        await asyncio.sleep(0.01)


async def read_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The head and the body of the next request."""
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return head, await reader.readexactly(int(line[15:]))
    return head, b""


async def hang(reader: asyncio.StreamReader) -> None:
    """Wait for the other side to go away."""
    while await reader.read(65536):
        pass
    raise EOFError


def answer(body: bytes = b"ok", status: str = "200 OK", more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\n{more}Content-Length: {len(body)}\r\n\r\n".encode() + body


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def reset(writer: asyncio.StreamWriter) -> None:
    """Close a scripted upstream's connection with a reset."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


# In between.


class Ear:
    """A listener that writes down what it hears."""

    def __init__(self) -> None:
        self.head: Head | None = None
        self.data = b""
        self.ends = 0
        self.failures: list[UpstreamFailure] = []
        self.over = asyncio.Event()
        self.begun = asyncio.Event()

    def on_head(self, head: Head) -> None:
        assert self.head is None
        self.head = head
        self.begun.set()

    def on_data(self, data: bytes) -> None:
        assert data
        assert type(data) is bytes
        self.data += data

    def on_end(self) -> None:
        self.ends += 1
        self.over.set()

    def on_failure(self, failure: UpstreamFailure) -> None:
        self.failures.append(failure)
        self.over.set()

    async def failure(self) -> UpstreamFailure:
        await self.over.wait()
        assert not self.ends
        [failure] = self.failures
        return failure

    async def end(self) -> Head:
        await self.over.wait()
        assert (self.ends, self.failures) == (1, [])
        assert self.head is not None
        return self.head


class Relay:
    """The smallest proxy: an exchange in front, a call behind."""

    def __init__(self, exchange: Exchange, pool: Pool) -> None:
        self.exchange = exchange
        request = exchange.request
        self.call: Call = pool.send(
            request.method,
            request.target,
            upstream_headers(request.headers),
            request.body or None,
            self,
        )
        exchange.on_disconnect = self.call.abort
        exchange.on_pause = self.call.pause
        exchange.on_resume = self.call.resume

    def on_head(self, head: Head) -> None:
        self.exchange.start(head.status, head.reason, client_headers(head), head.framing)

    def on_data(self, data: bytes) -> None:
        self.exchange.write(data)

    def on_end(self) -> None:
        self.exchange.finish()

    def on_failure(self, failure: UpstreamFailure) -> None:
        if self.exchange.started:
            self.exchange.abort()
        else:
            self.exchange.respond(502, [], failure.message.encode())


@asynccontextmanager
async def relaying(
    script: Script, *, limits: Limits | None = None, window: int = 0
) -> AsyncIterator[tuple[Site, Pool, Upstream]]:
    """A client's view: a server, the relay, and a scripted upstream behind it."""
    async with upstream(script, window=window) as up:
        wheel = Wheel(granularity=GRANULARITY)
        pool = Pool(up.url, wheel)

        def handler(exchange: Exchange) -> None:
            Relay(exchange, pool)

        async with serving(handler, limits=limits) as site:
            yield site, pool, up
            await pool.close()
        wheel.close()


async def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait for a condition, looking every few milliseconds."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - any condition, not an event
            await asyncio.sleep(0.002)
