"""The processes of a chaos run: replicas, Redis, two sidecars in front of them, and clients."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx

from tests.conftest import RedisServer

ROOT = Path(__file__).parents[2]
ENV = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'proxy'}", "NO_PROXY": "127.0.0.1"}
NAMES = ("light-0", "light-1", "light-2", "heavy-0")
PATIENCE = 20.0
"""Seconds without a byte after which a client says that its request is lost."""

CONFIG = """\
tiers:
  - {{name: light, model: m, replicas: [{light}]}}
  - {{name: heavy, model: m, replicas: [{heavy}]}}
policy: {{threshold: 1.0}}
state: "{state}"
server: {{port: 0, drain: 10, timeouts: {{connect: 1, first_token: 2, between: 2, answer: 10}}}}
# {number}
"""


@dataclass
class Seen:
    """One request, as its client saw it."""

    sidecar: int
    began: float
    ended: float = 0.0
    kind: str = "lost"
    """`answered`; `refused` with a clear error; `cut` after the first token; `lost` without any of
    these; `doubled`: pieces of two answers."""
    said: str = ""


@dataclass
class Process:
    """A process that can be killed, stopped for a while, told things, and started again."""

    command: list[str]
    process: asyncio.subprocess.Process | None = None

    async def start(self) -> str:
        """Starts it; the first line that it prints."""
        self.process = await asyncio.create_subprocess_exec(
            *self.command, env=ENV,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=None,
        )  # fmt: skip
        assert self.process.stdout is not None
        return (await asyncio.wait_for(self.process.stdout.readline(), 30)).decode()

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal."""
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(number)

    def tell(self, line: str) -> None:
        """A line on its standard input."""
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")

    async def end(self) -> None:
        """Ends it for good."""
        if self.process is None:
            return
        self.signal(signal.SIGCONT)
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()


@dataclass
class Stage:
    """Three light replicas and a heavy one, and two sidecars that share a Redis."""

    folder: Path
    redis: RedisServer
    replicas: dict[str, Process] = field(default_factory=dict)
    sidecars: list[Process] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)
    _written: int = 0

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        ports = free_ports(len(NAMES))
        self._hosts = [f"http://127.0.0.1:{port}" for port in ports]
        for name, port in zip(NAMES, ports, strict=True):
            script = str(Path(__file__).with_name("replica.py"))
            self.replicas[name] = Process([sys.executable, script, name, str(port)])
            self._stack.push_async_callback(self.replicas[name].end)
            await self.replicas[name].start()
        self.write()
        for _ in range(2):
            sidecar = Process([sys.executable, "-m", "tier_router", "serve", "--log-level", "error",
                               "-c", str(self.folder / "config.yaml")])  # fmt: skip
            self._stack.push_async_callback(sidecar.end)
            found = re.match(r"tier-router: (http://\S+)/v1 ", await sidecar.start())
            assert found is not None, "the sidecar did not start"
            self.sidecars.append(sidecar)
            self.urls.append(found[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def write(self) -> None:
        """Writes the configuration anew, with a difference that changes nothing."""
        self._written += 1
        text = CONFIG.format(
            light=", ".join(self._hosts[:3]), heavy=self._hosts[3],
            state=self.redis.url + "?name=chaos", number=self._written,
        )  # fmt: skip
        new = self.folder / "config.yaml.new"
        new.write_text(text)
        new.replace(self.folder / "config.yaml")

    async def open_leases(self) -> float:
        """Requests that the sidecars think are open."""
        total = 0.0
        async with httpx.AsyncClient(trust_env=False) as http:
            for url in self.urls:
                text = (await http.get(f"{url}/metrics")).text
                found = re.findall(r"tier_router_in_flight_requests\{.*\} (\S+)", text)
                total += sum(map(float, found))
        return total


class Clients:
    """So many streams at once, each followed by the next, until they are told to stop."""

    def __init__(self, urls: Sequence[str], streams: int) -> None:
        self._urls, self._streams = urls, streams
        self._stop = False
        self.seen: list[Seen] = []

    async def __aenter__(self) -> Self:
        limits = httpx.Limits(max_connections=None)
        self._http = httpx.AsyncClient(trust_env=False, timeout=PATIENCE, limits=limits)
        self._tasks = [asyncio.create_task(self._go(n)) for n in range(self._streams)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop = True
        await asyncio.gather(*self._tasks)
        await self._http.aclose()

    async def _go(self, number: int) -> None:
        await asyncio.sleep(1.2 * number / self._streams)  # not all at the same step of the engine
        while not self._stop:
            seen = Seen(number % len(self._urls), time.monotonic())
            self.seen.append(seen)
            seen.kind = await self._ask(seen, number)
            seen.ended = time.monotonic()
            if seen.kind == "refused":
                await asyncio.sleep(0.2)

    async def _ask(self, seen: Seen, number: int) -> str:
        body = {"model": "light", "stream": True, "max_tokens": 20,
                "messages": [{"role": "user", "content": f"hello {number}"}]}  # fmt: skip
        url = f"{self._urls[seen.sidecar]}/v1/chat/completions"
        raw = b""
        try:
            async with self._http.stream("POST", url, json=body) as answer:
                async for piece in answer.aiter_raw():
                    raw += piece
        except httpx.TimeoutException:
            return "lost"
        except httpx.TransportError:
            return "cut" if b"data: {" in raw else "lost"
        if answer.status_code != 200:
            told = json.loads(raw)["error"]
            seen.said = str(told["message"])
            return "refused" if told["code"] and seen.said else "lost"
        return _verdict(raw)


def _verdict(raw: bytes) -> str:
    """What a whole stream was."""
    events = [line[6:] for line in raw.decode().splitlines() if line.startswith("data: ")]
    if events[-1:] != ["[DONE]"] or any('"error"' in event for event in events):
        return "cut" if events else "lost"
    chunks: list[dict[str, Any]] = [json.loads(event) for event in events[:-1]]
    pieces = [choice["delta"].get("content") or "" for c in chunks for choice in c["choices"]]
    whole, ids = "".join(pieces), {chunk["id"] for chunk in chunks}
    once = len(ids) == 1 and any((f"{name} " * 20).startswith(whole) for name in NAMES)
    return "answered" if once and whole else "doubled"


def free_ports(count: int) -> list[int]:
    """Ports that nobody has."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
