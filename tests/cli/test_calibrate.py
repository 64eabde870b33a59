"""`tier-router calibrate`, as a process: the file it writes, what it says, and its errors."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tier_router import TierRouter
from tier_router.cli.calibrate import needed

ROOT = Path(__file__).parents[2]
ENV = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'proxy'}", "COLUMNS": "120"}
TWO = """
tiers:
  - {name: light, model: m8, replicas: [http://a]}
  - {name: heavy, model: m70, replicas: [http://b]}
"""
EASY = ["what is my balance", "play some jazz", "what time is it in {}", "rename {} to x"]
HARD = [
    "Prove that the sum of {} odd integers has the parity of {}",
    "Compute the residue of 1/(z^{}+1) at z = i and justify each step",
    "Patient with creatinine {} and atrial fibrillation: which anticoagulant and what dose?",
    "Design a lock-free queue for {} producers and prove that it is linearizable",
]


def prompts(count: int) -> list[str]:
    texts = [*EASY, *HARD]
    return [texts[i % len(texts)].replace("{}", str(i)) for i in range(count)]


def write(path: Path, records: list[object]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")


def calibrate(cwd: Path, *args: str) -> subprocess.CompletedProcess[str]:
    (cwd / "config.yaml").write_text(TWO)
    return subprocess.run(
        [sys.executable, "-m", "tier_router", "calibrate", *args],
        capture_output=True, env=ENV, cwd=cwd, timeout=120, check=False, text=True,
    )  # fmt: skip


def after(cwd: Path) -> TierRouter:
    (cwd / "config.yaml").write_text(TWO + "policy: {calibration: calibration.yaml}\n")
    return TierRouter.from_file(cwd / "config.yaml")


def share(router: TierRouter, texts: list[str]) -> float:
    bodies = [{"messages": [{"role": "user", "content": text}]} for text in texts]
    up = [router.decide(router.view(body)).tier == "heavy" for body in bodies]
    return sum(up) / len(up)


def test_a_share_holds_on_the_log_and_on_more_of_it(tmp_path: Path) -> None:
    write(tmp_path / "log.jsonl", list(prompts(200)))
    done = calibrate(tmp_path, "log.jsonl", "--heavy-share", "0.3")
    assert done.returncode == 0, done.stderr
    assert "30.0% of 200 requests go up" in done.stderr
    assert "decisions change" in done.stderr
    router = after(tmp_path)
    assert share(router, prompts(200)) == pytest.approx(0.3, abs=0.005)
    assert router.config.sources[-1].name == "calibration.yaml"


def test_labels_of_all_shapes_correct_the_difficulty(tmp_path: Path) -> None:
    records: list[object] = []
    for i, text in enumerate(prompts(400)):
        hard = i % 8 >= 4 and i % 16 != 4
        records.append(
            [
                {"prompt": text, "scores": {"light": int(not hard), "heavy": 1}},
                {"text": text, "light": int(not hard), "heavy": 1},
                {"messages": [{"role": "user", "content": text}],
                 "preferred": "heavy" if hard else "tie"},
            ][i % 3]
        )  # fmt: skip
    write(tmp_path / "labels.jsonl", records)
    done = calibrate(tmp_path, "--labels", "labels.jsonl")
    assert done.returncode == 0, done.stderr
    assert "the difficulty is corrected" in done.stderr
    written = yaml.safe_load((tmp_path / "calibration.yaml").read_text())
    assert "threshold" not in written
    router = after(tmp_path)
    hard_one = router.view({"messages": [{"role": "user", "content": HARD[0]}]})
    assert router.judge(hard_one).now.difficulty > 0.4


def test_labels_that_are_noise_change_nothing(tmp_path: Path) -> None:
    records = [{"prompt": text, "preferred": "heavy" if i * 7919 % 13 < 5 else "light"}
               for i, text in enumerate(prompts(200))]  # fmt: skip
    write(tmp_path / "labels.jsonl", list(records))
    done = calibrate(tmp_path, "--labels", "labels.jsonl")
    assert done.returncode == 0, done.stderr
    assert "nothing is changed" in done.stderr
    assert "points" not in yaml.safe_load((tmp_path / "calibration.yaml").read_text())
    after(tmp_path)


@pytest.mark.parametrize(
    ("files", "args", "told"),
    [
        ({"log.jsonl": '"hi"\n{bad\n'}, ("log.jsonl", "--heavy-share", "0.3"),
         "log.jsonl:2: not JSON"),
        ({"log.jsonl": "\n"}, ("log.jsonl", "--heavy-share", "0.3"), "log.jsonl: no requests"),
        ({"l.jsonl": '{"prompt": "hi"}\n'}, ("--labels", "l.jsonl"),
         "l.jsonl:1: a label has `scores` by tier (light, heavy) or `preferred`"),
        ({"l.jsonl": '{"prompt": "hi", "scores": {"light": 2, "heavy": 1}}\n'},
         ("--labels", "l.jsonl"), "l.jsonl:1: the score of `light` is a number between 0 and 1"),
        ({"l.jsonl": '\n{"prompt": "hi", "preferred": "huge"}\n'}, ("--labels", "l.jsonl"),
         "l.jsonl:2: `preferred` is a tier (light, heavy) or `tie`, not 'huge'"),
        ({}, (), "give a log and --heavy-share, or --labels"),
        ({}, ("--heavy-share", "0.3", "--labels", "none.jsonl"), "--heavy-share needs a log"),
        ({}, ("none.jsonl", "--heavy-share", "0.3"), "none.jsonl: No such file"),
    ],
)  # fmt: skip
def test_errors_name_the_line(
    tmp_path: Path, files: dict[str, str], args: tuple[str, ...], told: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    done = calibrate(tmp_path, *args)
    assert done.returncode == 1
    assert told in done.stderr
    assert not (tmp_path / "calibration.yaml").exists()


def test_a_bad_calibration_file_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "calibration.yaml").write_text("threshold: 0.3\npoints: [[0, 0.5], [0.5, 0.2]]\n")
    with pytest.raises(Exception, match=r"calibration.yaml:2 points: points rise"):
        after(tmp_path)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"scores": {"light": 0, "heavy": 1}}, 1.0),
        ({"scores": {"light": 0.5, "heavy": 0.5}}, 0.25),
        ({"scores": {"light": 0, "middle": 1}}, 1.0),
        ({"light": True, "heavy": True}, 0.0),
        ({"preferred": "middle"}, 1.0),
        ({"preferred": "light"}, 0.0),
        ({"preferred": "tie"}, 0.0),
    ],
)
def test_what_a_label_says(record: dict[str, object], expected: float) -> None:
    assert needed(record, ["light", "middle", "heavy"]) == expected
