"""Sends mutated bodies to a real sidecar, over connections that are kept, several at a time.

    python -m tests.fuzz.bodies [--count 50000] [--seed 1]

prints the table that RESULTS.md keeps.  Exit code 1 where something came out that must not: a
status over 499, an answer that is no JSON error where one is due, a connection that ends without
an answer, an answer later than five seconds, or memory that grows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from tests.fuzz.mutations import Asking, asking
from tests.fuzz.stage import Stage

AT_ONCE = 8
PATIENCE = 5.0
"""Seconds after which an answer counts as one that never comes."""
GROWTH = 0.05
"""Share by which memory may grow between the second fifth of the bodies and the last."""
FIFTHS = 5


@dataclass
class Result:
    """What came back."""

    sent: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    """Bytes at the end of each fifth."""
    slowest: float = 0.0
    seconds: float = 0.0
    leases: float = 0.0
    generating: float = 0.0

    @property
    def growth(self) -> float:
        """By what share memory grew after the second fifth."""
        return self.memory[-1] / self.memory[1] - 1


class Line:
    """One connection, that is opened again where an answer says that it ends."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = str(parts.hostname), parts.port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, asked: Asking) -> tuple[int, bytes]:
        """(status, body); raises OSError or EOFError where no whole answer comes."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        writer.write(_message(asked))
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").lower().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:] if line)
        body = await _body(reader, headers)
        if headers.get("connection") == "close":
            self.close()
        return int(lines[0].split()[1]), body

    def close(self) -> None:
        """Ends the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def _message(asked: Asking) -> bytes:
    fields = [b"POST %s HTTP/1.1\r\nhost: x\r\n" % asked.path.encode()]
    fields += [b"%s: %s\r\n" % (name.encode(), value) for name, value in asked.headers]
    body = asked.body
    if not asked.chunked:
        return b"".join([*fields, b"content-length: %d\r\n\r\n" % len(body), body])
    parts = [body[at : at + 997] for at in range(0, len(body), 997)]
    chunks = [b"%x\r\n%b\r\n" % (len(part), part) for part in parts]
    return b"".join([*fields, b"transfer-encoding: chunked\r\n\r\n", *chunks, b"0\r\n\r\n"])


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if "content-length" in headers:
        return await reader.readexactly(int(headers["content-length"]))
    pieces = []
    while size := int(await reader.readline(), 16):
        pieces.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readexactly(2)
    return b"".join(pieces)


async def send(stage: Stage, count: int, seed: int) -> Result:
    """Sends so many bodies; the same seed sends the same ones."""
    random_, result = random.Random(seed), Result()
    lines = [Line(stage.url) for _ in range(AT_ONCE)]
    began = time.monotonic()
    for _ in range(FIFTHS):
        todo = [asking(random_) for _ in range(count // FIFTHS)]
        await asyncio.gather(*(_serve(line, todo, result) for line in lines))
        result.memory.append(stage.pss())
    for line in lines:
        line.close()
    result.seconds = time.monotonic() - began
    result.leases = await stage.open_leases()
    result.generating = await stage.generating()
    return result


async def _serve(line: Line, todo: list[Asking], result: Result) -> None:
    """Asks what is left to ask, one after the other."""
    while todo:
        asked = todo.pop()
        result.sent += 1
        began = time.monotonic()
        try:
            async with asyncio.timeout(PATIENCE):
                status, body = await line.ask(asked)
        except (OSError, EOFError) as error:  # TimeoutError is an OSError
            line.close()
            result.wrong.append(f"{type(error).__name__}: {_shown(asked)}")
            continue
        result.slowest = max(result.slowest, time.monotonic() - began)
        result.statuses[status] += 1
        if status >= 500 or (status >= 400 and not _is_error(body)):
            result.wrong.append(f"{status} {body[:200]!r}: {_shown(asked)}")


def _is_error(body: bytes) -> bool:
    """Whether a body is an error in OpenAI's shape or Anthropic's."""
    try:
        return bool(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return False


def _shown(asked: Asking) -> str:
    return f"{asked.path} {asked.headers} {asked.body[:300]!r}"


def report(result: Result) -> str:
    """The lines of RESULTS.md."""
    kinds = ", ".join(f"{count:,} x {status}" for status, count in sorted(result.statuses.items()))
    rate = result.sent / result.seconds
    memory = ", ".join(f"{size / 1e6:.1f}" for size in result.memory)
    return "\n".join([
        "| bodies | answered | without a right answer | slowest, s | bodies/s | memory after each "
        "fifth, MB (PSS) | growth since the second | leases open | still generating |",
        "|---|---|---|---|---|---|---|---|---|",
        f"| {result.sent:,} | {kinds} | {len(result.wrong)} | {result.slowest:.2f} | "
        f"{rate:,.0f} | {memory} | {result.growth:+.1%} | {result.leases:g} | "
        f"{result.generating:g} |",
    ])  # fmt: skip


async def main(count: int, seed: int) -> int:
    """Runs it; the exit code."""
    with tempfile.TemporaryDirectory(prefix="bodies") as folder:
        async with Stage(Path(folder)) as stage:
            result = await send(stage, count, seed)
    print(report(result))
    for line in result.wrong[:20]:
        print(line, file=sys.stderr)
    bad = result.wrong or result.growth > GROWTH or result.leases or result.generating
    return 1 if bad else 0


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("--count", type=int, default=50_000)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    sys.exit(asyncio.run(main(given.count, given.seed)))
