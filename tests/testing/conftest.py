"""A raw client: what it sends and reads are bytes, so nothing is repaired on the way."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tier_router.testing import FakeVllm

CHAT = "/v1/chat/completions"
NAP = 0.002


class Wire:
    """One TCP connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(
        self, body: Any = None, path: str = CHAT, method: str = "POST", headers: str = ""
    ) -> None:
        """Writes a request; `body` None sends none."""
        data = b"" if body is None else json.dumps(body).encode()
        kind = "content-type: application/json\r\n" if data else ""
        self.writer.write(
            f"{method} {path} HTTP/1.1\r\nHost: fake\r\n{kind}{headers}"
            f"content-length: {len(data)}\r\n\r\n".encode()
            + data
        )

    async def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers of the next answer."""
        raw = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 5)
        first, *lines = raw.decode().rstrip("\r\n").split("\r\n")
        return int(first.split()[1]), dict(line.split(": ", 1) for line in lines)

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """The next answer, which gives its length."""
        status, headers = await self.head()
        body = await asyncio.wait_for(self.reader.readexactly(int(headers["content-length"])), 5)
        return status, headers, body

    async def chunk(self) -> bytes:
        """The next chunk of a chunked body; empty at its end."""
        size = int(await asyncio.wait_for(self.reader.readuntil(b"\r\n"), 5), 16)
        data = await self.reader.readexactly(size + 2)
        return data[:-2]

    async def chunks(self) -> list[bytes]:
        """All chunks that are left."""
        out = []
        while data := await self.chunk():
            out.append(data)
        return out

    async def rest(self) -> bytes:
        """Everything until the connection ends."""
        return await asyncio.wait_for(self.reader.read(), 5)

    def hang_up(self) -> None:
        """Closes the socket."""
        self.writer.close()


Dial = Callable[[FakeVllm], Awaitable[Wire]]


@pytest.fixture
async def dial() -> AsyncIterator[Dial]:
    """Opens connections, and closes those that are left."""
    wires: list[Wire] = []

    async def to(fake: FakeVllm) -> Wire:
        reader, writer = await asyncio.open_connection(fake.host, fake.port)
        wires.append(Wire(reader, writer))
        return wires[-1]

    yield to
    for wire in wires:
        wire.hang_up()
        with contextlib.suppress(ConnectionError, BrokenPipeError):
            await wire.writer.wait_closed()


Eventually = Callable[..., Awaitable[float]]


@pytest.fixture
def eventually() -> Eventually:
    """Waits until something holds, and gives the seconds that took.

    They are counted in naps, so that a machine with other things to do does not add to them."""

    async def wait(holds: Callable[[], object], within: float = 5.0) -> float:
        naps = 0
        while not holds():
            assert naps * NAP < within, "it does not happen"
            await asyncio.sleep(NAP)
            naps += 1
        return naps * NAP

    return wait


@pytest.fixture
def ask() -> Callable[..., dict[str, Any]]:
    """A chat's body."""

    def body(text: str = "hello there", **more: Any) -> dict[str, Any]:
        return {"model": "light", "messages": [{"role": "user", "content": text}], **more}

    return body


@pytest.fixture
async def light() -> AsyncIterator[FakeVllm]:
    """A fake that is called `light`."""
    async with FakeVllm("light", aliases=["tiny-light", "alias-small"], max_model_len=2048) as fake:
        yield fake
