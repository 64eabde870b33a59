"""One replica watched: real sockets, each look made by hand."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tier_router.pressure import FULL
from tier_router.request import Need
from tier_router.scrape.watch import CONTRADICTIONS, GONE, LOAD_LASTS, METRICS_LASTS
from tier_router.testing import (
    BUSY,
    CloseBeforeAnswer,
    FakeVllm,
    Flags,
    Garbage,
    Hang,
    Reset,
    Speed,
    Status,
    anything,
)

SLOW = Speed(slots=4, step=0.02)


class Slow(FakeVllm):
    """A replica on which chats last, so that they can be looked at."""

    def __init__(self, **more: Any) -> None:
        super().__init__("m8", speed=SLOW, **more)

    @property
    def open(self) -> int:
        """Requests that it works on or has queued."""
        return self.engine.running + self.engine.waiting


async def until(holds: Callable[[], bool]) -> None:
    """Returns when it holds; fails after five seconds."""
    for _ in range(1000):
        if holds():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came about")


@asynccontextmanager
async def foreign(fake: Slow, number: int) -> AsyncIterator[None]:
    """So many chats that other clients have open on the replica."""
    body = {"model": fake.model, "messages": [{"role": "user", "content": "hi"}], "stream": True,
            "max_tokens": 4000, "ignore_eos": True}  # fmt: skip
    async with httpx.AsyncClient(base_url=fake.url, timeout=30, trust_env=False) as http:

        async def one() -> None:
            async with http.stream("POST", "/v1/chat/completions", json=body) as answer:
                async for _ in answer.aiter_raw():
                    pass

        tasks = [asyncio.create_task(one()) for _ in range(number)]
        await until(lambda: fake.open == number)
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# ---- load


async def test_the_load_of_other_clients_is_pressure(bench: Any) -> None:
    async with Slow() as fake:
        looking = bench(fake.url)
        async with foreign(fake, 16):
            assert await looking.watch.look_at_load()
            assert looking.pressure == 16 / 64
            assert looking.watch.said.requests == 16
        await until(lambda: fake.open == 0)
        assert await looking.watch.look_at_load()
        assert looking.watch.said.requests == 0, "a zero is believed of one that has counted"
        assert looking.pressure == 0


async def test_own_requests_are_not_counted_twice(bench: Any) -> None:
    async with Slow() as fake:
        looking = bench(fake.url)
        looking.ledger.opened("t-0", 1, 0.0)
        async with foreign(fake, 3):
            await looking.watch.look_at_load()
        assert looking.pressure == 3 / 64


async def test_a_load_that_is_not_renewed_is_not_believed(bench: Any) -> None:
    async with Slow() as fake:
        looking = bench(fake.url)
        async with foreign(fake, 16):
            await looking.watch.look_at_load()
        looking.clock.advance(LOAD_LASTS - 0.01)
        assert looking.pressure == 16 / 64
        looking.clock.advance(0.02)
        assert looking.pressure == 0


async def test_a_zero_of_one_that_never_counted_is_not_a_reading(bench: Any, fake: Any) -> None:
    looking = bench(fake.url)
    assert await looking.watch.look_at_load()
    assert looking.watch.said.requests is None
    assert looking.watch.said.load_at is None


async def test_zeros_under_open_requests_are_told_once(
    bench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tier_router.scrape")
    async with FakeVllm("m8", flags=Flags(load_tracking=False)) as fake:
        looking = bench(fake.url)
        looking.ledger.opened("t-0", 1, 0.0)
        for _ in range(2 * CONTRADICTIONS):
            await looking.watch.look_at_load()
    assert caplog.text.count("--enable-server-load-tracking") == 1
    assert looking.watch.said.requests is None


async def test_a_zero_while_nobody_is_there_is_no_contradiction(
    bench: Any, fake: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tier_router.scrape")
    looking = bench(fake.url)
    for _ in range(2 * CONTRADICTIONS):
        await looking.watch.look_at_load()
    assert not caplog.text


# ---- gauges


async def test_the_queue_and_the_cache_are_pressure(bench: Any) -> None:
    async with Slow() as fake:
        looking = bench(fake.url)
        async with foreign(fake, 4 + 8):
            await until(lambda: fake.engine.gauges.waiting == 8)
            assert await looking.watch.look_at_metrics()
        assert looking.watch.said.waiting == 8
        assert looking.pressure == 8 / 16
        looking.clock.advance(METRICS_LASTS - 0.1)
        assert looking.pressure == 8 / 16
        looking.clock.advance(0.2)
        assert looking.pressure == 0, "stale"


async def test_a_page_without_the_gauges_says_nothing(bench: Any, fake: Any) -> None:
    fake.faults.add(Status(200, "python_info 1\n"), when=anything)
    looking = bench(fake.url)
    assert not await looking.watch.look_at_metrics()
    assert looking.watch.said.metrics_at is None


# ---- models


async def test_what_a_replica_is(bench: Any, fake: Any) -> None:
    looking = bench(fake.url)
    assert await looking.watch.look_at_models()
    (found,) = looking.found
    assert found.version == "0.32.0"
    assert found.models["m8"].context == 4096
    assert found.can == {}, "nobody asked"
    assert not [r for r in fake.requests if r.method == "POST"]


async def test_the_key_goes_along(bench: Any) -> None:
    async with FakeVllm("m8", api_key="secret") as fake:
        looking = bench(fake.url, api_key="secret", asks=True)
        assert await looking.watch.look_at_models()
        assert looking.found[0].can[Need.TOOLS]
        assert "secret" not in repr(looking.watch.target)


async def test_a_wrong_key_is_said_once(bench: Any, caplog: pytest.LogCaptureFixture) -> None:
    async with FakeVllm("m8", api_key="secret") as fake:
        looking = bench(fake.url, asks=True)
        for _ in range(3):
            assert not await looking.watch.look_at_models()
    assert caplog.text.count("refuses the tier's API key (401") == 1
    assert not looking.found


async def test_another_model_is_said_once_until_it_changes(
    bench: Any, fake: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tier_router.scrape")
    looking = bench(fake.url, asks=True)
    fake.model = "other"
    for _ in range(3):
        await looking.watch.look_at_models()
    (said,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert said.getMessage().endswith("does not serve the tier's model `m8` but `other`")
    assert not [r for r in fake.requests if r.method == "POST"], "it is not probed in vain"
    fake.model = "third"
    await looking.watch.look_at_models()
    assert "but `third`" in caplog.text
    fake.model = "m8"
    await looking.watch.look_at_models()
    assert caplog.text.count("t-0 is right again") == 1


async def test_abilities_are_asked_for_once(bench: Any, fake: Any) -> None:
    looking = bench(fake.url, asks=True)
    for _ in range(3):
        await looking.watch.look_at_models()
    assert sum(request.method == "POST" for request in fake.requests) == 4
    can = {Need.TOOLS: True, Need.JSON: True, Need.REASONING: True, Need.VISION: False}
    assert [found.can for found in looking.found] == [can] * 3


async def test_what_a_busy_server_did_not_tell_is_asked_again(bench: Any, fake: Any) -> None:
    fake.faults.add(BUSY, times=2)
    looking = bench(fake.url, asks=True)
    await looking.watch.look_at_models()
    assert len(looking.found[0].can) == 2
    await looking.watch.look_at_models()
    assert len(looking.found[1].can) == 4
    assert sum(request.method == "POST" for request in fake.requests) == 6


async def test_a_restarted_server_is_asked_anew(bench: Any, fake: Any) -> None:
    looking = bench(fake.url, asks=True)
    await looking.watch.look_at_metrics()
    await looking.watch.look_at_models()
    assert looking.found[-1].can[Need.TOOLS]
    await fake.stop()
    fake.flags = Flags(tool_choice=False)
    await fake.start()
    await looking.watch.look_at_metrics()
    await looking.watch.look_at_models()
    assert not looking.found[-1].can[Need.TOOLS]


# ---- failures


FAULTS = [
    Garbage(),
    CloseBeforeAnswer(),
    Reset(),
    Reset(after_bytes=60),
    Status(500),
    Status(404, {"detail": "Not Found"}),
    Status(200, "<html>hello</html>"),
    Status(200, b"\x00\xff" * 1000),
    Status(200, "[" * 50_000),
    Status(302, "", (("location", "/elsewhere"),)),
]


@pytest.mark.parametrize("fault", FAULTS, ids=repr)
async def test_nothing_that_comes_back_raises(bench: Any, fake: Any, fault: Any) -> None:
    fake.faults.add(fault, times=None, when=anything)
    looking = bench(fake.url, asks=True)
    watch = looking.watch
    for look in (watch.look_at_load, watch.look_at_metrics, watch.look_at_models):
        assert not await watch.tried(look)
    assert looking.pressure == 0
    assert all(found.models is None for found in looking.found)


async def test_a_server_that_is_gone_is_said_once_and_so_is_its_return(
    bench: Any, fake: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tier_router.scrape")
    looking = bench(fake.url)
    watch = looking.watch
    await fake.stop()
    for _ in range(GONE + 3):
        assert not await watch.tried(watch.look_at_load)
    assert watch.gone
    assert repr(watch) == "<Watch t-0: gone>"
    await fake.start()
    for _ in range(3):
        assert await watch.tried(watch.look_at_load)
    assert not watch.gone
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["t-0 does not answer: no connection: refused", "t-0 answers again"]


async def test_one_that_hangs_is_given_up(bench: Any, fake: Any) -> None:
    fake.faults.add(Hang(), times=None, when=anything)
    looking = bench(fake.url)
    assert not await asyncio.wait_for(looking.watch.tried(looking.watch.look_at_load), 10)
    assert looking.pressure < FULL
