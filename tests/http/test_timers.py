"""Deadlines on the wheel: never early, not much late, and gone when they are not needed."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from math import inf

import pytest

from tests.http.tools import both_loops
from tier_router_proxy.http import Timer, Wheel

GRAIN = 0.02


class Fired:
    """When it fired, after it was made."""

    def __init__(self, wheel: Wheel) -> None:
        self.times: list[float] = []
        self.began = time.monotonic()
        self.timer = wheel.timer(self)

    def __call__(self) -> None:
        self.times.append(time.monotonic() - self.began)


@both_loops
async def test_fires_once_and_never_early() -> None:
    wheel = Wheel(granularity=GRAIN)
    delays = [0, 0.001, 0.019, 0.02, 0.021, 0.05, 0.1]
    fired = [Fired(wheel) for _ in delays]
    for each, delay in zip(fired, delays, strict=True):
        each.timer.set(delay)
    await asyncio.sleep(0.25)
    for each, delay in zip(fired, delays, strict=True):
        [at] = each.times
        assert delay <= at < delay + 2 * GRAIN + 0.1
        assert each.timer.due == inf


@both_loops
async def test_not_early_after_a_long_callback() -> None:
    wheel = Wheel(granularity=GRAIN)
    Fired(wheel).timer.set(1)
    await asyncio.sleep(0.03)
    time.sleep(0.1)  # noqa: ASYNC251 - the loop's clock stands still meanwhile
    fired = Fired(wheel)
    fired.timer.set(0.08)
    await asyncio.sleep(0.2)
    assert fired.times[0] >= 0.08
    wheel.close()


@both_loops
async def test_moved_and_cleared() -> None:
    wheel = Wheel(granularity=GRAIN)
    later, sooner, cleared, again = (Fired(wheel) for _ in range(4))
    later.timer.set(0.03)
    later.timer.set(0.12)
    sooner.timer.set(5)
    sooner.timer.set(0.03)
    cleared.timer.set(0.03)
    cleared.timer.clear()
    again.timer.set(0.03)
    again.timer.set(inf)
    again.timer.set(0.06)
    assert 0.02 < again.timer.left <= 0.06
    await asyncio.sleep(0.25)
    assert later.times[0] >= 0.12
    assert 0.03 <= sooner.times[0] < 0.12
    assert cleared.times == []
    assert len(again.times) == 1
    assert repr(wheel) == "<Wheel 0 timers, still>"


@both_loops
async def test_cancelled_timers_hold_nothing_and_stay_dead() -> None:
    wheel = Wheel(granularity=GRAIN)
    fired = Fired(wheel)
    fired.timer.set(100)
    assert repr(wheel) == "<Wheel 1 timers, running>"
    fired.timer.cancel()
    fired.timer.set(0)
    fired.timer.cancel()
    assert repr(wheel).startswith("<Wheel 0 timers")
    gone = weakref.ref(fired)
    del fired
    gc.collect()
    assert gone() is None
    await asyncio.sleep(3 * GRAIN)
    assert not wheel.running


@both_loops
async def test_a_timer_may_set_itself_and_others() -> None:
    wheel = Wheel(granularity=GRAIN)
    count = 0

    def tick() -> None:
        nonlocal count
        count += 1
        other.clear()
        if count < 3:
            timer.set(0)

    timer = wheel.timer(tick)
    other = Timer(wheel, lambda: pytest.fail("cleared before it fired"))
    timer.set(0.01)
    other.set(0.01 + GRAIN * 3)
    await asyncio.sleep(0.3)
    assert count == 3


@both_loops
async def test_a_closed_wheel_fires_nothing_and_can_start_again() -> None:
    wheel = Wheel(granularity=GRAIN)
    fired = Fired(wheel)
    fired.timer.set(0.01)
    wheel.close()
    await asyncio.sleep(4 * GRAIN)
    assert fired.times == []
    fired.timer.set(0.01)
    await asyncio.sleep(6 * GRAIN)
    assert len(fired.times) == 1


def test_one_failing_callback_does_not_stop_the_others() -> None:
    reports: list[object] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, what: reports.append(what))
        wheel = Wheel(granularity=GRAIN)
        broken = wheel.timer(lambda: 1 // 0)  # type: ignore[arg-type, return-value]
        fired = [Fired(wheel) for _ in range(3)]
        for timer in (fired[0].timer, broken, fired[1].timer):
            timer.set(0.01)
        fired[2].timer.set(0.05)
        await asyncio.sleep(0.2)
        assert [len(each.times) for each in fired] == [1, 1, 1]

    asyncio.run(main())
    assert len(reports) == 1
