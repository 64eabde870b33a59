"""Fake servers in a thread of their own, for code that is not asynchronous."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from typing import Generic, TypeVar

from tier_router.testing.fake_vllm import FakeVllm

_T = TypeVar("_T")


@contextmanager
def running(*fakes: FakeVllm) -> Iterator[tuple[FakeVllm, ...]]:
    """The fakes, serving until the block ends.

    Their `requests` and `faults` may be looked at and changed from outside; everything else is
    their own thread's.
    """
    with in_thread(_all_of(fakes)):
        yield fakes


@contextmanager
def in_thread(stage: AbstractAsyncContextManager[_T]) -> Iterator[_T]:
    """What entering `stage` gives, in an event loop of its own until the block ends; raises what
    kept it from that."""
    host = _Host(stage)
    given = host.start()
    try:
        yield given
    finally:
        host.stop()


@asynccontextmanager
async def _all_of(fakes: tuple[FakeVllm, ...]) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for fake in fakes:
            await stack.enter_async_context(fake)
        yield


class _Host(Generic[_T]):
    """An event loop with the stage in it."""

    def __init__(self, stage: AbstractAsyncContextManager[_T]) -> None:
        self._stage = stage
        self._thread = threading.Thread(target=self._run, name="fake-vllm", daemon=True)
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event | None = None

    def start(self) -> _T:
        """Returns when all of it listens; raises what kept one from it."""
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self._given

    def stop(self) -> None:
        """Returns when all of it has stopped; raises what it broke off with."""
        if self._loop is not None and self._over is not None:
            self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as failure:  # noqa: BLE001  raised again in `start` or `stop`
            self._failure = failure
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        async with self._stage as self._given:
            self._ready.set()
            await self._over.wait()
