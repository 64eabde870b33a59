"""A new configuration while requests are under way."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tier_router.config import Config, load
from tier_router.errors import ConfigError
from tier_router.testing import FakeVllm, Speed
from tier_router_proxy import serve


async def test_a_reload_drops_no_request(stage: Any) -> None:
    slow = await stage.stack.enter_async_context(FakeVllm("m8", speed=Speed(step=0.02)))
    stage.light[:] = [slow]
    await stage.serve()
    running = [
        asyncio.create_task(stage.ask(f"q{n}", stream=True, max_tokens=30, ignore_eos=True))
        for n in range(5)
    ]
    await asyncio.sleep(0.1)
    stage.light[:] = [await stage.stack.enter_async_context(FakeVllm("m8"))]
    await stage.sidecar.reload(stage.config(aliases={"new": "heavy"}))
    answers = await asyncio.gather(*running)
    assert all(b"[DONE]" in answer.content for answer in answers), "they end where they began"
    assert len(slow.requests) == 5
    assert (await stage.ask(model="new")).headers["x-tier-router-tier"] == "heavy"
    assert (await stage.ask("q")).status_code == 200
    assert len(slow.requests) == 5
    assert len(stage.light[0].requests) == 1


async def test_requests_all_the_while(stage: Any) -> None:
    await stage.serve()
    statuses: list[int] = []

    async def asking(number: int) -> None:
        for n in range(20):
            statuses.append((await stage.ask(f"q{number}/{n}")).status_code)

    async def reloading() -> None:
        for n in range(10):
            await stage.sidecar.reload(stage.config(policy={"threshold": 0.3 + n / 100}))
            await asyncio.sleep(0.01)

    await asyncio.gather(reloading(), *(asking(n) for n in range(5)))
    assert statuses == [200] * 100


async def test_a_bad_configuration_is_refused_and_the_old_one_stays(
    stage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await stage.serve()

    def bad() -> Config:
        raise ConfigError("unknown key", file="c.yaml", line=3, key="polcy")

    assert await serve.reload(stage.sidecar, bad) is False
    assert "c.yaml:3 polcy: unknown key" in caplog.text
    assert (await stage.ask()).status_code == 200
    metrics = (await stage.http.get("/metrics")).text
    assert 'tier_router_config_reloads_total{result="refused"} 1.0' in metrics


async def test_simulated_replicas_come_and_go(stage: Any, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    text = (
        "tiers: [{name: light, model: a, replicas: ['sim://a?step=1ms']},"
        "{name: heavy, model: b, replicas: ['sim://b?step=1ms']}]\nserver: {port: 0}\n"
    )
    path.write_text(text)
    await stage.serve()
    await stage.sidecar.reload(load(path))
    assert (await stage.ask()).json()["model"] == "a"
    path.write_text(text.replace("step=1ms", "step=2ms"))
    await stage.sidecar.reload(load(path))
    assert (await stage.ask()).json()["model"] == "a"
    path.write_text(text.replace("step=1ms", "stp=2ms"))
    assert await serve.reload(stage.sidecar, lambda: load(path)) is False
    assert (await stage.ask()).json()["model"] == "a"
