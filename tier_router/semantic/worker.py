"""A thread that calls the library, and callers that wait for it only so long.

An encoder may be a network or a transformer away.  A caller waits for a new text until the
deadline; what comes later is kept and serves the next request with that text.  Waiting on an event
loop holds up all its requests, so a thread waits at most one deadline at once and afterwards earns
back a tenth of the time that passes.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from tier_router.semantic.routers import Found, LibraryRouter
from tier_router.semantic.tally import Tally

DEADLINE = 0.05
"""Seconds: the time to the first token of an idle 8B model is about as long."""
SHARE = 0.1
"""Of a thread's time: that of an event loop's other requests which waiting may take."""
UNDER_WAY = 64
"""Calls at once.  More means that the library is slower than the traffic: those go without."""
GIVE_UP = 10.0
"""Seconds after which a call is abandoned and its place is free again."""
KEPT = 4_096
"""Texts whose answer is kept; as many as the router keeps verdicts."""


class Patient:
    """Asks a router that may be slow; never raises and never waits beyond the deadline."""

    def __init__(self, make: Callable[[], LibraryRouter], deadline: float = DEADLINE) -> None:
        self.tally = Tally()
        self._make, self._deadline = make, deadline
        self._patience = Patience(deadline)
        self._adopt(_Worker(make, self.tally, make()))

    def __repr__(self) -> str:
        return f"<Patient {self._worker.router!r} {self._deadline:g} s, {self.tally!r}>"

    def ask(self, text: str) -> Found | None:
        """What the library says of `text`, None while that is not known."""
        worker = self._mine()
        known = worker.known(text)
        if known is not None:
            return known
        call = worker.begin(text)
        if call is None:
            self.tally.add("refused")
            return None
        started = time.monotonic()
        wait((call,), self._patience.left(started))
        self._patience.waited(started, time.monotonic())
        if not call.done():
            self.tally.add("late")
            return None
        return call.result()

    async def ahead(self, texts: Collection[str]) -> None:
        """Returns when the answers for `texts` are known, or at the deadline."""
        worker = self._mine()
        calls = [worker.begin(text) for text in texts if worker.known(text) is None]
        waiting = [asyncio.wrap_future(call) for call in calls if call is not None]
        if waiting:
            await asyncio.wait(waiting, timeout=self._deadline)
            for each in waiting:
                each.cancel()  # only this wait: the call goes on

    def _mine(self) -> _Worker:
        """The worker of this process: a fork copies no thread and may not share connections."""
        if self._worker.pid != os.getpid():
            self._adopt(_Worker(self._make, self.tally))
        return self._worker

    def _adopt(self, worker: _Worker) -> None:
        self._worker = worker
        weakref.finalize(self, worker.stop).atexit = False  # daemon threads end with the process


class Patience:
    """How long each thread may wait now."""

    def __init__(self, most: float, share: float = SHARE) -> None:
        self._most, self._share = most, share
        self._threads = threading.local()

    def left(self, now: float) -> float:
        """Seconds that the calling thread may wait at the time `now`."""
        left, since = getattr(self._threads, "state", (self._most, now))
        return float(min(self._most, left + (now - since) * self._share))

    def waited(self, start: float, end: float) -> None:
        """Notes that the calling thread waited from `start` to `end`."""
        self._threads.state = max(self.left(start) - (end - start), 0.0), end


class _Worker:
    """One process's thread, event loop, router and answers.

    The loop's thread alone writes the answers; other threads read them.
    """

    def __init__(
        self, make: Callable[[], LibraryRouter], tally: Tally, router: LibraryRouter | None = None
    ) -> None:
        self.pid, self.router = os.getpid(), router
        self._make, self._tally = make, tally
        self._answers: dict[str, Found] = {}
        self._calls: dict[str, Future[Found | None]] = {}
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(_Daemons())
        threading.Thread(target=self._run, name="tier-router-semantic", daemon=True).start()

    def known(self, text: str) -> Found | None:
        """The answer for `text`, where there is one."""
        return self._answers.get(text)

    def begin(self, text: str) -> Future[Found | None] | None:
        """The call for `text`, which may be under way already; None where there are too many."""
        call = self._calls.get(text)
        if call is None:
            if len(self._calls) >= UNDER_WAY:
                return None
            future: Future[Found | None] = Future()
            future.set_running_or_notify_cancel()  # who stops waiting does not cancel it for others
            call = self._calls.setdefault(text, future)
            if call is future:
                asyncio.run_coroutine_threadsafe(self._answer(text, future), self._loop)
        return call

    def stop(self) -> None:
        """Ends the thread; calls under way stay without an answer."""
        if self.pid == os.getpid():
            asyncio.run_coroutine_threadsafe(self._end(), self._loop)

    async def _answer(self, text: str, call: Future[Found | None]) -> None:
        found = None
        try:
            if self.router is None:
                self.router = self._make()  # after a fork; on this thread, so once
            async with asyncio.timeout(GIVE_UP):
                found = await self.router.answer(text)
        except Exception as error:  # noqa: BLE001  any encoder, any index: no request may fail by it
            self._tally.failed(error)
        else:
            self._keep(text, found)
            self._tally.add("answered")
        finally:
            del self._calls[text]
            call.set_result(found)

    def _keep(self, text: str, found: Found) -> None:
        if len(self._answers) >= KEPT:
            del self._answers[next(iter(self._answers))]
        self._answers[text] = found

    async def _end(self) -> None:
        try:
            if self.router is not None:
                await self.router.aclose()
        finally:
            self._loop.stop()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        finally:
            self._loop.close()


class _Daemons(ThreadPoolExecutor):
    """A thread for each call (`UNDER_WAY` bounds them), none of which holds up the process's end.

    A pool's threads are joined at exit, and an encoder may hang for minutes.
    """

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """The future of `fn(*args, **kwargs)`, which runs in a new daemon thread."""
        future: Future[Any] = Future()

        def run() -> None:
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001  as a pool does: it belongs to who waits
                _settle(future, error=error)
            else:
                _settle(future, result)

        threading.Thread(target=run, daemon=True).start()
        return future


def _settle(future: Future[Any], result: Any = None, error: BaseException | None = None) -> None:
    if not future.set_running_or_notify_cancel():
        return  # nobody waits any more
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
