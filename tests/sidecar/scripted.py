"""An upstream that answers with bytes that a test gives, and keeps what it was sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

Reply = Callable[["Asked"], AsyncIterator[bytes]]
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@dataclass
class Asked:
    """One request, as it came."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Scripted:
    """The server; `reply` gives the pieces that it writes, each flushed by itself."""

    reply: Reply
    url: str = ""
    asked: list[Asked] = field(default_factory=list)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                asked = await _read(reader)
                self.asked.append(asked)
                async for piece in self.reply(asked):
                    writer.write(piece)
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ")
    pairs = (line.split(":", 1) for line in head[1:] if line)
    headers = {name.lower(): value.strip() for name, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(method, target, headers, body)


@asynccontextmanager
async def scripted(reply: Reply) -> AsyncIterator[Scripted]:
    """A server on loopback."""
    script = Scripted(reply)
    server = await asyncio.start_server(script._serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    script.url = f"http://{host}:{port}"
    try:
        yield script
    finally:
        server.close()


def says(*pieces: bytes, pause: float = 0.0) -> Reply:
    """A reply of these bytes, with so many seconds between them."""

    async def reply(asked: Asked) -> AsyncIterator[bytes]:
        for index, piece in enumerate(pieces):
            if index and pause:
                await asyncio.sleep(pause)
            yield piece

    return reply


def json_answer(body: bytes, status: bytes = b"200 OK", more: bytes = b"") -> bytes:
    """A whole JSON answer."""
    return b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%b\r\n%b" % (
        status,
        len(body),
        more,
        body,
    )


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST = b"0\r\n\r\n"
