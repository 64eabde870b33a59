"""One request and the means to answer it, well or badly."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from tier_router.testing.bodies import encode
from tier_router.testing.recorded import Recorded

if TYPE_CHECKING:
    from tier_router.testing.wire import Connection

Headers = Sequence[tuple[str, str]]

JSON = (("content-type", "application/json"),)
SSE = (("content-type", "text/event-stream; charset=utf-8"),)


class Cut(Exception):
    """The connection was given up on purpose; nothing more is to be sent."""


class Exchange:
    """A request (`request`) with its connection.  Writing waits while the client reads slowly."""

    def __init__(self, request: Recorded, connection: Connection) -> None:
        self.request = request
        self._connection = connection
        self.echo: Headers = ()
        """Headers that each answer carries."""

    @property
    def begun(self) -> bool:
        """True once the head of an answer was sent."""
        return self.request.status is not None

    async def json(self, status: int, content: object, headers: Headers = ()) -> None:
        """A whole JSON answer."""
        await self.respond(status, encode(content), (*JSON, *headers))

    async def respond(self, status: int, content: bytes, headers: Headers = ()) -> None:
        """A whole answer."""
        await self.open(status, (("content-length", str(len(content))), *headers))
        if content:
            await self.send(content)
        await self.end()

    async def open(self, status: int, headers: Headers = SSE) -> None:
        """The head; the body is chunked unless `headers` gives its length."""
        self.request.status = status
        sized = any(name == "content-length" for name, _ in headers)
        chunked = () if sized else (("transfer-encoding", "chunked"),)
        self._connection.send_head(status, (*headers, *self.echo, *chunked))
        await self._connection.drained()

    async def send(self, data: bytes) -> None:
        """A piece of the body, in a chunk of its own where it is chunked."""
        self._connection.send_data(data)
        self.request.events += data.startswith((b"data: ", b"event: "))
        await self._connection.drained()

    async def end(self) -> None:
        """The end of the body."""
        self._connection.send_end()
        self.request.finished = True
        self.request.finished_at = asyncio.get_running_loop().time()

    def raw(self, data: bytes) -> None:
        """Bytes that need not be HTTP."""
        self._connection.write(data)

    def limit(self, size: int) -> None:
        """Reset the connection a moment after `size` bytes of the answer, head included."""
        self._connection.limit = size

    def close_when_idle(self, seconds: float, rst: bool) -> None:
        """Close the connection when this answer lies `seconds` back and no other request came."""
        self._connection.idle = (seconds, rst)

    def reset(self) -> NoReturn:
        """End the connection with RST, a moment after what was written."""
        if self.begun:
            self._connection.reset_soon()
        else:
            self._connection.drop(rst=True)
        raise Cut

    def hang_up(self) -> NoReturn:
        """End the connection with FIN, after what was written."""
        self._connection.drop(rst=False)
        raise Cut
