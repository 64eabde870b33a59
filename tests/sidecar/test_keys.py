"""API keys: who may ask, for what, and how much."""

import asyncio
import hashlib
from typing import Any

import pytest

from tier_router.config import ApiKey
from tier_router.errors import RateLimited
from tier_router.testing import faults
from tier_router_proxy.keys import Holder, Keys


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


# ---- the counting, by itself


def test_a_rate_lets_through_a_burst_of_a_second_and_then_one_at_a_time() -> None:
    holder = Holder(ApiKey(key="k", rate=4))
    for _ in range(4):
        holder.enter(100.0)
    with pytest.raises(RateLimited) as caught:
        holder.enter(100.0)
    assert caught.value.retry_after == pytest.approx(0.25)
    holder.enter(100.25)
    with pytest.raises(RateLimited):
        holder.enter(100.3)
    for _ in range(4):
        holder.enter(200.0)


def test_less_than_one_a_second() -> None:
    holder = Holder(ApiKey(key="k", rate=0.1))
    holder.enter(0.0)
    with pytest.raises(RateLimited) as caught:
        holder.enter(4.0)
    assert caught.value.retry_after == pytest.approx(6.0)
    holder.enter(10.0)


def test_what_is_refused_is_not_counted() -> None:
    holder = Holder(ApiKey(key="k", concurrency=1, rate=1))
    holder.enter(0.0)
    for _ in range(5):
        with pytest.raises(RateLimited, match="has 1 requests open"):
            holder.enter(0.5)
    holder.leave()
    holder.enter(1.0)


def test_what_is_open_survives_a_reload() -> None:
    keys = Keys([ApiKey(key="k", concurrency=2)])
    (holder,) = keys._holders.values()
    holder.enter(0.0)
    keys.adopt([ApiKey(sha256=hashlib.sha256(b"k").hexdigest(), concurrency=1)])
    (same,) = keys._holders.values()
    with pytest.raises(RateLimited):
        same.enter(0.0)


# ---- in the sidecar


async def test_a_key_opens_its_tiers_only(stage: Any) -> None:
    await stage.serve(server={"api_keys": [{"key": "small", "tiers": ["light"]}, "all"]})
    assert (await stage.ask(headers=bearer("small"))).headers["x-tier-router-tier"] == "light"
    hard = await stage.ask("prove it", headers=bearer("small"))
    assert hard.headers["x-tier-router-tier"] == "light"
    pinned = await stage.ask(model="heavy", headers=bearer("small"))
    assert pinned.status_code == 403
    assert pinned.json()["error"]["code"] == "tier_not_allowed"
    assert (await stage.ask(model="heavy", headers=bearer("all"))).status_code == 200


async def test_a_key_has_so_many_requests_open_at_once(stage: Any, eventually: Any) -> None:
    await stage.serve(server={"api_keys": [{"key": "k", "concurrency": 2, "name": "team"}]})
    for fake in stage.light:
        fake.faults.add(faults.SlowFirstToken(0.5), times=None)
    first = [asyncio.create_task(stage.ask(headers=bearer("k"), stream=s)) for s in (True, False)]
    await eventually(lambda: sum(stage.served().values()) == 2)
    third = await stage.ask(headers=bearer("k"))
    assert third.status_code == 429
    assert third.json()["error"]["code"] == "rate_limit_exceeded"
    assert "team" in third.json()["error"]["message"]
    assert int(third.headers["retry-after"]) >= 1
    assert [answer.status_code for answer in await asyncio.gather(*first)] == [200, 200]
    assert (await stage.ask(headers=bearer("k"))).status_code == 200


async def test_a_client_that_leaves_gives_its_place_back(stage: Any, eventually: Any) -> None:
    await stage.serve(server={"api_keys": [{"key": "k", "concurrency": 1}]})
    for fake in stage.light:
        fake.faults.add(faults.SlowFirstToken(5.0), times=1)
    leaving = asyncio.create_task(stage.ask(headers=bearer("k"), stream=True))
    await eventually(lambda: sum(stage.served().values()) == 1)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    for fake in stage.fakes:
        fake.faults.clear()
    for _ in range(100):
        if (await stage.ask(headers=bearer("k"))).status_code == 200:
            return
        await asyncio.sleep(0.02)
    raise AssertionError("the place was not given back")


async def test_models_and_decisions_do_not_count(stage: Any) -> None:
    await stage.serve(server={"api_keys": [{"key": "k", "rate": 0.001}]})
    for _ in range(3):
        assert (await stage.http.get("/v1/models", headers=bearer("k"))).status_code == 200
    assert (await stage.ask(headers=bearer("k"))).status_code == 200
    assert (await stage.ask(headers=bearer("k"))).status_code == 429


async def test_a_keys_priority_is_that_of_its_requests(stage: Any) -> None:
    await stage.serve(server={"api_keys": [{"key": "batch", "priority": 5}]})
    for headers, sent in (({}, "5"), ({"x-vllm-priority": "-3"}, "-3")):
        answer = await stage.ask(headers=bearer("batch") | headers)
        fake = stage.light[int(answer.headers["x-tier-router-replica"][-1])]
        assert dict(fake.requests[-1].headers).get("x-vllm-priority") == sent
