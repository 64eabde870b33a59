"""The poller over real sockets: everybody is asked, whatever the others do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tier_router import TierRouter
from tier_router.config import Config, parse
from tier_router.scrape.poller import Poller, targets_of
from tier_router.testing import FakeVllm, FixedClassifier, Garbage, Hang, SimHost, Status, anything

POLL = "load: {poll: {load: 0.05, metrics: 0.1, models: 0.2}}"


def config_of(*urls: str, tier: str = "", poll: str = POLL) -> Config:
    replicas = ", ".join(f"'{url}'" for url in urls)
    return parse(f"tiers: [{{name: t, model: m8, replicas: [{replicas}]{tier}}}]\n{poll}\n")


class Polling:
    """A poller and the router that it tells."""

    def __init__(self, client: Any, config: Config) -> None:
        self._client = client
        self.router = TierRouter(config, lambda _: FixedClassifier(0.1))
        self.told: list[str] = []
        self.poller = Poller(client.fetch, self.router.ledger, self._found)
        self.adopt(config)

    def adopt(self, config: Config, dialled: dict[str, str] | None = None) -> None:
        urls = {replica.url: replica.url for tier in config.tiers for replica in tier.replicas}
        urls |= dialled or {}
        self._client.meet(urls.values())
        self.router.reload(config)
        self.poller.adopt(config, urls)

    def _found(self, replica: str, found: Any) -> None:
        self.told.append(replica)
        self.router.found(replica, found)


@pytest.fixture
async def polling(client: Any) -> AsyncIterator[Callable[..., Polling]]:
    started: list[Polling] = []

    def start(*urls: str, **more: str) -> Polling:
        started.append(Polling(client, config_of(*urls, **more)))
        return started[-1]

    yield start
    for each in started:
        await each.poller.stop()


def asked(fake: FakeVllm, path: str) -> int:
    return sum(request.route == path for request in fake.requests)


async def test_every_page_is_asked_for_again_and_again(
    polling: Any, fake: Any, eventually: Any
) -> None:
    poll = polling(fake.url)
    for path in ("/load", "/metrics", "/v1/models", "/version"):
        await eventually(lambda path=path: asked(fake, path) >= 3)
    assert poll.router.config.tiers[0].context == 4096
    assert asked(fake, "/v1/chat/completions") == 0


async def test_one_that_is_down_hangs_or_talks_nonsense_keeps_nobody_from_being_asked(
    polling: Any, fake: Any, eventually: Any
) -> None:
    async with FakeVllm("m8") as hangs, FakeVllm("m8") as raves, FakeVllm("m8") as gone:
        hangs.faults.add(Hang(), times=None, when=anything)
        raves.faults.add(Garbage(), times=None, when=anything)
        await gone.stop()
        poll = polling(hangs.url, raves.url, gone.url, fake.url)
        await eventually(lambda: asked(fake, "/load") >= 10)
        assert poll.told
        assert set(poll.told) == {"t-3"}
        assert poll.poller.said()["t-0"].metrics_at is None
        await eventually(lambda: poll.poller.said()["t-3"].metrics_at is not None)
        assert repr(poll.poller).startswith("<Poller <Watch t-0: ")
        assert asked(raves, "/load") < asked(fake, "/load"), "in vain is less often"


async def test_one_that_comes_back_is_looked_at_anew(
    polling: Any, fake: Any, eventually: Any
) -> None:
    poll = polling(fake.url, poll="load: {poll: {load: 0.05, metrics: 0, models: 3600}}")
    await eventually(lambda: poll.router.config.tiers[0].context == 4096)
    await fake.stop()
    await eventually(lambda: "gone" in repr(poll.poller))
    fake.max_model_len = 8192
    await fake.start()
    await eventually(lambda: poll.router.config.tiers[0].context == 8192, 15)


async def test_abilities_are_found_where_the_file_says_auto(polling: Any, eventually: Any) -> None:
    async with FakeVllm("m8", multimodal=True) as fake:
        poll = polling(fake.url, tier=", can: auto")
        await eventually(lambda: "vision" in poll.router.config.tiers[0].can)
        await eventually(lambda: asked(fake, "/v1/models") >= 3)
        assert asked(fake, "/v1/chat/completions") == 4


async def test_nobody_is_asked_where_polls_are_off(polling: Any, fake: Any) -> None:
    polling(fake.url, tier=", can: auto", poll="load: {poll: false}")
    await asyncio.sleep(0.3)
    assert fake.requests == []


async def test_only_what_has_changed_is_watched_anew(
    polling: Any, fake: Any, eventually: Any
) -> None:
    async with FakeVllm("m8") as other:
        poll = polling(fake.url, other.url)
        await eventually(lambda: len(poll.poller.said()) == 2)
        before = poll.poller.said()
        poll.adopt(config_of(fake.url))
        after = poll.poller.said()
        assert list(after) == ["t-0"]
        assert after["t-0"] is before["t-0"], "the same watch goes on"
        await asyncio.sleep(0.05)
        seen = len(other.requests)
        await asyncio.sleep(0.3)
        assert len(other.requests) == seen
        poll.adopt(config_of(fake.url, tier=", api_key: k"))
        assert poll.poller.said()["t-0"] is not before["t-0"]


async def test_simulated_replicas_are_asked_where_they_listen(
    polling: Any, eventually: Any
) -> None:
    url = "sim://a?step=1ms"
    poll = polling("http://127.0.0.1:9")
    host = SimHost()
    try:
        config = config_of(url)
        assert list(targets_of(config, {url: url})) == [], "not as long as nobody runs them"
        poll.adopt(config, await host.resolve({url: "m8"}))
        await eventually(lambda: poll.poller.said()["t-0"].metrics_at is not None)
    finally:
        await poll.poller.stop()
        await host.aclose()


async def test_a_page_that_is_not_there_is_no_failure(
    polling: Any, fake: Any, eventually: Any
) -> None:
    missing = Status(404, {"detail": "Not Found"})
    fake.faults.add(missing, times=None, when=lambda request: request.route == "/load")
    poll = polling(fake.url)
    await eventually(lambda: asked(fake, "/load") >= 2)
    await eventually(lambda: asked(fake, "/metrics") >= 3)
    assert "answers" in repr(poll.poller)
    assert poll.poller.said()["t-0"].requests is None


def test_a_key_is_in_no_repr() -> None:
    (target,) = targets_of(config_of("http://a", tier=", api_key: secret"), {})
    assert target.api_key == "secret"
    assert "secret" not in repr(target)


def test_a_large_fleet_is_asked_less_often_unless_the_file_says_so() -> None:
    def period(number: int, poll: str) -> float:
        urls = [f"http://a{n}" for n in range(number)]
        targets = list(targets_of(config_of(*urls, poll=f"load: {{poll: {poll}}}"), {}))
        assert len(targets) == number
        return targets[0].poll.load

    assert period(25, "true") == 0.25
    assert period(100, "{metrics: 5}") == 1.0
    assert period(100, "{load: 0.25}") == 0.25
    assert period(100, "false") == 0
