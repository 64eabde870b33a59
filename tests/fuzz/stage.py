"""The processes of a long run: replicas, and one sidecar in front of them that is watched."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

import httpx
import yaml

from tests.chaos.stage import Process, free_ports

REPLICAS = {"light-0": "m8", "light-1": "m8", "heavy-0": "m70", "vectors-0": "bge"}


class Stage:
    """Two light replicas, a heavy one and one for vectors; and the sidecar."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self._folder, self._settings, self._written = folder, settings, 0
        self.replicas: dict[str, Process] = {}
        self.hosts: dict[str, str] = {}
        self.url = ""

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        for (name, model), port in zip(REPLICAS.items(), free_ports(len(REPLICAS)), strict=True):
            more = ["pooling"] if model == "bge" else []
            command = [sys.executable, "-m", "tests.fuzz.replica", model, str(port), *more]
            self.replicas[name] = replica = Process(command)
            self.hosts[name] = f"http://127.0.0.1:{port}"
            self._stack.push_async_callback(replica.end)
            await replica.start()
        self.write()
        serve = [sys.executable, "-m", "tests.fuzz.serve", "serve", "--log-level", "error"]
        self.sidecar = Process([*serve, "-c", str(self._folder / "config.yaml")])
        self._stack.push_async_callback(self.sidecar.end)
        found = re.match(r"tier-router: (http://\S+)/v1 ", await self.sidecar.start())
        assert found is not None, "the sidecar did not start"
        self.url = found[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def write(self) -> None:
        """Writes the configuration, each time with a difference that changes nothing."""
        self._written += 1
        hosts = self.hosts
        config = {
            "tiers": [
                {"name": "light", "model": "m8", "replicas": [hosts["light-0"], hosts["light-1"]]},
                {"name": "heavy", "model": "m70", "replicas": [hosts["heavy-0"]]},
                {"name": "vectors", "model": "bge", "replicas": [hosts["vectors-0"]],
                 "can": ["embeddings"]},
            ],
            "intents": {"balance": {"tier": "light", "utterances": ["what is my balance"]}},
            "aliases": {f"alias-{self._written % 2}": "auto"},
            "server": {"port": 0, "drain": 5},
            **self._settings,
        }  # fmt: skip
        new = self._folder / "config.yaml.new"
        new.write_text(yaml.safe_dump(config))
        new.replace(self._folder / "config.yaml")

    @property
    def pid(self) -> int:
        """The sidecar's process."""
        assert self.sidecar.process is not None
        return self.sidecar.process.pid

    def pss(self) -> int:
        """The sidecar's memory, bytes: its own and its share of what is shared."""
        text = Path(f"/proc/{self.pid}/smaps_rollup").read_text()
        found = re.search(r"^Pss: +(\d+) kB", text, re.M)
        assert found is not None
        return int(found[1]) * 1024

    def descriptors(self) -> int:
        """Files and sockets that the sidecar has open."""
        return sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())

    def cpu(self) -> float:
        """Seconds of CPU that the sidecar has used."""
        words = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / 100

    async def tasks(self) -> int:
        """Tasks of the sidecar that are not done."""
        assert self.sidecar.process is not None
        assert self.sidecar.process.stdout is not None
        self.sidecar.signal(signal.SIGUSR1)
        line = await asyncio.wait_for(self.sidecar.process.stdout.readline(), 10)
        return int(line.split()[1])

    async def open_leases(self) -> float:
        """Requests that the sidecar thinks are open on replicas."""
        return await _sum(self.url, r"^tier_router_in_flight_requests\{.*\} (\S+)")

    async def generating(self) -> float:
        """Requests that the replicas have running or waiting."""
        hosts = [self.hosts[name] for name in ("light-0", "light-1", "heavy-0")]
        pattern = r"^vllm:num_requests_(?:running|waiting)\{.*\} (\S+)"
        return sum([await _sum(host, pattern) for host in hosts])


async def _sum(url: str, pattern: str) -> float:
    async with httpx.AsyncClient(trust_env=False, timeout=10) as http:
        text = (await http.get(f"{url}/metrics")).text
    return sum(map(float, re.findall(pattern, text, re.M)))
