"""`report`, `simulate` and `diff` as commands: output, errors, exit codes."""

import gzip
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.evidence.conftest import YAML, record
from tier_router.cli import app as cli
from tier_router.cli.app import app
from tier_router.errors import TierRouterError

PROMPTS = "when do you open\nProve Fermat's last theorem for n = 4.\nThanks!\n"


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "c.yaml"
    path.write_text(YAML)
    return str(path)


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "log.jsonl"
    lines = [record(n, difficulty=n / 100, intent="hours" if n < 20 else None) for n in range(100)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def run(*args: str, stdin: str | None = None) -> tuple[int, str]:
    """The exit code, and what was printed."""
    done = CliRunner().invoke(app, args, input=stdin, env={"COLUMNS": "80"})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def test_report_says_what_share_needs_the_largest_model(config: str, log: str) -> None:
    code, told = run("report", log, "-c", config)
    assert code == 0
    assert "50.0% (40.4% to 59.6%) of the requests need `heavy`" in told
    assert "all to heavy" in told
    assert "the first 100 requests (99 s) through queues" in told
    assert max(map(len, told.splitlines())) <= 80


def test_report_as_json_and_as_a_page(config: str, log: str, tmp_path: Path) -> None:
    page = tmp_path / "r.html"
    code, told = run("report", log, "-c", config, "--json", "--html", str(page))
    assert code == 0
    found = json.loads(told[: told.rindex("}") + 1])
    assert found["largest"]["count"] == 50
    assert found["intents"]["hours"]["total"] == 20
    assert found["queues"]["before"]["classes"]["all"]["requests"] == 100
    assert "<h2>With queues</h2>" in page.read_text()


def test_report_reads_standard_input_and_packed_logs(config: str, tmp_path: Path) -> None:
    code, told = run("report", "-", "-c", config, stdin=PROMPTS)
    assert code == 0
    assert "-: 3 lines (plain), 3 requests judged" in told
    packed = tmp_path / "p.txt.gz"
    packed.write_bytes(gzip.compress(PROMPTS.encode()))
    told = run("report", str(packed), "-c", config)[1]
    assert "3 lines (plain)" in " ".join(told.split())
    packed.write_bytes(b"no gzip")
    with pytest.raises(TierRouterError, match="not a whole gzip file"):
        run("report", str(packed), "-c", config)


def test_report_takes_the_format_it_is_told(config: str, tmp_path: Path) -> None:
    path = tmp_path / "p.txt"
    path.write_text('{"not": "a request"}\n' * 2 + "when do you open\n")
    told = run("report", str(path), "-c", config, "--format", "plain")[1]
    assert "3 lines (plain), 3 requests judged" in " ".join(told.split())


def test_report_prints_the_schema_of_the_decision_log() -> None:
    code, told = run("report", "--schema")
    assert code == 0
    assert "conversation" in json.loads(told)["$defs"]["Record"]["properties"]


def test_report_of_no_log_or_an_absent_one_is_one_line(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for args, said in (
        (["report"], "give a log to report on"),
        (["report", str(tmp_path / "no"), "-c", config], "no: No such file or directory"),
    ):
        monkeypatch.setattr("sys.argv", ["tier-router", *args])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == 1
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1


def test_simulate_shows_before_and_after_and_replicas(config: str, log: str) -> None:
    code, told = run("simulate", log, "-c", config, "--rate", "2", "--slo", "ttft=1.0")
    assert code == 0
    assert "100 requests in 50 s, 2.0" in told
    assert "before: 1 heavy, each 1.50 times as fast (6 GPUs)" in told
    assert "P95 ttft <= 1 s: 1 light, " in told
    assert max(map(len, told.splitlines())) <= 80


def test_simulate_plays_traces(config: str, tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("t_s,in_tokens,out_tokens\n" + "".join(f"{n},100,50\n" for n in range(50)))
    with pytest.raises(TierRouterError, match="--heavy-share"):
        run("simulate", str(trace), "-c", config)
    code, told = run("simulate", str(trace), "-c", config, "--heavy-share", "0.4", "--json")
    assert code == 0
    assert json.loads(told)["after"]["classes"].keys() == {"all", "easy", "hard"}


def test_simulate_fails_where_the_objective_cannot_be_met(config: str, log: str) -> None:
    code, told = run("simulate", log, "-c", config, "--slo", "ttft=0.001")
    assert code == 1
    assert "by no number, an idle replica takes" in told


def test_diff_counts_what_moves_and_fails_over_its_limit(
    config: str, log: str, tmp_path: Path
) -> None:
    new = tmp_path / "new.yaml"
    new.write_text(YAML.replace("threshold: 0.5", "threshold: 0.8"))
    code, told = run("diff", config, str(new), log)
    assert code == 0
    assert "30 of 100 requests move" in told
    assert run("diff", config, str(new), log, "--max-moved", "30%")[0] == 0
    code, told = run("diff", config, str(new), log, "--max-moved", "2%", "--json")
    assert code == 1
    found = json.loads(told)
    assert (found["moved"]["count"], found["over"]) == (30, True)
    assert run("diff", config, config, log, "--max-moved", "0")[0] == 0
    with pytest.raises(TierRouterError, match="a share is like"):
        run("diff", config, str(new), log, "--max-moved", "much")


def test_diff_judges_texts_by_both_configurations(config: str, tmp_path: Path) -> None:
    new, prompts = tmp_path / "new.yaml", tmp_path / "p.txt"
    new.write_text(YAML.replace("hours: {tier: light", "hours: {tier: heavy"))
    prompts.write_text(PROMPTS)
    told = json.loads(run("diff", config, str(new), str(prompts), "--json")[1])
    (moved,) = told["examples"]
    assert (moved["line"], moved["text"], moved["target"]) == (1, "when do you open", "heavy")
    assert told["judged_again"]


def test_a_broken_configuration_is_told_by_its_line(log: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("tiers:\n  - {name: light, modle: m, replicas: [http://a]}\n")
    with pytest.raises(TierRouterError, match=r"bad\.yaml:2 tiers\[0\]\.modle"):
        run("report", log, "-c", str(path))
