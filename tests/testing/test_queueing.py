"""The queue as clients feel it, over sockets and in real time."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tier_router.testing import Engine, FakeVllm, Pacer, Speed, State

SCALE = 10
"""Engine seconds in a real one."""


async def first_event(wire: Any) -> float:
    """When the first event came."""
    await wire.head()
    await wire.chunk()
    return asyncio.get_running_loop().time()


async def test_a_short_request_waits_behind_long_ones_and_not_in_a_replica_of_its_own(
    dial: Any, ask: Any
) -> None:
    loop = asyncio.get_running_loop()
    speed = Speed(slots=2, prefill=4000, step=0.02)
    async with (
        FakeVllm("heavy", speed=speed, scale=SCALE) as heavy,
        FakeVllm("light", speed=speed, scale=SCALE) as light,
    ):
        for _ in range(4):
            wire = await dial(heavy)
            wire.send(
                ask("x" * 16_000, model="heavy", max_tokens=100, stream=True, ignore_eos=True)
            )
            await wire.head()
        shared, own = await dial(heavy), await dial(light)
        start = loop.time()
        shared.send(ask(model="heavy", max_tokens=4, stream=True))
        own.send(ask(max_tokens=4, stream=True))
        alone = await first_event(own) - start
        behind = await first_event(shared) - start
        assert behind > 0.4  # two prefills and their hundred steps, twice; in real seconds
        assert behind > 3 * alone


@pytest.mark.parametrize(("scheduling", "first"), [("fcfs", "patient"), ("priority", "urgent")])
@pytest.mark.parametrize("by_header", [False, True])
async def test_priority_comes_in_the_body_or_in_a_header(
    dial: Any, ask: Any, eventually: Any, scheduling: str, first: str, by_header: bool
) -> None:
    speed = Speed(slots=1, step=0.01, scheduling=scheduling)
    async with FakeVllm("light", speed=speed) as fake:
        running, patient, urgent = [await dial(fake) for _ in range(3)]
        running.send(ask(max_tokens=20, ignore_eos=True))
        await eventually(lambda: fake.engine.running == 1)
        patient.send(ask(max_tokens=5, ignore_eos=True, priority=3))
        await eventually(lambda: fake.engine.waiting == 1)
        body = {} if by_header else {"priority": -1}
        header = "X-Vllm-Priority: -1\r\n" if by_header else ""
        urgent.send(ask(max_tokens=5, ignore_eos=True, **body), headers=header)
        await asyncio.gather(patient.answer(), urgent.answer())
        ended = {"patient": fake.requests[1].finished_at, "urgent": fake.requests[2].finished_at}
        assert min(ended, key=lambda name: ended[name] or 0) == first


async def test_the_time_in_the_queue_is_told(dial: Any, ask: Any, eventually: Any) -> None:
    async with FakeVllm("light", speed=Speed(slots=1, step=0.005)) as fake:
        first, second = await dial(fake), await dial(fake)
        first.send(ask(max_tokens=20, ignore_eos=True))
        await eventually(lambda: fake.engine.running == 1)
        second.send(ask(max_tokens=2))
        told = [json.loads((await wire.answer())[2])["metrics"] for wire in (first, second)]
        assert told[0]["queue_time_ms"] < 5
        assert 50 < told[1]["queue_time_ms"] < 110
        assert told[1]["mean_itl_ms"] == pytest.approx(5)


async def test_an_engine_in_real_time_without_a_server() -> None:
    engine = Engine(Speed(step=0.002, prefill=1e6))
    pacer = Pacer(engine)
    pacer.start()
    try:
        job = engine.submit(10, 5)
        assert [number async for number in job] == [0, 1, 2, 3, 4]
        assert job.state is State.DONE
        endless = engine.submit(10, 10_000)
        seen = 0
        async for _ in endless:
            seen += 1
            if seen == 3:
                engine.cancel(endless)
        assert 3 <= seen < 100
    finally:
        pacer.stop()
    with pytest.raises(ValueError):
        Pacer(engine, scale=0)


async def test_load_put_on_the_engine_directly_holds_requests_back(
    dial: Any, ask: Any, eventually: Any
) -> None:
    async with FakeVllm("light", speed=Speed(slots=1, step=0.005)) as fake:
        blocker = fake.engine.submit(10, 100_000)
        wire = await dial(fake)
        wire.send(ask(max_tokens=1))
        await eventually(lambda: fake.engine.waiting == 1)
        fake.engine.cancel(blocker)
        assert (await wire.answer())[0] == 200
