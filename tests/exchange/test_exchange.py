"""One suite over every exchange: memory, and a real Redis."""

import asyncio
import gc
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tier_router.config import parse
from tier_router.exchange import EXPIRY, Exchange, ExchangeError, exchange_of
from tier_router.exchange.memory import Alone, Board
from tier_router.exchange.redis import MANY
from tier_router.exchange.ticking import Ticking
from tier_router.ledger import Ledger, Outcome, Report
from tier_router.pressure import DOWN
from tier_router.router import TierRouter
from tier_router.testing import FixedClassifier

CONFIG = parse(
    "tiers: [{name: t, model: m, limits: {requests: 10}, replicas: [http://a, http://b]}]"
)


def report(**requests: int) -> Report:
    return Report(requests, {name: 10.0 * n for name, n in requests.items()}, {})


@pytest.fixture
def redis_url(redis_server: Any) -> str:
    """A real Redis server of our own."""
    return str(redis_server.url)


Make = Callable[[], Exchange]


@pytest.fixture(params=["memory", "redis"])
async def make(request: pytest.FixtureRequest) -> AsyncIterator[Make]:
    """What makes another process's end of one exchange."""
    made: list[Exchange] = []
    if request.param == "memory":
        board = Board()
        source: Callable[[], Exchange] = board.join
    else:
        url = request.getfixturevalue("redis_url") + f"?name={request.node.name.replace('[', '-')}"
        source = lambda: exchange_of(url)  # noqa: E731

    def another() -> Exchange:
        made.append(source())
        return made[-1]

    yield another
    for exchange in made:
        await exchange.close()


async def test_each_hears_the_others_and_not_itself(make: Make) -> None:
    one, two, three = make(), make(), make()
    assert list(await one.swap(report(a=1))) == []
    assert list(await two.swap(report(a=2))) == [report(a=1)]
    heard = sorted((await three.swap(report())), key=lambda each: each.requests["a"])
    assert heard == [report(a=1), report(a=2)]
    assert len(await one.swap(report(a=5))) == 2


async def test_the_newest_report_counts(make: Make) -> None:
    one, two = make(), make()
    for n in range(5):
        await one.swap(report(a=n))
    assert list(await two.swap(report())) == [report(a=4)]


async def test_who_closes_is_gone(make: Make) -> None:
    one, two = make(), make()
    await one.swap(report(a=1))
    await one.close()
    assert list(await two.swap(report())) == []


async def test_alone_hears_nothing() -> None:
    assert list(await Alone().swap(report(a=1))) == []
    assert isinstance(exchange_of("memory://"), Alone)


# ---- Redis alone


async def test_a_dead_processs_report_expires(redis_url: str) -> None:
    dead, living = (exchange_of(redis_url + "?name=dead") for _ in range(2))
    await dead.swap(report(a=7))
    assert list(await living.swap(report())) == [report(a=7)]
    await asyncio.sleep(EXPIRY + 0.2)
    assert list(await living.swap(report())) == []
    await dead.close()
    await living.close()


async def test_deployments_on_one_server_are_kept_apart(redis_url: str) -> None:
    one, other = exchange_of(redis_url + "?name=x"), exchange_of(redis_url + "?name=y")
    await one.swap(report(a=1))
    assert list(await other.swap(report())) == []
    await one.close()
    await other.close()


