"""The examples do what they say."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("litellm", reason="needs pip install 'tier-router[litellm]'")

import httpx

from tests.litellm.proxy import START, _free_port

ROOT = Path(__file__).parents[2]
PROXY = ROOT / "examples" / "litellm_proxy"
MORE = {"PYTHONPATH": str(ROOT), "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR",
        "NO_PROXY": "127.0.0.1"}  # fmt: skip


def test_the_router_prints_what_its_docstring_shows() -> None:
    script = ROOT / "examples" / "litellm_router.py"
    shown = script.read_text("utf-8").partition('"""')[2].partition('"""')[0]
    expected = shown.partition("yours\n\n")[2]
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=120,
        env=os.environ | MORE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == expected


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the proxy that `start.sh` starts."""
    port = str(_free_port())
    log = tmp_path_factory.mktemp("example") / "log"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    clean = {n: v for n, v in os.environ.items() if n not in ("LIGHT_URL", "HEAVY_URL")}
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["sh", PROXY / "start.sh", "--port", port], stdout=out, stderr=subprocess.STDOUT,
            env=clean | MORE | {"PATH": path},
        )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    try:
        end = time.monotonic() + START
        while time.monotonic() < end:
            assert process.poll() is None, log.read_text("utf-8")[-3000:]
            try:
                httpx.get(f"{url}/health/liveliness", trust_env=False)
                break
            except httpx.TransportError:
                time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.mark.litellm
def test_the_proxy_answers_as_its_readme_shows(started: str) -> None:
    readme = (PROXY / "README.md").read_text("utf-8")
    for question, answer in {
        "When do you open?": "This is the light model.",
        "Prove that the square root of 3 is irrational.": "This is the heavy model.",
    }.items():
        assert question in readme
        response = httpx.post(
            f"{started}/v1/chat/completions",
            json={"model": "auto", "messages": [{"role": "user", "content": question}]},
            headers={"authorization": "Bearer sk-tier-router-example"},
            timeout=60, trust_env=False,
        )  # fmt: skip
        assert response.status_code == 200, response.text
        assert response.json()["choices"][0]["message"]["content"] == answer
        names = ("x-tier-router-tier", "x-tier-router-replica", "x-tier-router-reason")
        shown = "\n".join(f"{name}: {response.headers[name]}" for name in names)
        assert shown in readme
