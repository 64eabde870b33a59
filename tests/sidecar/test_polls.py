"""What replicas say of themselves, and what the sidecar makes of it."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from tier_router.testing import FakeVllm, Speed

FAST_POLLS = {"poll": {"load": 0.05, "metrics": 0.1, "models": 0.2}}


@asynccontextmanager
async def foreign(fake: FakeVllm, number: int) -> AsyncIterator[None]:
    """So many chats that a client which knows no router has open on the replica."""
    body = {"model": fake.model, "messages": [{"role": "user", "content": "hi"}], "stream": True,
            "max_tokens": 5000, "ignore_eos": True}  # fmt: skip

    async def one(http: httpx.AsyncClient) -> None:
        async with http.stream("POST", "/v1/chat/completions", json=body) as answer:
            async for _ in answer.aiter_raw():
                pass

    async with httpx.AsyncClient(base_url=fake.url, timeout=60, trust_env=False) as http:
        tasks = [asyncio.create_task(one(http)) for _ in range(number)]
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def gauges(text: str, name: str) -> dict[str, float]:
    """{replica: value} of one of our metrics."""
    found = re.findall(rf'^tier_router_{name}\{{.*?replica="([^"]+)".*?\}} (\S+)$', text, re.M)
    return {replica: float(value) for replica, value in found}


async def test_a_replica_that_others_fill_is_avoided(stage: Any, eventually: Any) -> None:
    busy = await stage.stack.enter_async_context(FakeVllm("m8", speed=Speed(step=0.02)))
    stage.light[0] = busy
    http = await stage.serve(load=FAST_POLLS)
    before = [(await stage.ask(f"question {n}", max_tokens=2)).headers for n in range(12)]
    assert {each["x-tier-router-replica"] for each in before} == {"light-0", "light-1"}
    async with foreign(busy, 40):
        await eventually(lambda: stage.sidecar.router.pressures()["light-0"] > 0.5, 5)
        during = [(await stage.ask(f"question {n}", max_tokens=2)).headers for n in range(12)]
        assert {each["x-tier-router-replica"] for each in during} == {"light-1"}
        text = (await http.get("/metrics")).text
        assert gauges(text, "replica_server_requests")["light-0"] >= 40
        assert gauges(text, "replica_kv_usage").keys() == {"light-0", "light-1", "heavy-0"}
        assert gauges(text, "replica_waiting_requests")["light-1"] == 0
        assert all(age >= 0 for age in gauges(text, "replica_report_age_seconds").values())
    await eventually(lambda: stage.sidecar.router.pressures()["light-0"] < 0.1, 5)


async def test_the_context_of_a_tier_is_what_its_replicas_tell(stage: Any, eventually: Any) -> None:
    short = await stage.stack.enter_async_context(FakeVllm("m8", max_model_len=512))
    stage.light[1] = short
    http = await stage.serve(load=FAST_POLLS)
    await eventually(lambda: stage.sidecar.router.config.tiers[0].context == 512, 5)
    long = await stage.ask("word " * 1000)
    assert long.headers["x-tier-router-tier"] == "heavy"
    assert "needs_context" in long.headers["x-tier-router-reason"]
    models = {each["id"]: each for each in (await http.get("/v1/models")).json()["data"]}
    assert models["light"]["max_model_len"] == 512
    await stage.sidecar.reload(stage.config(aliases={"new": "heavy"}))
    assert stage.sidecar.router.config.tiers[0].context == 512, "kept over a reload"


async def test_a_replica_that_is_gone_changes_nothing_for_the_others(
    stage: Any, eventually: Any
) -> None:
    await stage.serve(load=FAST_POLLS)
    await eventually(lambda: len(stage.light[0].requests) > 3, 5)
    await stage.light[0].stop()
    for n in range(8):
        assert (await stage.ask(f"question {n}")).status_code == 200


async def test_polls_can_be_turned_off_while_serving(stage: Any, eventually: Any) -> None:
    await stage.serve(load=FAST_POLLS)
    await eventually(lambda: len(stage.heavy.requests) > 3, 5)
    await stage.sidecar.reload(stage.config(load={"poll": False}))
    await asyncio.sleep(0.05)
    seen = len(stage.heavy.requests)
    await asyncio.sleep(0.3)
    assert len(stage.heavy.requests) == seen
    assert (await stage.ask()).status_code == 200


async def test_an_answer_that_is_not_streamed_says_how_loaded_its_replica_is(stage: Any) -> None:
    await stage.serve(load={"poll": {"load": 0, "models": 0, "metrics": 3600}})
    for fake in stage.light:
        fake.engine.kv_tokens = 1_000
    async with foreign(stage.light[0], 3), foreign(stage.light[1], 3):
        await asyncio.sleep(0.2)
        answer = await stage.ask()
        name = answer.headers["x-tier-router-replica"]
        assert stage.sidecar.router.pressures()[name] > 0.01
    assert "endpoint-load-metrics" not in answer.headers  # the client did not ask
    own = {"endpoint-load-metrics-format": "text"}
    assert (await stage.ask(headers=own)).headers["endpoint-load-metrics"].startswith("TEXT")


async def test_who_is_not_asked_says_nothing(stage: Any) -> None:
    await stage.serve(load={"poll": False})
    answer = await stage.ask()
    fake = stage.light[int(answer.headers["x-tier-router-replica"][-1])]
    assert "endpoint-load-metrics-format" not in dict(fake.requests[-1].headers)