async def test_two_round_trips_a_tick(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from redis.asyncio.connection import AbstractConnection

    others = [exchange_of(redis_url + "?name=trips") for _ in range(20)]
    for each in others:
        await each.swap(report(a=1))
    sent: list[Any] = []
    send = AbstractConnection.send_packed_command

    async def counting(self: Any, command: Any, *more: Any, **named: Any) -> Any:
        sent.append(command)
        return await send(self, command, *more, **named)

    monkeypatch.setattr(AbstractConnection, "send_packed_command", counting)
    assert len(await others[0].swap(report(a=2))) == 19
    assert len(sent) == 2
    for each in others:
        await each.close()


async def test_a_redis_that_is_away_is_said_at_once() -> None:
    exchange = exchange_of("redis://127.0.0.1:1/0")
    with pytest.raises(ExchangeError, match=r"refused|connect"):
        await exchange.swap(report())
    await exchange.close()


async def test_a_redis_that_hangs_is_given_up() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    exchange = exchange_of(f"redis://127.0.0.1:{port}/0")
    async with asyncio.timeout(3):
        with pytest.raises(ExchangeError):
            await exchange.swap(report())
    await exchange.close()
    server.close()
    await server.wait_closed()


# ---- the ledger, and the beat


def test_a_ledger_counts_what_the_others_have_in_flight() -> None:
    ledger = Ledger(CONFIG)
    mine = ledger.opened("t-0", 10, 0)
    ledger.heard([Report({"t-0": 4}, {}, {}), Report({"t-0": 3, "t-1": 1, "gone": 9}, {}, {})], 0)
    assert dict(ledger.pressures(0)) == {"t-0": 0.8, "t-1": 0.1}
    assert ledger.report(0).requests == {"t-0": 1}, "its own only"
    ledger.heard([], 1)
    assert ledger.pressures(1)["t-0"] == 0.1
    ledger.closed(mine, Outcome.DONE, 1)


def test_what_one_finds_down_rests_for_all() -> None:
    one, two = Ledger(CONFIG), Ledger(CONFIG)
    one.closed(one.opened("t-0", 1, 0), Outcome.FAILED, 0)
    two.heard([one.report(0.4)], 100)
    assert two.pressures(100.5)["t-0"] == DOWN
    assert two.pressures(100.7)["t-0"] == 0.0


class Shaky:
    """A store that answers only now and then."""

    def __init__(self) -> None:
        self.away = False

    async def swap(self, mine: Report) -> list[Report]:
        if self.away:
            raise ExchangeError("gone fishing")
        return [Report({"t-0": 5}, {}, {})]

    async def close(self) -> None:
        pass


async def test_a_store_that_goes_and_comes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    ledger, store = Ledger(CONFIG), Shaky()
    ticking = Ticking(store, lambda: ledger, lambda: 0.0)
    assert await ticking.beat()
    assert ledger.pressures(0)["t-0"] == 0.5
    store.away = True
    for _ in range(3):
        assert not await ticking.beat()
    assert ledger.pressures(0)["t-0"] == 0.0, "local counts go on"
    assert caplog.text.count("gone fishing") == 1, "one line, not one a tick"
    store.away = False
    assert await ticking.beat()
    assert "is back" in caplog.text


async def test_a_redis_that_restarts_is_found_again(redis_server: Any) -> None:
    exchange = exchange_of(redis_server.url)
    await exchange.swap(report(a=1))
    redis_server.stop()
    with pytest.raises(ExchangeError):
        await exchange.swap(report(a=1))
    redis_server.start()
    other = exchange_of(redis_server.url)
    await exchange.swap(report(a=3))
    assert list(await other.swap(report())) == [report(a=3)]
    await exchange.close()
    await other.close()


async def test_two_processes_see_each_other(
    redis_url: str, eventually: Callable[..., Awaitable[None]]
) -> None:
    url = redis_url + "?name=both"
    one, two = Ledger(CONFIG), Ledger(CONFIG)
    first = Ticking(exchange_of(url), lambda: one, tick=0.02)
    second = Ticking(exchange_of(url), lambda: two, tick=0.02)
    first.start()
    second.start()
    for _ in range(6):
        one.opened("t-0", 1, 0.0, lifetime=1e9)
    await eventually(lambda: two.pressures(0.0)["t-0"] == 0.6)
    await first.stop()
    await eventually(lambda: two.pressures(0.0)["t-0"] == 0.0)
    await second.stop()


@pytest.fixture
def eventually() -> Callable[..., Awaitable[None]]:
    """Waits until a condition holds; fails after two seconds."""

    async def wait(condition: Callable[[], bool]) -> None:
        for _ in range(200):
            if condition():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("it never came about")

    return wait


async def test_where_they_are_many_one_sums_up_for_the_others(redis_url: str) -> None:
    crowd = [exchange_of(redis_url + "?name=crowd") for _ in range(2 * MANY)]
    mine = Report({"a": 1, "b": 2}, {"a": 10.0, "b": 20.0}, {"b": 3.0})
    for _ in range(3):
        heard = [await each.swap(mine) for each in crowd]
    for reports in heard:
        assert sum(each.requests["a"] for each in reports) == len(crowd) - 1
        assert sum(each.tokens["b"] for each in reports) == 20.0 * (len(crowd) - 1)
        assert max(each.resting["b"] for each in reports) == 3.0
    assert sorted(map(len, heard)) == [1] * (len(crowd) - 1) + [len(crowd) - 1]
    for each in crowd:
        await each.close()


async def test_when_the_one_that_sums_up_has_gone_another_does(redis_url: str) -> None:
    crowd = [exchange_of(redis_url + "?name=heirs") for _ in range(MANY + 4)]
    for _ in range(2):
        for each in crowd:
            await each.swap(report(a=1))
    dead, living = crowd[0], crowd[1:]  # the first that came sums up
    end = time.monotonic() + 5
    while True:
        heard = [await each.swap(report(a=2)) for each in living]
        if all(sum(r.requests["a"] for r in each) == 2 * (len(living) - 1) for each in heard):
            break
        assert time.monotonic() < end
        await asyncio.sleep(0.05)
    for each in (dead, *living):
        await each.close()


# ---- doors without an event loop of their own


def test_routers_that_share_hear_each_other_from_threads(redis_url: str) -> None:
    shared = CONFIG.model_copy(update={"state": redis_url + "?name=threads"})
    routers = [TierRouter(shared, lambda _: FixedClassifier(0.1)) for _ in range(2)]
    for place in (0, 1, 1):
        routers[place].share()
    lease = routers[0].ledger.opened("t-0", 10, time.monotonic())
    until(lambda: routers[1].pressures()["t-0"] == pytest.approx(0.1))
    routers[0].ledger.closed(lease, Outcome.DONE, time.monotonic())
    until(lambda: routers[1].pressures()["t-0"] == 0.0)
    names = [thread.name for thread in threading.enumerate()]
    assert names.count("tier-router-state") == 2
    routers.clear()
    gc.collect()
    until(lambda: all(t.name != "tier-router-state" for t in threading.enumerate()))


def test_memory_is_not_shared_and_a_missing_redis_harms_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    router = TierRouter(CONFIG, lambda _: FixedClassifier(0.1))
    router.share()
    gone = CONFIG.model_copy(update={"state": "redis://127.0.0.1:1"})
    lonely = TierRouter(gone, lambda _: FixedClassifier(0.1))
    lonely.share()
    until(lambda: "the shared state is away" in caplog.text)
    lonely.ledger.opened("t-0", 10, time.monotonic())
    assert lonely.pressures()["t-0"] == pytest.approx(0.1)
    assert [t.name for t in threading.enumerate()].count("tier-router-state") == 1
    del lonely
    gc.collect()
    until(lambda: all(t.name != "tier-router-state" for t in threading.enumerate()))


def test_threads_keep_the_books_straight() -> None:
    ledger = Ledger(CONFIG)

    def work() -> None:
        for step in range(2_000):
            ledger.closed(ledger.opened("t-0", 1, step), Outcome.DONE, step)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert ledger.in_flight("t-0") == 0
    assert ledger.pressures(0)["t-0"] == 0.0


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Waits until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


async def test_it_ends_although_a_client_swallows_the_cancellation() -> None:
    asked = asyncio.Event()

    class Deaf:
        async def swap(self, mine: Report) -> list[Report]:
            asked.set()
            try:
                await asyncio.sleep(3_600)
            except asyncio.CancelledError:
                pass  # as a client whose own time limit passed at the same moment does
            return []

        async def close(self) -> None:
            pass

    ledger = Ledger(CONFIG)
    ticking = Ticking(Deaf(), lambda: ledger, tick=0.001)
    ticking.start()
    await asked.wait()
    async with asyncio.timeout(30):
        await ticking.stop()
