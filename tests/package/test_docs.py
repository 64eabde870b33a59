"""What the README and the examples show is run."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tier_router import parse
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


@pytest.mark.parametrize("block", [text for kind, text in BLOCKS if kind == "yaml"])
def test_yaml_in_the_readme_is_a_configuration(block: str) -> None:
    config = parse(block, name="README.md", env={})
    assert len(config.tiers) == 2


def test_the_readme_names_no_command_that_is_not_there() -> None:
    found = re.findall(r"^\s*(?:\$ )?tier-router (\w+)|`tier-router (\w+)", README, re.M)
    commands = {name for names in found for name in names if name}
    assert commands >= {"serve", "check", "explain"}
    assert commands <= {"serve", "check", "explain", "score", "demo"}


def test_the_decision_example() -> None:
    told = python(str(ROOT / "examples" / "decide.py")).splitlines()
    assert told[1].startswith("  light: it is the intent `opening_hours`")
    assert told[3].startswith("  heavy: ")


async def test_the_client_example() -> None:
    import asyncio

    from tier_router import load

    config = load(ROOT / "config.yaml", env={})
    server: Any = config.server.model_copy(update={"port": 0})
    async with Sidecar(config.model_copy(update={"server": server})) as sidecar:
        told = await asyncio.to_thread(
            python, str(ROOT / "examples" / "client.py"), TIER_ROUTER_URL=sidecar.url
        )
    assert "tier:   light" in told
    assert "tier:   heavy" in told
