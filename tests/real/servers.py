"""Real vLLM servers on this machine's CPU; see README.md for how to get one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

HERE = Path(__file__).parent
PYTHON = os.environ.get("TIER_ROUTER_VLLM")
MODELS = os.environ.get("TIER_ROUTER_VLLM_MODELS")
START_SECONDS = 300.0
FLAGS = (
    "--enable-server-load-tracking", "--enable-prompt-tokens-details",
    "--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--reasoning-parser", "qwen3",
    "--scheduling-policy", "priority", "--enable-per-request-metrics",
    "--enable-request-id-headers",
)  # fmt: skip


@dataclass
class Vllm:
    """A server process."""

    name: str
    port: int
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def kill(self) -> None:
        """kill -9 for the server and the engine that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def serving(
    folder: Path,
    name: str,
    *flags: str,
    model: str = "tiny-light",
    core: int | None = None,
    context: int = 2048,
    slots: int = 4,
) -> Iterator[Vllm]:
    """`vllm serve` of a model under a name of its own; with a `core`, all of it on that one."""
    assert PYTHON is not None
    assert MODELS is not None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    command = [
        *([] if core is None else ["taskset", "-c", str(core)]),
        PYTHON, str(HERE / "vllm_cli.py"), "serve", str(Path(MODELS) / model),
        "--host", "127.0.0.1", "--port", str(port), "--served-model-name", name, "auto",
        "--enforce-eager", "--max-model-len", str(context), "--max-num-seqs", str(slots), *flags,
    ]  # fmt: skip
    environment = os.environ | {
        "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1", "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": str(core or 0),
    }  # fmt: skip
    log = folder / f"{name}-{port}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=out, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
    server = Vllm(name, port, process)
    try:
        _wait(server, log)
        yield server
    finally:
        server.kill()


def _wait(server: Vllm, log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        assert server.process.poll() is None, log.read_text("utf-8", "replace")[-3000:]
        with suppress(httpx.TransportError):
            if httpx.get(f"{server.url}/health", trust_env=False).status_code == 200:
                return
        time.sleep(0.25)
    raise AssertionError(f"vLLM does not serve: {log.read_text('utf-8', 'replace')[-3000:]}")
