"""The decision log: what a line holds, and that writing neither waits, grows, mixes nor fails."""

import json
import multiprocessing
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tier_router.config import parse
from tier_router.config.log import Log, Rotate
from tier_router.decide import decide
from tier_router.decisionlog import DecisionLog, Logbook, Record, record_of, schema
from tier_router.errors import ConfigError
from tier_router.pace import Usage
from tier_router.router import TierRouter

CONFIG = parse("""
tiers:
  - {name: light, model: m8, replicas: [http://a, http://b]}
  - {name: heavy, model: m70, replicas: [http://c]}
policy: {threshold: 0.5}
""")
ROOT = Path(__file__).parents[2]
SECRET = "What is the balance of account 7731?"
BODY = {"model": "auto", "messages": [{"role": "user", "content": SECRET}], "max_tokens": 90}


def a_record(*, salt: bytes = b"s", prompts: bool = False, id: str = "r1") -> Record:
    router = TierRouter(CONFIG)
    view = router.view(BODY)
    return record_of(
        router.decide(view), view, at=1.5, id=id, door="sidecar", outcome="done", status=200,
        ttft=0.01, latency=0.5, usage=Usage(20, 9, 4), salt=salt, prompts=prompts,
    )  # fmt: skip


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_says_where_the_request_went_why_and_what_came_of_it() -> None:
    told = json.loads(msgspec.json.encode(a_record()))
    assert told["v"] == 1
    assert (told["tier"], told["model"], told["asked"]) == ("light", "m8", "auto")
    assert told["replica"] in ("light-0", "light-1")
    assert told["reasons"] == ["easy"]
    assert told["usage"] == {"prompt": 20, "completion": 9, "cached": 4}
    assert told["pressures"] == {"light": 0.0, "heavy": 0.0}
    assert told["max_tokens"] == 90


def test_no_text_of_the_prompt_is_written_unless_asked_for() -> None:
    assert "7731" not in msgspec.json.encode(a_record()).decode()
    assert a_record(prompts=True).text == SECRET


def test_conversations_can_be_told_apart_but_not_recognised_without_the_salt() -> None:
    one, again, other = a_record(), a_record(), a_record(salt=b"another")
    assert one.conversation == again.conversation != other.conversation
    assert re.fullmatch("[0-9a-f]{16}", one.conversation or "")


def test_a_request_that_nothing_took_has_a_line_too() -> None:
    view = TierRouter(CONFIG).view(BODY)
    record = record_of(None, view, at=1, id="r", door="sidecar", outcome="overloaded", status=503)
    assert (record.tier, record.attempts, record.outcome) == ("", 0, "overloaded")


def test_a_tier_that_is_down_is_null_since_json_has_no_infinity() -> None:
    router = TierRouter(CONFIG)
    view = router.view(BODY)
    down = {"light-0": float("inf"), "light-1": float("inf")}
    decision = decide(view, router.judge(view), CONFIG, (0.5,), down)
    record = record_of(decision, view, at=1, id="r", door="sidecar", outcome="done")
    assert json.loads(msgspec.json.encode(record))["pressures"] == {"light": None, "heavy": 0.0}


def test_the_schema_names_every_field() -> None:
    found = schema()["$defs"]["Record"]["properties"]
    assert found.keys() == {field.name for field in msgspec.structs.fields(Record)}
    assert found["conversation"]["description"].startswith("Keyed hash")


def test_what_is_written_is_on_disk_after_close(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    with DecisionLog(Log(path=str(path))) as log:
        for number in range(2_000):
            log.write(a_record(id=f"r{number}") if number < 5 else Record(
                v=1, at=0, id=f"r{number}", door="sidecar"))  # fmt: skip
    assert [line["id"] for line in lines(path)] == [f"r{number}" for number in range(2_000)]
    assert log.dropped == 0


def test_the_salt_is_made_once_and_is_nobody_elses_to_read(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    salts = []
    for _ in range(2):
        with DecisionLog(Log(path=str(path))) as log:
            salts.append(log.salt)
    assert salts[0] == salts[1]
    assert len(salts[0]) == 32
    assert stat.S_IMODE((tmp_path / "d.jsonl.salt").stat().st_mode) == 0o600


def test_a_full_file_is_put_aside_and_only_so_many_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    record = Record(v=1, at=0, id="x" * 1_000, door="sidecar")
    for _ in range(30):  # each close is a write of its own
        with DecisionLog(Log(path=str(path), rotate=Rotate(bytes=64 * 1024, keep=2))) as log:
            for _ in range(20):
                log.write(record)
    kept = sorted(each.name for each in tmp_path.glob("d.jsonl*"))
    assert kept == ["d.jsonl", "d.jsonl.1", "d.jsonl.2", "d.jsonl.lock", "d.jsonl.salt"]
    for name in ("d.jsonl.1", "d.jsonl.2"):
        assert 64 * 1024 <= (tmp_path / name).stat().st_size < 200 * 1024
        assert lines(tmp_path / name)


def _write_many(path: str, name: str, count: int) -> None:
    with DecisionLog(Log(path=path, rotate=Rotate(bytes=64 * 1024, keep=1_000))) as log:
        for number in range(count):
            log.write(Record(v=1, at=number, id=f"{name}-{number}", door="sidecar"))


def test_processes_that_share_a_file_lose_and_mix_no_line_even_while_it_rotates(
    tmp_path: Path,
) -> None:
    path = tmp_path / "d.jsonl"
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=_write_many, args=(str(path), n, 3_000)) for n in ("a", "b")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(30)
        assert writer.exitcode == 0
    files = [each for each in tmp_path.glob("d.jsonl*") if each.suffix not in (".lock", ".salt")]
    assert len(files) > 1
    ids = [line["id"] for each in files for line in lines(each)]
    assert sorted(ids) == sorted(f"{n}-{number}" for n in ("a", "b") for number in range(3_000))


def test_a_disk_that_stands_still_costs_records_not_memory_or_time(tmp_path: Path) -> None:
    fifo = tmp_path / "d.jsonl"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)  # never reads: the pipe fills up
    try:
        log = DecisionLog(Log(path=str(fifo)))
        record = Record(v=1, at=0, id="x" * 1_000, door="sidecar")
        for _ in range(20_000):
            log.write(record)
        assert log.dropped > 10_000
    finally:
        os.close(reader)  # the writer's write fails, and its thread goes on to the end
        log.close()


