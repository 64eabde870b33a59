"""The beat of the exchange: ten times a second, off the request path."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

from tier_router.exchange import Exchange, ExchangeError
from tier_router.ledger import Ledger

log = logging.getLogger("tier_router.exchange")

TICK = 0.1
"""Seconds between two reports: vLLM's own `/load` is 10 to 35 ms old, so a report adds little, and
a burst of a tenth of a second is what processes can send to one replica without knowing."""

PATIENCE = 1.0
"""Seconds between two tries while the store is away."""


class Ticking:
    """Keeps a ledger in touch with the other processes; an async context manager."""

    def __init__(
        self,
        exchange: Exchange,
        ledger: Callable[[], Ledger],
        clock: Callable[[], float] = time.monotonic,
        tick: float = TICK,
    ) -> None:
        self._exchange, self._ledger = exchange, ledger
        self._clock, self._tick = clock, tick
        self._task: asyncio.Task[None] | None = None
        self.up = True
        """False while the store does not answer."""

    def start(self) -> None:
        """Begins to tick."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Ends, and takes this process's report back."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._exchange.close()

    async def beat(self) -> bool:
        """One exchange of reports; False if the store did not answer."""
        ledger = self._ledger()
        try:
            reports = await self._exchange.swap(ledger.report(self._clock()))
        except ExchangeError as error:
            if self.up:
                log.warning("the shared state is away, local counts go on: %s", error)
            self.up = False
            ledger.heard((), self._clock())
            return False
        if not self.up:
            log.info("the shared state is back")
        self.up = True
        ledger.heard(reports, self._clock())
        return True

    async def _run(self) -> None:
        while True:
            answered = await self.beat()
            await asyncio.sleep(self._tick if answered else PATIENCE)
