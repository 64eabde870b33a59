"""The official OpenAI clients, Python and Node, against the sidecar."""

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import openai
import pytest

NODE = Path(__file__).with_name("node")
EXAMPLES = Path(__file__).parents[2] / "examples" / "sidecar"


async def test_the_python_client(stage: Any) -> None:
    await stage.serve()
    async with openai.AsyncOpenAI(
        base_url=f"{stage.sidecar.url}/v1", api_key="none", max_retries=0
    ) as client:
        raw = await client.chat.completions.with_raw_response.create(
            model="auto", messages=[{"role": "user", "content": "hello"}]
        )
        assert raw.headers["x-tier-router-tier"] == "light"
        assert raw.parse().choices[0].message.content

        stream = await client.chat.completions.create(
            model="auto",
            messages=[{"role": "user", "content": "prove it"}],
            stream=True,
            stream_options={"include_usage": True},
        )
        assert stream.response.headers["x-tier-router-tier"] == "heavy"
        chunks = [chunk async for chunk in stream]
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        assert chunks[-1].usage is not None

        assert [model.id async for model in client.models.list()] == ["auto", "light", "heavy"]
        assert (await client.models.retrieve("light")).id == "light"

        with pytest.raises(openai.NotFoundError) as missing:
            await client.chat.completions.create(
                model="nope", messages=[{"role": "user", "content": "x"}]
            )
        assert missing.value.code == "model_not_found"
        for fake in stage.fakes:
            await fake.stop()
        with pytest.raises(openai.InternalServerError) as down:
            await client.chat.completions.create(
                model="auto", messages=[{"role": "user", "content": "x"}]
            )
        assert "refused" in str(down.value)


@pytest.fixture(scope="session")
def node_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the Node client and its dependency installed."""
    import subprocess

    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = tmp_path_factory.mktemp("node")
    for path in (*NODE.iterdir(), EXAMPLES / "client.mjs"):
        shutil.copy(path, folder / (path.name if path.parent == NODE else "example.mjs"))
    done = subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", "--silent"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"npm cannot install the openai package: {done.stderr.strip()[-200:]}")
    return folder


async def node(folder: Path, script: str, url: str) -> str:
    """What a script prints."""
    process = await asyncio.create_subprocess_exec(
        "node",
        script,
        cwd=folder,
        env=os.environ | {"TIER_ROUTER_URL": url},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, errors.decode()
    return out.decode()


async def test_the_node_client(stage: Any, node_folder: Path) -> None:
    await stage.serve()
    told = json.loads(await node(node_folder, "client.mjs", stage.sidecar.url))
    assert told["tier"] == "light"
    assert told["content"]
    assert told["streamed"]
    assert told["chunks"] > 3
    assert told["usage"]["completion_tokens"] > 0
    assert told["models"] == ["auto", "light", "heavy"]
    assert told["error"] == {"status": 404, "code": "model_not_found", "name": "NotFoundError"}


async def test_the_node_example(stage: Any, node_folder: Path) -> None:
    await stage.serve()
    told = await node(node_folder, "example.mjs", stage.sidecar.url)
    assert told.count("tier:   light") == told.count("tier:   heavy") == 1


async def shell(*command: str, **env: str) -> str:
    """What `run.sh` and the command it runs print."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = await asyncio.create_subprocess_exec(
        "sh",
        str(EXAMPLES / "run.sh"),
        *command,
        env=os.environ | {"PATH": path} | env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, errors.decode()
    return out.decode()


@pytest.mark.skipif(
    shutil.which("tier-router", path=str(Path(sys.executable).parent)) is None
    or shutil.which("curl") is None,
    reason="needs curl, and the package installed",
)
async def test_the_examples_start_simulated_tiers_of_their_own() -> None:
    told = await shell(TIER_ROUTER_URL="")
    lines = [line.strip() for line in told.splitlines()]
    assert lines[:2] == ["x-tier-router-tier: light", "x-tier-router-tier: heavy"]
    assert lines.count("tier:   light") >= 1
    assert lines.count("tier:   light") == lines.count("tier:   heavy")
    assert "reason: intent" in lines


async def test_the_examples_use_the_sidecar_that_is_there(stage: Any) -> None:
    await stage.serve()
    example = str(EXAMPLES / "client.py")
    told = await shell(sys.executable, example, TIER_ROUTER_URL=stage.sidecar.url)
    assert "tier:   light" in told
    assert sum(stage.served().values()) == 3
