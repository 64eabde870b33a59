"""What `tier-router serve` writes to standard error, as text and as JSON."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tier_router.testing import FakeVllm, faults
from tier_router_proxy.logs import configure

ROOT = Path(__file__).parents[2]
ENV = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'proxy'}"}
UTTERANCE = "what is the meaning of marzipan"
PROMPT = "so what's the meaning of marzipan?"


async def _lines(stream: asyncio.StreamReader, lines: list[str]) -> None:
    async for line in stream:
        lines.append(line.decode().rstrip("\n"))


async def _until(lines: list[str], told: str) -> None:
    for _ in range(1_000):
        if any(told in line for line in lines):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{told!r} is not in {lines}")


async def logged(folder: Path, more: str) -> list[str]:
    """All lines of a process that answers a chat by its second replica, refuses a configuration
    and ends."""
    async with FakeVllm("m8") as light, FakeVllm("m70") as heavy:
        light.faults.add(faults.DRAINING)
        path = folder / "c.yaml"
        path.write_text(
            f"tiers:\n  - {{name: light, model: m8, replicas: ['{light.url}']}}\n"
            f"  - {{name: heavy, model: m70, replicas: ['{heavy.url}']}}\n"
            f"intents: {{sweets: {{tier: light, utterances: ['{UTTERANCE}']}}}}\n"
            f"load: {{poll: false}}\n{more}"
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tier_router", "serve", "-c", str(path), "--port", "0",
            "--log-level", "debug",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=ENV,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        lines: list[str] = []
        reading = asyncio.create_task(_lines(process.stderr, lines))
        try:
            line = (await asyncio.wait_for(process.stdout.readline(), 30)).decode()
            match = re.match(r"tier-router: (http://\S+)/v1 ", line)
            assert match, (line, lines)
            async with httpx.AsyncClient(base_url=match[1], timeout=20, trust_env=False) as http:
                body = {"model": "auto", "messages": [{"role": "user", "content": PROMPT}]}
                headers = {"x-request-id": "r-1"}
                answer = await http.post("/v1/chat/completions", json=body, headers=headers)
                assert answer.status_code == 200, answer.text
            path.write_text("tiers: 7\n")
            process.send_signal(signal.SIGHUP)
            await _until(lines, "is refused")
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), 30) == 0
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            await reading
    return lines


async def test_json_says_which_request_went_where(tmp_path: Path) -> None:
    lines = await logged(tmp_path, "server: {log_format: json}\n")
    events: list[dict[str, Any]] = [json.loads(line) for line in lines]
    for event in events:
        assert {"timestamp", "level", "logger", "event"} <= event.keys()
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", event["timestamp"])
    about = [event for event in events if event.get("request_id") == "r-1"]
    shown = [(event["level"], event["tier"], event["replica"]) for event in about]
    assert shown[:2] == [("debug", "light", "light-0"), ("info", "light", "light-0")]
    assert shown[2] == ("debug", "heavy", "heavy-0")
    (refused,) = [event for event in events if "is refused" in event["event"]]
    assert (refused["level"], refused["logger"]) == ("error", "tier_router_proxy")
    assert PROMPT not in "\n".join(lines)


async def test_text_is_what_it_is_without_a_word(tmp_path: Path) -> None:
    lines = await logged(tmp_path, "")
    assert all(re.match(r"\d{4}-\d\d-\d\d [\d:,]+ [A-Z]+ ", line) for line in lines), lines
    assert any(" INFO r-1 failed on light-0: " in line for line in lines)
    assert PROMPT not in "\n".join(lines)


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, which is put back afterwards."""
    logger = logging.getLogger()
    handlers, level = logger.handlers[:], logger.level
    yield logger
    logger.handlers[:] = handlers
    logger.setLevel(level)


def test_a_fault_is_one_line_without_the_values_of_variables(
    root: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    configure("json", "info")

    def fails(prompt: str) -> None:
        raise ValueError("no")

    try:
        fails(PROMPT)
    except ValueError:
        root.exception("%s failed", "r-2", extra={"request_id": "r-2", "prompt": PROMPT})
    (line,) = capsys.readouterr().err.splitlines()
    event = json.loads(line)
    assert (event["request_id"], event["level"], event["event"]) == ("r-2", "error", "r-2 failed")
    assert event["exception"].endswith("ValueError: no")
    assert PROMPT not in line
