"""`tier-router serve` as a process: start, signals, reload from the file, end."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tier_router.testing import FakeVllm, Speed

ROOT = Path(__file__).parents[2]
ENV = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'proxy'}"}
CHAT = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "hello"}], "model": "light"}


@dataclass
class Running:
    """A served configuration file."""

    process: asyncio.subprocess.Process
    http: httpx.AsyncClient
    url: str
    log: list[str]

    async def logged(self, pattern: str) -> None:
        """Waits for a line in the log."""
        for _ in range(500):
            if any(re.search(pattern, line) for line in self.log):
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"{pattern!r} is not in {self.log}")


@asynccontextmanager
async def serving(path: Path) -> AsyncIterator[Running]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tier_router", "serve", "-c", str(path), "--port", "0",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=ENV,
    )  # fmt: skip
    log: list[str] = []
    assert process.stdout is not None
    assert process.stderr is not None
    errors = process.stderr

    async def listen() -> None:
        async for line in errors:
            log.append(line.decode())

    listening = asyncio.create_task(listen())
    line = (await asyncio.wait_for(process.stdout.readline(), 30)).decode()
    match = re.match(r"tier-router: (http://\S+)/v1 serves light \(1\), heavy \(1\)", line)
    assert match, (line, log)
    try:
        async with httpx.AsyncClient(base_url=match[1], timeout=20, trust_env=False) as http:
            yield Running(process, http, match[1], log)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await listening


def write(path: Path, light: FakeVllm, heavy: FakeVllm, more: str = "") -> None:
    path.write_text(
        f"tiers:\n  - {{name: light, model: m8, replicas: ['{light.url}']}}\n"
        f"  - {{name: heavy, model: m70, replicas: ['{heavy.url}']}}\n{more}"
    )


@pytest.fixture
async def fakes() -> AsyncIterator[tuple[FakeVllm, FakeVllm]]:
    async with FakeVllm("m8", speed=Speed(step=0.02)) as light, FakeVllm("m70") as heavy:
        yield light, heavy


async def test_sigterm_lets_answers_end_and_takes_nothing_new(
    tmp_path: Path, fakes: tuple[FakeVllm, FakeVllm]
) -> None:
    path = tmp_path / "c.yaml"
    write(path, *fakes)
    async with serving(path) as running:
        body = BODY | {"stream": True, "max_tokens": 40, "ignore_eos": True}
        answer = asyncio.create_task(running.http.post(CHAT, json=body))
        await asyncio.sleep(0.3)
        running.process.send_signal(signal.SIGTERM)
        await running.logged("draining")
        with pytest.raises(httpx.ConnectError):
            async with httpx.AsyncClient(trust_env=False) as other:
                await other.get(running.url + "/health")
        assert b"[DONE]" in (await answer).content
        assert await asyncio.wait_for(running.process.wait(), 5) == 0


async def test_a_second_signal_ends_the_wait(
    tmp_path: Path, fakes: tuple[FakeVllm, FakeVllm]
) -> None:
    path = tmp_path / "c.yaml"
    write(path, *fakes)
    async with serving(path) as running:
        body = BODY | {"stream": True, "max_tokens": 2_000, "ignore_eos": True}
        answer = asyncio.create_task(running.http.post(CHAT, json=body))
        await asyncio.sleep(0.3)
        running.process.send_signal(signal.SIGTERM)
        await running.logged("draining")
        running.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(running.process.wait(), 5) == 1
        with pytest.raises(httpx.TransportError):
            await answer


Change = Callable[[Running, Path, str], Awaitable[None]]


async def by_file(running: Running, path: Path, text: str) -> None:
    path.write_text(text)


async def by_signal(running: Running, path: Path, text: str) -> None:
    stat = path.stat()
    path.write_text(text)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    running.process.send_signal(signal.SIGHUP)


@pytest.mark.parametrize("change", [by_file, by_signal])
async def test_reload(tmp_path: Path, fakes: tuple[FakeVllm, FakeVllm], change: Change) -> None:
    path = tmp_path / "c.yaml"
    write(path, *fakes)
    old = path.read_text()
    async with serving(path) as running:
        asked = BODY | {"model": "gpt-9"}
        assert (await running.http.post(CHAT, json=asked)).status_code == 404
        await change(running, path, old + "aliases: {gpt-9: heavy}\n")
        await running.logged("was reloaded")
        answer = await running.http.post(CHAT, json=asked)
        assert answer.headers["x-tier-router-tier"] == "heavy"
        await change(running, path, old + "alases: {gpt-9: light}\n")
        await running.logged(r"refused.*c\.yaml:4 alases: unknown key; did you mean `aliases`\?")
        answer = await running.http.post(CHAT, json=asked)
        assert answer.headers["x-tier-router-tier"] == "heavy"


async def test_a_taken_port_is_one_line(tmp_path: Path, fakes: tuple[FakeVllm, FakeVllm]) -> None:
    path = tmp_path / "c.yaml"
    write(path, *fakes, f"server: {{port: {fakes[0].port}}}\n")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tier_router", "serve", "-c", str(path),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=ENV,
    )  # fmt: skip
    out, errors = await asyncio.wait_for(process.communicate(), 30)
    assert (process.returncode, out) == (1, b"")
    assert re.fullmatch(rb"tier-router: 127.0.0.1:\d+: Address already in use\n", errors), errors
