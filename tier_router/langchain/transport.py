"""HTTP connections that stay in the event loop that opened them."""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

import httpx


class PerLoopTransport(httpx.AsyncBaseTransport):
    """One connection pool for each event loop.

    A pool that is shared by loops hands a connection of a closed loop to the next one, and the
    second `asyncio.run` of a program fails with "Event loop is closed".
    """

    def __init__(self) -> None:
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncHTTPTransport] = (
            WeakKeyDictionary()
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The answer, through the pool of the running loop."""
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            pool = self._pools[loop] = httpx.AsyncHTTPTransport()
        return await pool.handle_async_request(request)

    async def aclose(self) -> None:
        """Closes the running loop's pool; another loop's cannot be closed from here."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.aclose()
