"""Drives an engine in real time with one timer of the event loop."""

from __future__ import annotations

import asyncio

from tier_router.testing.engine import Engine


class Pacer:
    """Lets an engine's time pass with the loop's, `scale` engine seconds to each real one.

    A loop that comes late catches up: steps keep their times, so nothing drifts.
    """

    def __init__(self, engine: Engine, scale: float = 1.0) -> None:
        if not scale > 0:
            raise ValueError(f"scale must be above 0, not {scale}")
        self._engine = engine
        self._scale = scale
        self._loop: asyncio.AbstractEventLoop | None = None
        self._origin = 0.0
        self._handle: asyncio.Handle | None = None

    def start(self) -> None:
        """Time passes from now on."""
        self._loop = asyncio.get_running_loop()
        self._origin = self._loop.time() - self._engine.now / self._scale
        self._engine.woken = self._wake
        self._arm()

    def stop(self) -> None:
        """Time stands still."""
        self._engine.woken = None
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._loop = None

    def _catch_up(self) -> None:
        assert self._loop is not None
        self._engine.advance_to((self._loop.time() - self._origin) * self._scale)

    def _wake(self) -> None:
        """Called before the engine is given something: what comes in one go begins together."""
        if self._handle is None or self._engine.stepping:
            self._catch_up()
        if self._handle is None and self._loop is not None:
            self._handle = self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        self._handle = None
        self._catch_up()
        self._arm()

    def _arm(self) -> None:
        due = self._engine.next_at
        if self._loop is None or self._handle is not None or due is None:
            return
        self._handle = self._loop.call_at(self._origin + due / self._scale, self._tick)
