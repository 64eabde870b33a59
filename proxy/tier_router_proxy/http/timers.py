"""Coarse deadlines for many connections on one loop timer.

A timer that is pushed back again and again (a read, another request) only moves a float; its
place in the wheel is corrected when it comes up. So a deadline costs well under a microsecond per
request, and nothing per chunk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from time import monotonic

# Deadlines here are seconds; being late by a quarter of one is nobody's loss.
GRANULARITY = 0.25


class Timer:
    """One deadline that can be set, moved and cleared; it never fires early."""

    __slots__ = ("_callback", "_slot", "_wheel", "due")

    def __init__(self, wheel: Wheel, callback: Callable[[], None]) -> None:
        self._wheel = wheel
        self._callback: Callable[[], None] | None = callback
        self._slot = -1
        self.due = inf

    @property
    def left(self) -> float:
        """Seconds from now; setting another timer to them keeps the deadline."""
        return max(self.due - monotonic(), 0.0)

    def set(self, delay: float) -> None:
        """Fire once, `delay` seconds from now or up to two granularities later; inf: never."""
        wheel = self._wheel
        if self._callback is None:
            return
        if delay == inf:
            self.due = inf
            return
        if not wheel.running:
            wheel.start()
        # Not the loop's time nor that of the last turn: both stand still while a callback runs, and
        # a timer set at the end of a long one would fire early.
        self.due = due = monotonic() + delay
        if self._slot < 0 or due < self._slot * wheel.granularity:
            wheel.place(self)

    def clear(self) -> None:
        """Do not fire until set again; the place in the wheel is kept for then."""
        self.due = inf

    def cancel(self) -> None:
        """Never fire again, and hold on to nothing."""
        self.due = inf
        self._callback = None
        self._wheel.remove(self)


class Wheel:
    """The shared clock of many timers: one loop timer while any of them waits, none otherwise."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop | None = None, granularity: float = GRANULARITY
    ) -> None:
        self.loop = loop or asyncio.get_running_loop()
        self.granularity = granularity
        self.running = False
        self._slots: dict[int, set[Timer]] = {}
        self._tick = 0
        self._handle: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        waiting = sum(len(timers) for timers in self._slots.values())
        return f"<Wheel {waiting} timers, {'running' if self.running else 'still'}>"

    def timer(self, callback: Callable[[], None]) -> Timer:
        """A timer of this wheel, not set."""
        return Timer(self, callback)

    def start(self) -> None:
        """Begin to tick; done by the first timer that is set."""
        self._tick = int(monotonic() / self.granularity)
        self.running = True
        self._handle = self.loop.call_later(self.granularity, self._turn)

    def place(self, timer: Timer) -> None:
        """Put a timer where its deadline is."""
        self.remove(timer)
        slot = max(int(timer.due / self.granularity) + 1, self._tick + 1)
        timer._slot = slot
        self._slots.setdefault(slot, set()).add(timer)

    def remove(self, timer: Timer) -> None:
        """Take a timer out of the wheel."""
        timers = self._slots.get(timer._slot)
        if timers is not None:
            timers.discard(timer)
            if not timers:
                del self._slots[timer._slot]
        timer._slot = -1

    def close(self) -> None:
        """Stop; timers that still wait never fire."""
        self.running = False
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        for timers in self._slots.values():
            for timer in timers:
                timer._slot = -1
                timer.due = inf
        self._slots.clear()

    def _turn(self) -> None:
        now = monotonic()
        target = int(now / self.granularity)
        # Armed before the callbacks run, so that one of them failing does not stop the clock.
        self._handle = self.loop.call_later(self.granularity, self._turn)
        ripe: list[Timer] = []
        while self._tick < target:
            self._tick += 1
            for timer in self._slots.pop(self._tick, ()):
                timer._slot = -1
                if timer.due <= now:
                    ripe.append(timer)
                elif timer.due != inf:
                    self.place(timer)
        if not self._slots and not ripe:
            self.close()
        for timer in ripe:  # each in a turn of its own: one that fails does not stop the others
            self.loop.call_soon(self._fire, timer, now)

    def _fire(self, timer: Timer, now: float) -> None:
        callback = timer._callback
        if callback is None or timer.due > now:
            return
        timer.due = inf
        callback()
