"""The same report from a Ray cluster.  Starting one takes a while and the wheel is large: only with
`TIER_ROUTER_RAY=1` (`pip install 'tier-router[ray]'`)."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.evidence.conftest import YAML, record

ROOT = Path(__file__).parents[2]
ENV = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'proxy'}"}

pytestmark = pytest.mark.skipif(
    not os.environ.get("TIER_ROUTER_RAY"), reason="TIER_ROUTER_RAY is not set"
)


def report(log: Path, config: Path, engine: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "tier_router", "report", str(log), "-c", str(config), "--json",
         "--engine", engine],
        capture_output=True, text=True, env=ENV, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_ray_gives_the_same_report(tmp_path: Path) -> None:
    log, config = tmp_path / "log.jsonl", tmp_path / "c.yaml"
    config.write_text(YAML)
    lines = [json.dumps(record(n, difficulty=(n % 97) / 97)) for n in range(40_000)]
    lines[20_000] = "{broken"
    log.write_text("\n".join(lines))
    assert log.stat().st_size > 8 * 1024 * 1024  # several chunks
    here, there = (report(log, config, engine) for engine in ("polars", "ray"))
    for side in ("routed", "all_largest"):
        assert here[side].pop("gpu_hours") == pytest.approx(there[side].pop("gpu_hours"))
        assert here[side].pop("cost") == pytest.approx(there[side].pop("cost"))
    for one, other in zip(here.pop("by_tier"), there.pop("by_tier"), strict=True):
        assert one["requests"] == other["requests"]
    assert here == there
    assert here["log"]["problems"][0]["line"] == 20_001
