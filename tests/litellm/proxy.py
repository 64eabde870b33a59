"""The real LiteLLM proxy as a process, and fake servers behind it in a thread."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.litellm.tools import Stage

ROOT = Path(__file__).parents[2]
KEY = "sk-tests-only"
START = 120.0
"""Seconds: it needs 12 to 27 on a quiet machine of two cores."""


@asynccontextmanager
async def staged() -> AsyncIterator[Stage]:
    """Fake servers for tests that outlive an event loop: for a thread of their own."""
    async with AsyncExitStack() as stack:
        yield await Stage.of(stack)


@dataclass
class Proxy:
    """A running proxy."""

    url: str
    log: Path
    http: httpx.Client

    def post(
        self, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        return self.http.post(path, json=body, headers=headers)


@contextmanager
def running(
    place: Path, config: Mapping[str, Any], env: Mapping[str, str] | None = None
) -> Iterator[Proxy]:
    """The proxy with this YAML in `place`, which is not its working directory."""
    file, log = place / "litellm.yaml", place / "proxy.log"
    file.write_text(yaml.safe_dump(config), "utf-8")
    elsewhere = place / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    port = _free_port()
    command = [sys.executable, "-c", "from litellm import run_server; run_server()",
               "--config", str(file), "--host", "127.0.0.1", "--port", str(port)]  # fmt: skip
    clean = {name: value for name, value in os.environ.items() if name != "TIER_ROUTER_CONFIG"}
    environment = clean | {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "LITELLM_MASTER_KEY": KEY,
        "PYTHONPATH": str(ROOT), "NO_PROXY": "127.0.0.1",
    } | (env or {})  # fmt: skip
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=elsewhere, env=environment, stdout=out, stderr=subprocess.STDOUT
        )
    url = f"http://127.0.0.1:{port}"
    headers = {"authorization": f"Bearer {KEY}"}
    try:
        with httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False) as http:
            _wait(process, http, log)
            yield Proxy(url, log, http)
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], http: httpx.Client, log: Path) -> None:
    end = time.monotonic() + START
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text("utf-8")[-4000:]
        try:
            if http.get("/health/liveliness").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise AssertionError(f"the proxy did not start: {log.read_text('utf-8')[-4000:]}")


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port
