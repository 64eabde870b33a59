"""Loads a real sidecar for a long time, with clients that behave badly and replicas that restart.

    python -m tests.fuzz.soak [--minutes 30] [--rate N]

measures for some seconds how many requests a second saturate the sidecar, its replicas and these
clients together, asks for half of that (or for `--rate`), and prints the report that RESULTS.md
keeps.  Exit code 1 where something came out that must not: see `faults`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.bodies import Line
from tests.fuzz.mutations import Asking
from tests.fuzz.stage import Stage

SATURATING, SECONDS = 64, 5.0
"""Clients that ask without a pause, and for how long, to see what saturates."""
SAMPLES = 30
WARM = SAMPLES // 5
"""Samples of memory, and those before which it may still grow."""
GROWTH = 0.05
PATIENCE = 20.0
BREAK_EVERY, RELOAD_EVERY = 20.0, 7.0
"""Seconds between two restarts of a replica, and between two reloads."""
TEXTS = (
    "What is my balance?",
    "Prove that the square root of 3 is irrational.",
    "Write a parser for arithmetic expressions.",
    "漢字の読み方を教えて",
    "x " * 2000,
)


@dataclass
class Seen:
    """What clients saw, and what the sidecar's process looked like."""

    kinds: Counter[str] = field(default_factory=Counter)
    memory: list[int] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    tasks: list[int] = field(default_factory=list)
    saturated: float = 0.0
    rate: float = 0.0
    seconds: float = 0.0
    cpu: float = 0.0
    restarts: int = 0
    reloads: int = 0
    leases: float = 0.0
    generating: float = 0.0

    @property
    def growth(self) -> float:
        """By what share memory grew from the end of the warm-up (its mean) to the last samples."""
        first, last = self.memory[WARM : 2 * WARM], self.memory[-WARM:]
        return sum(last) / sum(first) - 1

    def faults(self) -> list[str]:
        """What came out that must not."""
        bad = [f"{self.kinds[kind]} x {kind}" for kind in ("lost", "wrong") if self.kinds[kind]]
        if self.growth > GROWTH:
            bad.append(f"memory grew by {self.growth:.1%}")
        if self.leases:
            bad.append(f"{self.leases:g} leases are open")
        if self.generating:
            bad.append(f"{self.generating:g} requests still generate")
        if self.descriptors[-1] > self.descriptors[0] + 8:  # a connection to each page of a replica
            bad.append(f"{self.descriptors[-1]} descriptors, after {self.descriptors[0]} at first")
        if self.tasks[-1] > self.tasks[0] + 2:
            bad.append(f"{self.tasks[-1]} tasks, after {self.tasks[0]} at first")
        return bad


