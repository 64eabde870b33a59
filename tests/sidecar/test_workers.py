"""`tier-router serve --workers N`: several processes behind one port."""

import asyncio
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tier_router.testing import FakeVllm, faults

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="SO_REUSEPORT spreads on Linux")

ROOT = Path(__file__).parents[2]
ENV = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'proxy'}"}
CHAT = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "hello"}], "model": "light"}


@dataclass
class Workers:
    """A supervisor and its workers."""

    process: asyncio.subprocess.Process
    url: str
    log: list[str] = field(default_factory=list)

    async def ask(self) -> int:
        """The status of one answer, over a connection of its own."""
        async with httpx.AsyncClient(base_url=self.url, timeout=20, trust_env=False) as http:
            return (await http.post(CHAT, json=BODY)).status_code

    def pids(self) -> set[int]:
        """The workers' processes."""
        path = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        return set(map(int, Path(path).read_text().split()))

    async def logged(self, pattern: str) -> None:
        for _ in range(1500):
            if any(re.search(pattern, line) for line in self.log):
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"{pattern!r} is not in {self.log}")


async def until(condition: Callable[[], bool]) -> None:
    """Waits until a condition holds; fails after half a minute."""
    for _ in range(1500):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it never came about")


@asynccontextmanager
async def serving(
    folder: Path, url: str, number: int = 2, more: str = ""
) -> AsyncIterator[Workers]:
    path = folder / "config.yaml"
    path.write_text(f"""
tiers: [{{name: light, model: m8, replicas: ["{url}"]}}]
load: {{poll: false}}
server: {{port: 0, workers: {number}, drain: 5}}
{more}""")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tier_router", "serve", "-c", str(path),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=ENV,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    errors = process.stderr
    line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
    found = re.match(r"tier-router: (http://\S+)/v1 ", line)
    assert found is not None, line
    workers = Workers(process, found[1])

    async def listen() -> None:
        async for told in errors:
            workers.log.append(told.decode())

    listening = asyncio.create_task(listen())
    try:
        yield workers
    finally:
        if process.returncode is None:
            process.terminate()
            await asyncio.wait_for(process.wait(), 30)
        await listening


async def test_they_serve_one_port_share_counts_and_are_scraped_as_one(tmp_path: Path) -> None:
    async with FakeVllm("m8") as fake, serving(tmp_path, fake.url) as workers:
        assert len(workers.pids()) == 2
        assert Counter([await workers.ask() for _ in range(40)]) == {200: 40}
        fake.faults.add(faults.SlowFirstToken(1.5), times=6)
        slow = [asyncio.create_task(workers.ask()) for _ in range(6)]
        await until(lambda: len(fake.requests) == 46)
        for _ in range(6):  # whichever of the two answers
            async with httpx.AsyncClient(base_url=workers.url, trust_env=False) as http:
                told = (await http.get("/metrics")).text
            assert 'tier_router_in_flight_requests{replica="light-0",tier="light"} 6.0' in told
            assert re.search(r'requests_total\{reason="pinned",status="200",.*\} 40\.0', told)
        assert await asyncio.gather(*slow) == [200] * 6
        workers.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(workers.process.wait(), 30) == 0


async def test_one_that_dies_is_started_again_and_holds_nothing(tmp_path: Path) -> None:
    async with FakeVllm("m8") as fake, serving(tmp_path, fake.url) as workers:
        victim = min(workers.pids())
        fake.faults.add(faults.SlowFirstToken(30), times=8)
        hanging = [asyncio.create_task(workers.ask()) for _ in range(8)]
        await until(lambda: len(fake.requests) == 8)
        os.kill(victim, signal.SIGKILL)
        await workers.logged(r"worker \d ended \(-9\)")
        await until(lambda: victim not in workers.pids() and len(workers.pids()) == 2)
        for task in hanging:
            task.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)
        await asyncio.sleep(0.5)
        async with httpx.AsyncClient(base_url=workers.url, trust_env=False) as http:
            told = (await http.get("/metrics")).text
        assert 'tier_router_in_flight_requests{replica="light-0",tier="light"} 0.0' in told


async def test_all_are_replaced_without_dropping_a_request(tmp_path: Path) -> None:
    async with FakeVllm("m8") as fake, serving(tmp_path, fake.url) as workers:
        before, over, seen = workers.pids(), asyncio.Event(), Counter[int]()

        async def go() -> None:
            while not over.is_set():
                seen[await workers.ask()] += 1

        load = [asyncio.create_task(go()) for _ in range(4)]
        workers.process.send_signal(signal.SIGUSR2)
        await until(lambda: not workers.pids() & before)
        over.set()
        await asyncio.gather(*load)
        assert len(workers.pids()) == 2
        assert seen.keys() == {200}, seen
        assert seen[200] > 20


async def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    async with taken:
        port = taken.sockets[0].getsockname()[1]
        (tmp_path / "c.yaml").write_text(
            f"tiers: [{{name: t, model: m, replicas: [http://a]}}]\n"
            f"server: {{port: {port}, workers: 2}}\n"
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tier_router", "serve", "-c", str(tmp_path / "c.yaml"),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=ENV,
        )  # fmt: skip
        _, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 1
    assert b"Traceback" not in errors
    assert str(port).encode() in errors


async def test_workers_end_with_their_supervisor(tmp_path: Path) -> None:
    async with FakeVllm("m8") as fake, serving(tmp_path, fake.url) as workers:
        pids = workers.pids()
        workers.process.kill()
        await workers.process.wait()
        await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


async def test_a_verdict_reaches_the_worker_that_answered(tmp_path: Path) -> None:
    labels = tmp_path / "labels.jsonl"
    more = f"feedback: {labels}\n"
    async with FakeVllm("m8") as fake, serving(tmp_path, fake.url, 3, more) as workers:
        for number in range(12):
            name = f"answer-{number}"
            async with httpx.AsyncClient(base_url=workers.url, trust_env=False) as http:
                await http.post(CHAT, json=BODY, headers={"x-request-id": name})
            told = {"request_id": name, "verdict": "good"}
            async with httpx.AsyncClient(base_url=workers.url, trust_env=False) as http:
                first = await http.post("/v1/tier/feedback", json=told)
                again = await http.post("/v1/tier/feedback", json=told)
            assert (first.status_code, again.status_code) == (200, 404), first.text
    assert len(labels.read_text().splitlines()) == 12
