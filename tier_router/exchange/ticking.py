"""The beat of the exchange: ten times a second, off the request path."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
import weakref
from collections.abc import Callable

from tier_router.exchange import Exchange, ExchangeError, exchange_of
from tier_router.ledger import Ledger

log = logging.getLogger("tier_router.exchange")

TICK = 0.1
"""Seconds between two reports: vLLM's own `/load` is 10 to 35 ms old, so a report adds little, and
a burst of a tenth of a second is what processes can send to one replica without knowing."""

PATIENCE = 1.0
"""Seconds between two tries while the store is away."""


class Ticking:
    """Keeps a ledger in touch with the other processes, from `start` to `stop`."""

    def __init__(
        self,
        exchange: Exchange,
        ledger: Callable[[], Ledger | None],
        clock: Callable[[], float] = time.monotonic,
        tick: float = TICK,
    ) -> None:
        self._exchange, self._ledger = exchange, ledger
        self._clock, self._tick = clock, tick
        self._task: asyncio.Task[None] | None = None
        self._over = False
        self.up = True
        """False while the store does not answer."""

    def start(self) -> None:
        """Begins to tick."""
        self._over = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Ends, and takes this process's report back."""
        self._over = True  # a client may swallow the cancellation on its way
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._exchange.close()

    async def beat(self) -> bool:
        """One exchange of reports; False if the store did not answer."""
        ledger = self._ledger()
        if ledger is None:
            return False
        try:
            reports = await self._exchange.swap(ledger.report(self._clock()))
        except ExchangeError as error:
            if self.up:
                # as text: who keeps the record would keep the ledger through the traceback
                log.warning("the shared state is away, local counts go on: %s", str(error))
            self.up = False
            ledger.heard((), self._clock())
            return False
        if not self.up:
            log.info("the shared state is back")
        self.up = True
        ledger.heard(reports, self._clock())
        return True

    async def _run(self) -> None:
        while not self._over:
            answered = await self.beat()
            await asyncio.sleep(self._tick if answered else PATIENCE)


class TickingThread:
    """Ticks from a daemon thread with an event loop of its own, for doors whose event loops come
    and go; ends with the ledger, or when the process does."""

    def __init__(self, state: str, ledger: Ledger) -> None:
        exchange_of(state)  # raises ConfigError here, not in the thread
        self._state, self._ledger = state, weakref.ref(ledger)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tier-router-state", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends, and takes this process's report back."""
        self._over.set()
        self._thread.join(2 * PATIENCE)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        ticking = Ticking(exchange_of(self._state), self._ledger)
        while self._ledger() is not None and not self._over.is_set():
            answered = await ticking.beat()
            await asyncio.sleep(TICK if answered else PATIENCE)
        await ticking.stop()
