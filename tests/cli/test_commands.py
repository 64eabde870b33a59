"""The console command, as a process: output, errors, exit codes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tier_router.cli.source import packaged, resolve

ROOT = Path(__file__).parents[2]
ENV = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'proxy'}", "COLUMNS": "120"}
TWO = """
tiers:
  - {name: light, model: m8, replicas: [http://a], context: 1000}
  - {name: heavy, model: m70, replicas: [http://b], context: 8000}
"""


def run(
    *args: str, stdin: str | bytes = "", cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    data = stdin.encode() if isinstance(stdin, str) else stdin
    done = subprocess.run(
        [sys.executable, "-m", "tier_router", *args],
        input=data,
        capture_output=True,
        env=ENV,
        cwd=cwd,
        timeout=120,
        check=False,
    )
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "c.yaml"
    path.write_text(TWO)
    return str(path)


# ---- check


def test_check_shows_the_ladder(config: str) -> None:
    done = run("check", "-c", config)
    assert done.returncode == 0
    assert "m70" in done.stdout
    assert f"{config}: ok" in done.stdout


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (TWO + "polcy: {}\n", "c.yaml:5 polcy: unknown key; did you mean `policy`?"),
        (TWO + "load: {price: much}\n", "c.yaml:5 load.price: input should be a valid number"),
        ("tiers: [\n", "c.yaml:2: not YAML"),
    ],
)
def test_a_bad_file_is_one_line_and_exit_code_1(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    for command in (["check"], ["explain", "hi"], ["serve"]):
        done = run(*command, "--config", "c.yaml", cwd=tmp_path)
        assert done.returncode == 1
        assert done.stderr.startswith(f"tier-router: {told}")
        assert done.stderr.count("\n") == 1
        assert done.stdout == ""


def test_the_schema_is_json_for_editors() -> None:
    done = run("check", "--schema")
    assert json.loads(done.stdout)["properties"]["tiers"]["description"].startswith("The ladder")


def test_a_missing_file_is_named() -> None:
    done = run("check", "-c", "/nowhere/c.yaml")
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr == "tier-router: /nowhere/c.yaml: cannot be read: No such file or directory\n"
    )


def test_the_default_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve(None) == packaged()
    assert packaged().is_file()
    (tmp_path / "config.yaml").write_text(TWO)
    assert resolve(None) == Path("config.yaml")
    assert resolve(Path("x")) == Path("x")


def test_help_lists_the_commands() -> None:
    done = run("--help")
    assert done.returncode == 0
    for command in ("serve", "check", "explain", "score", "demo"):
        assert command in done.stdout
    assert run("explode").returncode == 2


# ---- explain

PROBES = {
    "What is my balance?": "light",
    "hi": "light",
    "thanks, the api request error is gone": "light",
    "what does git commit do?": "light",
    "Prove that there are infinitely many primes congruent to 3 mod 4": "heavy",
    "A 74-year-old on warfarin was given fluconazole a week ago; INR is 7.2, no bleeding. What do "
    "you do?": "heavy",
    "Under UCC 2-711, what remedies does a buyer have after the seller repudiates?": "heavy",
    "What is the 100th prime number?": "heavy",
    "Demuestra que hay infinitos números primos congruentes con 3 módulo 4": "heavy",
    "证明存在无穷多个模4余3的素数": "heavy",
}


def test_explain_says_where_and_why(tmp_path: Path) -> None:
    lines = "".join(json.dumps(text) + "\n" for text in PROBES)
    done = run("score", "-", stdin=lines, cwd=tmp_path)
    assert done.returncode == 0
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert dict(zip(PROBES, [each["tier"] for each in told], strict=True)) == PROBES
    assert all(each["why"] for each in told)


def test_explain_in_words_and_as_json(tmp_path: Path) -> None:
    words = run("explain", "What is my balance?", cwd=tmp_path)
    assert words.stdout.startswith("light")
    assert "because    it is the intent `balance`" in words.stdout
    told = json.loads(run("explain", "Prove it by induction.", "--json", cwd=tmp_path).stdout)
    assert told["tier"] == "heavy"
    assert told["signals"]
    assert set(told["signals"][0]) == {"speaks", "of"}


@pytest.mark.parametrize("way", ["file", "stdin", "dash"])
def test_explain_takes_a_body(tmp_path: Path, config: str, way: str) -> None:
    body = {"model": "heavy", "messages": [{"role": "user", "content": "hi"}]}
    (tmp_path / "body.json").write_text(json.dumps(body))
    given: dict[str, tuple[list[str], str]] = {
        "file": ([str(tmp_path / "body.json")], ""),
        "stdin": ([], json.dumps(body)),
        "dash": (["-"], json.dumps(body)),
    }
    args, stdin = given[way]
    done = run("explain", *args, "-c", config, "--json", stdin=stdin)
    told = json.loads(done.stdout)
    assert (told["tier"], told["reasons"]) == ("heavy", ["pinned"])


@pytest.mark.parametrize(
    ("stdin", "told"),
    [
        ('{"messages": [', "the body is not JSON"),
        ('{"messages": 5}', "`messages` must be a list"),
        (json.dumps({"prompt": "word " * 20_000}), "the prompt has about"),
        (json.dumps({"prompt": "x", "model": "nope"}), "no tier or model named `nope`"),
    ],
)
def test_explain_refuses_in_one_line(config: str, stdin: str, told: str) -> None:
    done = run("explain", "-", "-c", config, stdin=stdin)
    assert done.returncode == 1
    assert told in done.stderr
    assert done.stderr.count("\n") == 1


# ---- score


def scored(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_score_takes_every_shape_of_line(tmp_path: Path, config: str) -> None:
    lines: list[Any] = [
        "hi",
        {"prompt": "hi"},
        {"text": "hi"},
        {"messages": [{"role": "user", "content": "hi"}], "model": "heavy"},
        {"request": {"messages": [{"role": "user", "content": "hi"}], "model": "light"}},
        [{"role": "user", "content": "hi"}],
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("\n\n".join(map(json.dumps, lines)))
    done = run("score", str(path), "-c", config)
    assert done.returncode == 0
    told = scored(done)
    assert [each["line"] for each in told] == [1, 3, 5, 7, 9, 11], "as an editor counts them"
    assert [each["reasons"] for each in told][3:5] == [["pinned"], ["pinned"]]
    assert "6 decided: light 5 (83.3%), heavy 1 (16.7%)" in done.stderr


def test_score_loses_no_line(tmp_path: Path, config: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'"hi"\n{broken\n{"nothing": 1}\n5\n\xff\xfe\n"bye"\n')
    done = run("score", str(path), "-c", config)
    assert done.returncode == 1
    told = scored(done)
    assert [each["line"] for each in told] == [1, 2, 3, 4, 5, 6]
    assert ["error" in each for each in told] == [False, True, True, True, True, False]
    assert "2 decided: light 2 (100.0%); 4 lines could not be read" in done.stderr


def test_score_names_a_missing_file(config: str) -> None:
    done = run("score", "/nowhere.jsonl", "-c", config)
    assert (done.returncode, done.stderr) == (
        1,
        "tier-router: /nowhere.jsonl: No such file or directory\n",
    )


# ---- demo


def test_the_demo_shows_before_and_after() -> None:
    done = run("demo", "--seconds", "3", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["failed"] == 0
    simple = told["classes"]["simple"]
    assert simple["after"]["ttft_p50"] < simple["before"]["ttft_p50"]
    assert 0.02 < told["heavy_share"] < 0.4
    assert "TTFT p50" in run("demo", "--seconds", "2").stdout