def test_a_folder_that_is_not_there_is_told_at_once_and_a_door_goes_on(tmp_path: Path) -> None:
    settings = Log(path=str(tmp_path / "no" / "d.jsonl"))
    with pytest.raises(ConfigError, match=r"log\.path: cannot write .*No such file"):
        DecisionLog(settings)
    book = Logbook("sidecar")
    book.note(settings, None, TierRouter(CONFIG).view(BODY), id="r", outcome="done")
    assert book.dropped == 0


def test_a_logbook_follows_the_configuration(tmp_path: Path) -> None:
    book, view = Logbook("langchain"), TierRouter(CONFIG).view(BODY)
    first, second = (Log(path=str(tmp_path / name)) for name in ("1", "2"))
    for settings in (None, first, first, second):
        book.note(settings, None, view, id="r", outcome="done", latency=2.0)
    book.close()
    assert len(lines(tmp_path / "1")) == 2
    assert [line["door"] for line in lines(tmp_path / "2")] == ["langchain"]


def test_the_configuration_takes_a_path_or_a_section(tmp_path: Path) -> None:
    tiers = "tiers: [{name: light, model: m, replicas: [http://a]}]\n"
    config = parse(f"{tiers}log: decisions.jsonl")
    assert config.log is not None
    assert (config.log.path, config.log.prompts) == ("decisions.jsonl", False)
    with pytest.raises(ConfigError, match=r"config:2 log\.rotat: unknown key; did you mean"):
        parse(f"{tiers}log: {{path: d, rotat: {{keep: 2}}}}")


def test_a_process_that_ends_without_closing_loses_nothing(tmp_path: Path) -> None:
    code = """
import sys
from tier_router.config.log import Log
from tier_router.decisionlog import DecisionLog, Record
first, second = (DecisionLog(Log(path=path)) for path in sys.argv[1:])
for number in range(2_000):
    first.write(Record(v=1, at=0, id=str(number), door="langchain"))
    second.write(Record(v=1, at=0, id=str(number), door="langchain"))
first.end()
"""
    paths = [tmp_path / "1", tmp_path / "2"]
    command = [sys.executable, "-c", code, *map(str, paths)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=30)
    assert [len(lines(path)) for path in paths] == [2_000, 2_000]


def test_a_fork_in_the_middle_of_a_write_goes_on_in_both_processes(tmp_path: Path) -> None:
    code = """
import os, sys, time
from tier_router.config.log import Log
from tier_router.decisionlog import DecisionLog, Record
log = DecisionLog(Log(path=sys.argv[1]))
append = os.write
os.write = lambda file, data: time.sleep(0.05) or append(file, data)
log.write(Record(v=1, at=0, id="before", door="langchain"))
time.sleep(0.02)
child = os.fork()
for number in range(50):
    log.write(Record(v=1, at=0, id=f"{child == 0}-{number}", door="langchain"))
began = time.monotonic()
log.close()
if child == 0:
    os._exit(time.monotonic() - began > 4)
sys.exit(os.waitpid(child, 0)[1])
"""
    path = tmp_path / "d.jsonl"
    subprocess.run([sys.executable, "-c", code, str(path)], cwd=ROOT, check=True, timeout=30)
    ids = [line["id"] for line in lines(path)]
    expected = {f"{child}-{number}" for child in (True, False) for number in range(50)}
    assert sorted(ids) == sorted({"before"} | expected)
