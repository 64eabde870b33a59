"""A listening socket, and the connections it accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING

from tier_router.testing.exchange import Exchange

if TYPE_CHECKING:
    from tier_router.testing.wire import Connection

Answer = Callable[[Exchange], Coroutine[None, None, None]]

KEEP_ALIVE = 5.0
"""Seconds after which an idle connection is closed: `VLLM_HTTP_TIMEOUT_KEEP_ALIVE`'s default."""


class Listener:
    """Accepts connections; `accepted` counts all there ever were.

    `answer` is called for each request; connections that are idle for `keep_alive` seconds after
    an answer are closed (None: never).
    """

    def __init__(
        self,
        answer: Callable[[Exchange], Coroutine[None, None, None]],
        keep_alive: float | None = KEEP_ALIVE,
    ) -> None:
        self.answer = answer
        self.keep_alive = keep_alive
        self.accepted = 0
        self._open: set[Connection] = set()
        self._server: asyncio.Server | None = None

    @property
    def open(self) -> int:
        """Connections that are open now."""
        return len(self._open)

    @property
    def busy(self) -> int:
        """Connections on which a request is being answered."""
        return sum(connection.task is not None for connection in self._open)

    def close_idle(self, *, rst: bool = False) -> None:
        """Close the connections on which nothing is being answered."""
        for connection in list(self._open):
            if connection.task is None:
                connection.drop(rst=rst)

    async def start(self, host: str, port: int) -> int:
        """The port that is listened on."""
        # h11 is an extra: whoever imports only a clock or a classifier does without it.
        from tier_router.testing.wire import Connection

        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self), host, port, backlog=1024)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self, grace: float = 0.0) -> None:
        """Listen no more; answers under way have `grace` seconds, then all connections end."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        self.close_idle()
        try:
            tasks = [one.task for one in self._open if one.task is not None]
            if grace and tasks:
                await asyncio.wait(tasks, timeout=grace)
        finally:
            await self._end()
            if server is not None:
                await server.wait_closed()

    async def _end(self) -> None:
        """All connections are closed and their tasks over."""
        ending = list(self._open)
        tasks = [one.task for one in ending if one.task is not None]
        for connection in ending:
            connection.drop(rst=False, at_once=True)
        await asyncio.gather(*(connection.closed for connection in ending))
        await asyncio.gather(*tasks, return_exceptions=True)

    def opened(self, connection: Connection) -> None:
        """A connection says that it is there."""
        self._open.add(connection)
        self.accepted += 1

    def lost(self, connection: Connection) -> None:
        """A connection says that it is gone."""
        self._open.discard(connection)
