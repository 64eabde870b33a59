"""A client of the sidecar's kind, and questions to real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

import pytest

from tier_router.config import Config, parse
from tier_router.config.model import Poll
from tier_router.ledger import Ledger
from tier_router.scrape.findings import Found
from tier_router.scrape.target import Target
from tier_router.scrape.watch import Office, Watch
from tier_router.testing import FakeVllm, ManualClock
from tier_router_proxy.fetch import PoolFetch
from tier_router_proxy.http.timers import Wheel
from tier_router_proxy.pools import Pools


class Client:
    """Fetches from the replicas that it was introduced to."""

    def __init__(self) -> None:
        self._wheel = Wheel()
        self._pools = Pools(self._wheel)
        self.fetch = PoolFetch(self._pools)

    def meet(self, urls: Iterable[str]) -> PoolFetch:
        """The fetch, which knows these URLs and no others."""
        dialled = {url: url for url in urls}
        self._pools.adopt(dialled, 1.0)
        self.fetch.adopt(dialled)
        return self.fetch

    async def close(self) -> None:
        await self._pools.close()
        self._wheel.close()


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    client = Client()
    yield client
    await client.close()


def config_of(*urls: str, **more: object) -> Config:
    """One tier `t` of the model `m8` with these replicas."""
    rest = "".join(f", {key}: {value}" for key, value in more.items())
    return parse(f"tiers: [{{name: t, model: m8, replicas: [{', '.join(urls)}]{rest}}}]")


class Bench:
    """A watch on one replica, the ledger and the findings that it fills."""

    def __init__(self, client: Client, url: str, **target: object) -> None:
        self.clock = ManualClock()
        self.ledger = Ledger(config_of(url))
        self.found: list[Found] = []
        fetch = client.meet([url])
        office = Office(
            fetch,
            self.ledger,
            lambda _, found: self.found.append(found),
            self.clock,
            asyncio.Semaphore(8),
        )
        self.watch = Watch(Target("t-0", "m8", url, Poll(), **target), office)  # type: ignore[arg-type]

    @property
    def pressure(self) -> float:
        return self.ledger.pressures(self.clock())["t-0"]


@pytest.fixture
def bench(client: Client) -> Callable[..., Bench]:
    """Makes a bench for a replica's URL."""
    return lambda url, **target: Bench(client, url, **target)


@pytest.fixture
def config() -> Callable[..., Config]:
    return config_of


@pytest.fixture
async def fake() -> AsyncIterator[FakeVllm]:
    """A replica that serves `m8`."""
    async with FakeVllm("m8", max_model_len=4096) as fake:
        yield fake


@pytest.fixture
def eventually() -> Callable[..., Awaitable[None]]:
    """Waits until a condition holds; fails after five seconds."""

    async def wait(holds: Callable[[], object], seconds: float = 5.0) -> None:
        for _ in range(int(seconds / 0.01)):
            if holds():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("it never came about")

    return wait
