"""Two sidecars that share a Redis."""

from collections.abc import Awaitable, Callable
from typing import Any

from tier_router.testing import FixedClassifier
from tier_router_proxy.sidecar import Sidecar


async def test_each_sees_what_the_other_has_in_flight(
    stage: Any, redis_server: Any, eventually: Callable[..., Awaitable[None]]
) -> None:
    http = await stage.serve(state=redis_server.url)
    config = stage.sidecar.router.config
    async with Sidecar(config, lambda _: FixedClassifier(0.1)) as other:
        ledger = other.router.ledger
        for _ in range(32):
            ledger.opened("light-0", 1, 0.0, lifetime=1e9)
        loads = stage.sidecar.router.pressures
        await eventually(lambda: loads()["light-0"] == 0.5)
        assert {(await stage.ask(f"q{n}")).headers["x-tier-router-replica"] for n in range(9)} == {
            "light-1"
        }
    await eventually(lambda: loads()["light-0"] == 0.0)
    assert "tier_router_shared_state_up 1.0" in (await http.get("/metrics")).text


async def test_no_request_notices_that_redis_is_gone(stage: Any, redis_server: Any) -> None:
    http = await stage.serve(state=redis_server.url)
    assert (await stage.ask()).status_code == 200
    redis_server.stop()

    async def up() -> str:
        return next(
            line for line in (await http.get("/metrics")).text.splitlines()
            if line.startswith("tier_router_shared_state_up")
        )  # fmt: skip

    for _ in range(100):
        assert (await stage.ask()).status_code == 200
        if (await up()).endswith("0.0"):
            return
    raise AssertionError("the metric never said so")
