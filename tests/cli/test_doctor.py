"""`tier-router doctor` as a process: what it prints, and its exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tier_router.testing import FakeVllm, Flags, Speed, running

ROOT = Path(__file__).parents[2]
ENV = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'proxy'}", "COLUMNS": "60"}
SEEN = Speed(step=0.005)


def doctor(*args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tier_router", "doctor", *args],
        capture_output=True,
        text=True,
        env=ENV,
        cwd=cwd,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def fakes() -> Iterator[tuple[FakeVllm, ...]]:
    """One in good health, one without load tracking."""
    with running(
        FakeVllm("m8", speed=SEEN, max_model_len=4096),
        FakeVllm("m70", speed=SEEN, flags=Flags(load_tracking=False)),
    ) as fakes:
        yield fakes


@pytest.fixture
def written(fakes: tuple[FakeVllm, ...], tmp_path: Path) -> Path:
    path = tmp_path / "c.yaml"
    path.write_text(
        "tiers:\n"
        f"  - {{name: light, model: m8, replicas: ['{fakes[0].url}']}}\n"
        f"  - {{name: heavy, model: m70, replicas: ['{fakes[1].url}']}}\n"
    )
    return path


def test_it_says_what_is_missing_and_what_would_mend_it(
    written: Path, fakes: tuple[FakeVllm, ...]
) -> None:
    done = doctor(str(written))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == "light  m8"
    assert lines[1] == f"  light-0  {fakes[0].url}"
    assert "    ok       serves `m8` with 4,096 tokens of context" in lines
    warning = next(line for line in lines if "warning " in line)
    assert warning.endswith("(--enable-server-load-tracking)")
    (mend,) = [line.strip() for line in lines if line.strip().startswith("vllm serve ")]
    assert mend.startswith("vllm serve models/m70 --served-model-name m70 --port ")
    assert "--enable-server-load-tracking" in mend
    assert lines[-1] == f"{written}: 0 errors, 1 warning"


def test_strict_counts_warnings(written: Path) -> None:
    assert doctor("--config", str(written), "--strict").returncode == 1


def test_an_error_is_exit_code_1_and_json_says_which(
    fakes: tuple[FakeVllm, ...], tmp_path: Path
) -> None:
    (tmp_path / "config.yaml").write_text(
        "tiers:\n"
        f"  - {{name: light, model: other, replicas: ['{fakes[0].url}', 'http://127.0.0.1:9']}}\n"
    )
    done = doctor("--json", "--timeout", "3", cwd=tmp_path)
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert (told["errors"], told["warnings"]) == (2, 0)
    first, second = told["tiers"][0]["replicas"]
    assert first["version"] == "0.32.0"
    assert first["models"] == {"m8": 4096}
    assert first["round_trip_ms"] > 0
    errors = [each for each in first["remarks"] if each["level"] == "error"]
    assert errors == [
        {
            "level": "error",
            "code": "model",
            "text": "does not serve the tier's model `other` but `m8`",
            "flag": None,
        }
    ]
    assert second["remarks"][0]["code"] == "unreachable"
    assert told["tiers"][0]["serve"] is None, "no flag is missing"


def test_the_shipped_configuration_is_in_good_health() -> None:
    done = doctor(str(ROOT / "config.yaml"), "--strict")
    assert done.returncode == 0, done.stdout
    assert "  light-0  sim://light-0?" in done.stdout
    assert "vllm serve" not in done.stdout, "there is nothing to start"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    done = doctor("nope.yaml", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("tier-router: nope.yaml")
    assert done.stderr.count("\n") == 1