class Clients:
    """Whoever asks; each method is one way to behave, and gives the word for what came of it."""

    def __init__(self, stage: Stage, random_: random.Random) -> None:
        self._stage, self._random = stage, random_
        self._idle: list[Line] = []

    async def one(self) -> str:
        """One request."""
        ways: list[Callable[[], Awaitable[str]]] = [self.whole, self.whole, self.stream,
            self.stream, self.leaves_before, self.leaves_during, self.slow]  # fmt: skip
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._random.choices(ways, (30, 10, 30, 10, 7, 10, 3))[0]()
        except TimeoutError:
            return "lost"
        except (OSError, EOFError):
            return "cut"

    async def whole(self) -> str:
        """An answer that is not streamed."""
        return await self._ask(stream=False)

    async def stream(self) -> str:
        """A stream, read to its end."""
        return await self._ask(stream=True)

    async def leaves_before(self) -> str:
        """A client that goes before anything came."""
        writer = await self._sent(stream=True, tokens=400)
        await asyncio.sleep(self._random.random() * 0.02)
        writer[1].transport.abort()
        return "left before the answer"

    async def leaves_during(self) -> str:
        """A client that goes when the answer has begun."""
        reader, writer = await self._sent(stream=True, tokens=400)
        data = await reader.read(200)
        writer.transport.abort()
        return "left during the answer" if data else "cut"

    async def slow(self) -> str:
        """A client that reads a long stream in small portions."""
        reader, writer = await self._sent(stream=True, tokens=300)
        try:
            got = b""
            while not got.endswith(b"0\r\n\r\n") and b"\r\ncontent-length: " not in got:
                data = await reader.read(2048)
                if not data:
                    return "cut"
                got += data
                await asyncio.sleep(0.005)
            return "read slowly"
        finally:
            writer.close()

    def close(self) -> None:
        """Ends the connections that are idle."""
        for line in self._idle:
            line.close()

    async def _ask(self, *, stream: bool) -> str:
        line = self._idle.pop() if self._idle else Line(self._stage.url)
        body = self._body(stream, self._random.randint(1, 30))
        try:
            status, answer = await line.ask(Asking("/v1/chat/completions", body))
        except BaseException:
            line.close()
            raise
        if self._random.random() < 0.02:
            line.close()
        elif self._random.random() < 0.5:  # else it rests, at times longer than the sidecar lets it
            self._idle.append(line)
        else:
            self._idle.insert(0, line)
        if status != 200:
            return f"refused with {status}" if json.loads(answer)["error"]["code"] else "wrong"
        done = answer.endswith(b"data: [DONE]\n\n") if stream else json.loads(answer)["choices"]
        return "answered" if done else "wrong"

    async def _sent(
        self, *, stream: bool, tokens: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A request on a connection of its own."""
        host, _, port = self._stage.url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=4096)
        body = self._body(stream, tokens)
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"
        writer.write(head % len(body) + body)
        return reader, writer

    def _body(self, stream: bool, tokens: int) -> bytes:
        messages = [{"role": "user", "content": self._random.choice(TEXTS)}]
        asked = {"model": "auto", "messages": messages, "stream": stream, "max_tokens": tokens}
        return json.dumps(asked | {"min_tokens": tokens}).encode()


async def saturation(stage: Stage, random_: random.Random) -> float:
    """Requests a second that come back when clients ask without a pause."""
    clients, done = Clients(stage, random_), 0
    until = time.monotonic() + SECONDS

    async def go() -> None:
        nonlocal done
        while time.monotonic() < until:
            await clients.one()
            done += 1

    await asyncio.gather(*(go() for _ in range(SATURATING)))
    clients.close()
    return done / SECONDS


async def load(stage: Stage, seen: Seen, random_: random.Random) -> None:
    """Asks `seen.rate` times a second, whether or not answers come, for `seen.seconds`."""
    clients, running = Clients(stage, random_), set[asyncio.Task[None]]()

    async def count() -> None:
        seen.kinds[await clients.one()] += 1

    due = began = time.monotonic()
    while due < began + seen.seconds:
        due += random_.expovariate(seen.rate)
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        task = asyncio.create_task(count())
        running.add(task)
        task.add_done_callback(running.discard)
    await asyncio.gather(*running)
    clients.close()


async def break_replicas(stage: Stage, seen: Seen) -> None:
    """Restarts one light replica after the other: in an orderly way, and by kill -9."""
    while True:
        for name, number in (("light-0", signal.SIGTERM), ("light-1", signal.SIGKILL)):
            await asyncio.sleep(BREAK_EVERY)
            replica = stage.replicas[name]
            replica.signal(number)
            assert replica.process is not None
            await replica.process.wait()
            await asyncio.sleep(1)
            await replica.start()
            seen.restarts += 1


async def reload(stage: Stage, seen: Seen) -> None:
    """Writes the configuration anew, and tells the sidecar."""
    while True:
        await asyncio.sleep(RELOAD_EVERY)
        stage.write()
        stage.sidecar.signal(signal.SIGHUP)
        seen.reloads += 1


async def watch(stage: Stage, seen: Seen) -> None:
    """Samples the sidecar's process."""
    for _ in range(SAMPLES):
        await asyncio.sleep(seen.seconds / SAMPLES)
        seen.memory.append(stage.pss())
        seen.descriptors.append(stage.descriptors())


async def soak(stage: Stage, minutes: float, rate: float | None, seed: int) -> Seen:
    """The whole run."""
    seen, random_ = Seen(seconds=minutes * 60), random.Random(seed)
    seen.saturated = await saturation(stage, random_)
    seen.rate = rate or seen.saturated / 2
    await asyncio.sleep(2)
    seen.descriptors.append(stage.descriptors())
    seen.tasks.append(await stage.tasks())
    cpu = stage.cpu()
    beside = [asyncio.create_task(each(stage, seen)) for each in (break_replicas, reload)]
    await asyncio.gather(load(stage, seen, random_), watch(stage, seen))
    seen.cpu = (stage.cpu() - cpu) / seen.seconds
    for task in beside:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    await asyncio.sleep(3)
    seen.leases, seen.generating = await stage.open_leases(), await stage.generating()
    seen.descriptors.append(stage.descriptors())
    seen.tasks.append(await stage.tasks())
    return seen


def report(seen: Seen) -> str:
    """The lines of RESULTS.md."""
    total = seen.kinds.total()
    lines = [
        f"{total:,} requests in {seen.seconds / 60:g} min, {seen.rate:,.0f} a second (saturated at "
        f"{seen.saturated:,.0f}); the sidecar took {seen.cpu:.0%} of a core; {seen.restarts} "
        f"restarts of replicas, {seen.reloads} reloads.",
        "",
        "| what came of it | requests | share |",
        "|---|---|---|",
        *(f"| {kind} | {count:,} | {count / total:.3%} |" for kind, count in
          seen.kinds.most_common()),
        "",
        f"Memory (PSS, MB): {', '.join(f'{size / 1e6:.1f}' for size in seen.memory)}; after the "
        f"warm-up {seen.growth:+.1%}.",
        f"Descriptors: {seen.descriptors[0]} before, {max(seen.descriptors)} at most, "
        f"{seen.descriptors[-1]} after.  Tasks: {seen.tasks[0]} before, {seen.tasks[-1]} after.  "
        f"Leases open: {seen.leases:g}.  Still generating upstream: {seen.generating:g}.",
        f"Faults: {'; '.join(seen.faults()) or 'none'}.",
    ]  # fmt: skip
    return "\n".join(lines)


async def main(minutes: float, rate: float | None, seed: int) -> int:
    """Runs it; the exit code."""
    with tempfile.TemporaryDirectory(prefix="soak") as folder:
        async with Stage(Path(folder)) as stage:
            seen = await soak(stage, minutes, rate, seed)
    print(report(seen))
    return 1 if seen.faults() else 0


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("--minutes", type=float, default=30)
    options.add_argument("--rate", type=float, help="requests a second, not half of saturation")
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    sys.exit(asyncio.run(main(given.minutes, given.rate, given.seed)))
