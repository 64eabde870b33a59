"""Proofs in a file: what restarts, other processes and other settings do to them."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest

from tier_router.config.pruning import Promote, Pruning, Step
from tier_router.errors import ConfigError
from tier_router.prune.audit import Audit, Finding, refusals
from tier_router.pruner.proofs import Proofs
from tier_router.pruner.thread import WAITING, Auditor

KEPT = Audit("light", "faq", (Finding(Step.RAG, False, saved=100),))
LOST = Audit("light", "faq", (Finding(Step.RAG, True),))
RANKED = Audit("light", None, rank=3, tools=20)


def settings(path: Path, **rag: Any) -> Pruning:
    return Pruning.model_validate({"mode": "on", "proofs": str(path), "steps": {"rag": rag}})


def audits(proofs: Proofs) -> int:
    return sum(count.audits for _, count in proofs.audits.totals())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "proofs.json"


def test_six_hundred_audits_without_a_loss_open_the_way_after_a_restart(path: Path) -> None:
    config = settings(path, mode="on")
    proofs = Proofs(config)
    assert len(refusals(config, ["light"], proofs.audits)) == 1
    for _ in range(600):
        proofs.add(KEPT)
    proofs.save()
    assert refusals(config, ["light"], Proofs(config).audits) == []
    again = Proofs(config)
    again.add(LOST)
    again.save()
    assert len(refusals(config, ["light"], Proofs(config).audits)) == 1


def test_other_settings_have_proven_nothing_and_forget_nothing(path: Path) -> None:
    proofs = Proofs(settings(path))
    proofs.add(KEPT)
    proofs.save()
    other = Proofs(settings(path, relative=0.2))
    assert audits(other) == 0
    other.add(KEPT)
    other.add(KEPT)
    other.save()
    assert audits(Proofs(settings(path))) == 1
    assert audits(Proofs(settings(path, mode="on", relative=0.2))) == 2, "the mode is no setting"


def _count(config: Pruning, times: int) -> None:
    proofs = Proofs(config)
    for _ in range(times):
        proofs.add(KEPT)
        proofs.add(RANKED)
        proofs.save()
    os._exit(0)


def test_processes_that_save_at_once_lose_nothing(path: Path) -> None:
    config = settings(path)
    fork = multiprocessing.get_context("fork")
    workers = [fork.Process(target=_count, args=(config, 20)) for _ in range(3)]
    for each in workers:
        each.start()
    for each in workers:
        each.join(30)
    proofs = Proofs(config)
    assert audits(proofs) == 60
    assert proofs.audits.ranks["light"] == {3: 60}
    assert not [each for each in path.parent.iterdir() if each.suffix.isdigit()]


@pytest.mark.parametrize("text", ["", "[]", '{"v": 9, "rows": []}', '{"v": 1, "rows": [{}]}'])
def test_a_file_that_is_none_of_ours_is_refused_and_left_alone(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"pruning\.proofs"):
        Proofs(settings(path))
    assert path.read_text() == text


def test_without_a_file_proofs_last_as_long_as_the_process() -> None:
    proofs = Proofs(Pruning(mode="on"))
    proofs.add(KEPT)
    proofs.save()
    assert audits(proofs) == 1
    assert audits(Proofs(Pruning(mode="on"))) == 0


def test_the_thread_saves_when_it_ends_and_says_what_is_proven(path: Path) -> None:
    config = settings(path)
    auditor = Auditor(Proofs(config), Promote(need_audits=32, max_loss=0.1), ("light", "heavy"))
    for _ in range(32):
        while not auditor.submit(lambda: KEPT):
            pass
    auditor.close()
    assert auditor.proven == {"light": {Step.RAG}, "heavy": set()}
    assert json.loads(path.read_text())["rows"][0]["audits"] == 32
    assert auditor.submit(lambda: LOST), "later jobs begin anew"
    auditor.close()
    assert json.loads(path.read_text())["rows"][0]["lost"] == 1


def test_an_audit_that_raises_stops_no_other(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Audit:
        raise ValueError("x")

    auditor = Auditor(Proofs(settings(path)), Promote(), ("light",))
    auditor.submit(broken)
    auditor.submit(lambda: KEPT)
    auditor.close()
    assert "could not be audited" in caplog.text
    assert json.loads(path.read_text())["rows"][0]["audits"] == 1


def test_audits_that_come_too_fast_are_left_out(path: Path) -> None:
    import threading

    gate = threading.Event()

    def waiting() -> Audit | None:
        gate.wait(10)
        return None

    auditor = Auditor(Proofs(settings(path)), Promote(), ("light",))
    taken = sum(auditor.submit(waiting) for _ in range(WAITING + 10))
    assert WAITING <= taken <= WAITING + 1
    gate.set()
    auditor.close()


def test_a_folder_that_takes_no_file_is_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = settings(tmp_path / "nowhere" / "proofs.json")
    auditor = Auditor(Proofs(config), Promote(), ("light",))
    for _ in range(2):
        auditor.submit(lambda: KEPT)
        auditor.close()
    assert caplog.text.count("audits are not saved") == 1
