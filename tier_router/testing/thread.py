"""Fake servers in a thread of their own, for code that is not asynchronous."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager

from tier_router.testing.fake_vllm import FakeVllm


@contextmanager
def running(*fakes: FakeVllm) -> Iterator[tuple[FakeVllm, ...]]:
    """The fakes, serving until the block ends.

    Their `requests` and `faults` may be looked at and changed from outside; everything else is
    their own thread's.
    """
    host = _Host(fakes)
    host.start()
    try:
        yield fakes
    finally:
        host.stop()


class _Host:
    """An event loop with the fakes in it."""

    def __init__(self, fakes: tuple[FakeVllm, ...]) -> None:
        self._fakes = fakes
        self._thread = threading.Thread(target=self._run, name="fake-vllm", daemon=True)
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event | None = None

    def start(self) -> None:
        """Returns when all of them listen; raises what kept one from it."""
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def stop(self) -> None:
        """Returns when all of them have stopped."""
        if self._loop is not None and self._over is not None:
            self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as failure:  # noqa: BLE001  raised again in `start`
            self._failure = failure
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        async with AsyncExitStack() as stack:
            for fake in self._fakes:
                await stack.enter_async_context(fake)
            self._ready.set()
            await self._over.wait()
