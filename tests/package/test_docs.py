"""What the README and the examples show is run."""

import ast
import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tier_router import load, parse
from tier_router_proxy.sidecar import Sidecar

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.S)
ENV = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'proxy'}"}


def python(*args: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, *args],
        capture_output=True,
        text=True,
        env=ENV | env,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("block", [text for kind, text in BLOCKS if text.startswith("tiers:")])
def test_yaml_in_the_readme_is_a_configuration(block: str) -> None:
    config = parse(block, name="README.md", env={})
    assert len(config.tiers) == 2


def test_the_readme_names_no_command_that_is_not_there() -> None:
    found = re.findall(r"^\s*(?:\$ )?tier-router ([\w-]+)|`tier-router ([\w-]+)", README, re.M)
    commands = {name for names in found for name in names if name}
    assert commands >= {"serve", "check", "explain"}
    listed = re.findall(r"^  ([\w-]+)  ", python("-m", "tier_router", "--help"), re.M)
    assert commands <= set(listed)


def test_the_decision_example() -> None:
    told = python(str(ROOT / "examples" / "decide.py")).splitlines()
    assert told[1].startswith("  light: it is the intent `opening_hours`")
    assert told[3].startswith("  heavy: ")


@asynccontextmanager
async def serving() -> AsyncIterator[Sidecar]:
    """The shipped configuration, on a free port."""
    config = load(ROOT / "config.yaml", env={})
    server = config.server.model_copy(update={"port": 0})
    async with Sidecar(config.model_copy(update={"server": server})) as sidecar:
        yield sidecar


async def test_the_client_example() -> None:
    path = ROOT / "examples" / "sidecar" / "client.py"
    async with serving() as sidecar:
        told = await asyncio.to_thread(python, str(path), TIER_ROUTER_URL=sidecar.url)
    lines = [line.strip() for line in told.splitlines()]
    assert [line for line in lines if not line.startswith(("answer:", "and", "Meta", "meta"))][
        : len(shown(path))
    ] == shown(path)


def shown(path: Path) -> list[str]:
    """The output that an example's docstring shows: its last indented block."""
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    block = text.rstrip().rpartition("\n\n")[2]
    return [line.strip() for line in block.splitlines()]


@pytest.mark.parametrize("name", ["langchain_chain.py", "langchain_agent.py"])
def test_an_example_prints_what_it_shows(name: str) -> None:
    pytest.importorskip("langchain", reason="langchain is not installed")
    path = ROOT / "examples" / name
    told = [line.strip() for line in python(str(path)).splitlines()]
    assert told == shown(path)


async def test_the_curl_example() -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    async with serving() as sidecar:
        done = await asyncio.create_subprocess_exec(
            "sh",
            str(ROOT / "examples" / "sidecar" / "curl.sh"),
            env=ENV | {"TIER_ROUTER_URL": sidecar.url},
            stdout=asyncio.subprocess.PIPE,
        )
        told, _ = await done.communicate()
    assert told.split() == [b"x-tier-router-tier:", b"light", b"x-tier-router-tier:", b"heavy"]
