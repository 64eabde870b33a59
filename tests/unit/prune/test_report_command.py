"""`tier-router pruning-report` on logs that a person could have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tier_router.cli.app import app
from tier_router.cli.pruning_report import run as report
from tier_router.config import load
from tier_router.config.pruning import Pruning, Step
from tier_router.errors import ConfigError, RequestError
from tier_router.prune.audit import Audit, Finding
from tier_router.pruner.proofs import Proofs

CONFIG = "tiers: [{name: light, model: m, replicas: ['http://a:1']}]\npruning: {mode: observe}\n"


def log(path: Path, audits: int, lost: int = 0) -> Path:
    """Records of `audits` requests whose passages were judged, in the shape of a decision log."""
    lines = []
    for number in range(audits):
        found = {"step": "rag", "lost": number < lost, "tool": None, "saved": 1_000}
        told = {"tier": "light", "intent": "faq", "tokens_before": 900, "tokens_after": 800,
                "uncached_before_est": 500, "uncached_after_est": 420, "fits_by_pruning": False,
                "audit": [found], "tool_rank": 1 + number % 4, "tools": 50}  # fmt: skip
        lines.append(json.dumps({"tier": "light", "pruning": told} if number % 2 else told))
    path.write_text("\n".join(lines) + "\n\n", "utf-8")
    return path


def run(tmp_path: Path, *more: str, audits: int = 600, lost: int = 0) -> str:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG, "utf-8")
    path = log(tmp_path / "log.jsonl", audits, lost)
    done = CliRunner().invoke(app, ["pruning-report", str(path), "-c", str(config), *more])
    assert done.exit_code == 0, done.output
    return done.output


def test_it_says_what_is_ready(tmp_path: Path) -> None:
    out = run(tmp_path)
    assert "600 requests: 60000 prompt tokens removed, 48000 fewer to prefill" in out
    assert "0.50%" in out
    assert "not ready" not in out.split("tool list")[0]


def test_a_loss_or_too_few_audits_are_not_ready(tmp_path: Path) -> None:
    assert "not ready" in run(tmp_path, lost=1)
    assert "not ready" in run(tmp_path, audits=599)


def test_as_json(tmp_path: Path) -> None:
    told = json.loads(run(tmp_path, "--json", audits=1_400))
    assert [row["ready"] for row in told["steps"]] == [True, True]
    assert told["steps"][1]["intent"] == "faq"
    assert told["tool_list"] == {"light": 4}


def test_an_empty_log_says_how_to_fill_it(tmp_path: Path) -> None:
    assert "no audits: `pruning.mode: observe` gathers them" in run(tmp_path, audits=0)


def test_decisions_without_anything_to_prune_count_as_requests(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG, "utf-8")
    path = tmp_path / "log.jsonl"
    lines = [{"v": 1, "door": "sidecar", "tier": "light"}, {"v": 1, "door": "sidecar"}]
    path.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    done = CliRunner().invoke(app, ["pruning-report", str(path), "-c", str(config)])
    assert "2 requests: 0 prompt tokens removed" in done.output


def test_the_held_out_requests_are_what_a_saving_is_measured_by(tmp_path: Path) -> None:
    config, path = tmp_path / "config.yaml", tmp_path / "log.jsonl"
    config.write_text(CONFIG, "utf-8")
    lines = []
    for number in range(30):
        held = number % 3 == 0
        told = {"tier": "light", "heldout": held, "tokens_before": 900,
                "tokens_after": 900 if held else 500}  # fmt: skip
        took = {"ttft": 0.3} if held else {"latency": 0.2}
        lines.append(json.dumps({"door": "sidecar", "tier": "light", "pruning": told, **took}))
    path.write_text("\n".join(lines), "utf-8")
    done = CliRunner().invoke(app, ["pruning-report", str(path), "-c", str(config)])
    assert "first token: 0.200 s pruned (20), 0.300 s held out (10)" in done.output


def test_the_proofs_are_what_a_start_goes_by(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG.replace("observe}", "observe, proofs: p.json}"), "utf-8")
    proofs = Proofs(load(config).pruning)
    for _ in range(600):
        proofs.add(Audit("light", None, (Finding(Step.RAG, False, saved=10),)))
    proofs.save()
    done = CliRunner().invoke(app, ["pruning-report", "-c", str(config)])
    assert done.exit_code == 0, done.output
    (row,) = [line for line in done.output.splitlines() if line.startswith("rag")]
    assert row.split() == ["rag", "light", "600", "0", "0.50%", "6000", "ready"]


def test_without_log_and_proofs_it_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"pruning\.proofs"):
        report(None, Pruning(), False)


@pytest.mark.parametrize("line", ["not json", "[1]", '{"model": "m"}'])
def test_a_line_that_is_no_record_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"tier": "light", "audit": []}\n' + line + "\n", "utf-8")
    with pytest.raises(RequestError, match=r"log\.jsonl:2: "):
        report(path, Pruning(), False)
