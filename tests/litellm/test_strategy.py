"""`install`: the strategy of a `litellm.Router`, asynchronous and synchronous."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("litellm", reason="needs pip install 'tier-router[litellm]'")

import litellm

from tests.litellm.tools import EASY, HARD, Stage, chat, eventually, router_of
from tier_router import ConfigError, parse
from tier_router.litellm import TierStrategy, install
from tier_router.testing import BUSY, ManualClock, SlowChunks, Status


def installed(stage: Stage, **settings: Any) -> tuple[litellm.Router, TierStrategy]:
    router = stage.router(stage.config(), **settings)
    return router, install(router, router_of(stage.config()))


def idle(strategy: TierStrategy) -> bool:
    ledger = strategy.brain.router.ledger
    return not any(ledger.in_flight(name) for name in ("light-0", "light-1", "heavy-0"))


@pytest.mark.parametrize(("text", "tier"), [(EASY, "light"), (HARD, "heavy")])
@pytest.mark.parametrize("kind", ["chat", "stream", "text", "responses", "messages"])
async def test_asynchronous_calls(stage: Stage, kind: str, text: str, tier: str) -> None:
    router, strategy = installed(stage)
    if kind == "chat":
        await router.acompletion(model="auto", messages=chat(text))
    elif kind == "stream":
        stream = await router.acompletion(model="auto", messages=chat(text), stream=True)
        assert [chunk async for chunk in stream]
    elif kind == "text":
        await router.atext_completion(model="auto", prompt=text)
    elif kind == "responses":
        await router.aresponses(model="auto", input=text)
    else:
        await router.aanthropic_messages(model="auto", messages=chat(text), max_tokens=5)
    assert stage.tiers() == {tier: 1}
    await eventually(lambda: idle(strategy))


@pytest.mark.parametrize(("text", "tier"), [(EASY, "light"), (HARD, "heavy")])
@pytest.mark.parametrize("stream", [False, True])
async def test_synchronous_calls(stage: Stage, text: str, tier: str, stream: bool) -> None:
    router, strategy = installed(stage)

    def call() -> Any:
        answer = router.completion(model="auto", messages=chat(text), stream=stream)
        return list(answer) if stream else answer

    assert await asyncio.to_thread(call)
    assert stage.tiers() == {tier: 1}
    await eventually(lambda: idle(strategy))


async def test_synchronous_retries_aliases_and_unknown_names(stage: Stage) -> None:
    router, strategy = installed(stage)
    for fake in stage.light:
        fake.faults.add(BUSY)
    await asyncio.to_thread(router.completion, model="gpt-4o", messages=chat(EASY))
    assert stage.tiers() == {"light": 2, "heavy": 1}
    await eventually(lambda: idle(strategy))
    stage.forget()
    await asyncio.to_thread(router.completion, model="heavy", messages=chat(EASY))
    assert stage.tiers() == {"heavy": 1}
    with pytest.raises(litellm.BadRequestError):
        await asyncio.to_thread(router.completion, model="nope", messages=chat(EASY))


async def test_retries_aliases_ids_and_unknown_names(stage: Stage) -> None:
    router, strategy = installed(stage)
    for fake in stage.light:
        fake.faults.add(BUSY)
    await router.acompletion(model="gpt-4o", messages=chat(EASY))
    assert stage.tiers() == {"light": 2, "heavy": 1}
    await eventually(lambda: idle(strategy))
    for name, tier in {"heavy": "heavy", "heavy-0": "heavy", "backup": "backup"}.items():
        stage.forget()
        await router.acompletion(model=name, messages=chat(EASY))
        assert stage.tiers() == {tier: 1}, name
    with pytest.raises(litellm.BadRequestError):
        await router.acompletion(model="nope", messages=chat(EASY))


@pytest.mark.parametrize("sync", [False, True])
async def test_cooldowns_are_kept(stage: Stage, sync: bool) -> None:
    router, _ = installed(stage, allowed_fails=0, cooldown_time=30, num_retries=0)

    async def ask(text: str) -> Any:
        if sync:
            return await asyncio.to_thread(router.completion, model="auto", messages=chat(text))
        return await router.acompletion(model="auto", messages=chat(text))

    for fake in stage.light:
        fake.faults.add(Status(500))
    for _ in range(2):
        with pytest.raises(litellm.InternalServerError):
            await ask(EASY)
    stage.forget()
    for _ in range(3):
        await ask(EASY)
    assert stage.tiers() == {"heavy": 3}
    stage.heavy.faults.add(Status(500))
    with pytest.raises(litellm.InternalServerError):
        await ask(HARD)
    with pytest.raises((litellm.RateLimitError, litellm.types.router.RouterRateLimitError)):
        await ask(HARD)


async def test_fallbacks_reach_a_foreign_group(stage: Stage) -> None:
    router, _ = installed(stage, fallbacks=[{"auto": ["backup"]}])
    for fake in stage.fakes[:3]:
        fake.faults.add(BUSY)
    await router.acompletion(model="auto", messages=chat(HARD))
    assert stage.served()["backup-0"] == 1


async def test_an_abandoned_stream_expires(stage: Stage) -> None:
    clock = ManualClock()
    router = stage.router(stage.config())
    strategy = install(router, router_of(stage.config(), clock), clock)
    for fake in stage.light:
        fake.faults.add(SlowChunks(0.2))
    stream = await router.acompletion(model="auto", messages=chat(EASY), stream=True)
    await anext(stream)  # and nobody reads on
    assert not idle(strategy)
    clock.advance(strategy.brain.router.config.server.timeouts.answer + 1)
    strategy.brain.router.pressures()
    assert idle(strategy)


async def test_a_cancelled_call_gives_its_place_back(stage: Stage) -> None:
    router, strategy = installed(stage)
    for fake in stage.light:
        fake.faults.add(SlowChunks(5))
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(router.acompletion(model="auto", messages=chat(EASY)), 0.5)
    await eventually(lambda: idle(strategy))


async def test_concurrent_calls_spread_over_replicas(stage: Stage) -> None:
    router, strategy = installed(stage)
    for fake in stage.light:
        fake.faults.add(SlowChunks(0.2), None)
    calls = (router.acompletion(model="auto", messages=chat(f"{EASY} {n}")) for n in range(40))
    await asyncio.gather(*calls)
    assert min(stage.served()["light-0"], stage.served()["light-1"]) >= 12
    await eventually(lambda: idle(strategy))


async def test_install_refuses_tiers_that_nobody_has(stage: Stage) -> None:
    other = parse("tiers: [{name: small, model: s, replicas: [http://s]}]")
    router = stage.router(stage.config())
    with pytest.raises(ConfigError, match=r"tiers small;.*says heavy, light"):
        install(router, router_of(other))
    assert not litellm.callbacks
