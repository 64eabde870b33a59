"""Logs played through queues, against arithmetic that can be done by hand."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.evidence.conftest import Written, record
from tier_router.config import Config, parse
from tier_router.errors import RequestError
from tier_router.evidence import collected, opened
from tier_router.evidence.costs import rates_of
from tier_router.evidence.replay import (
    after,
    arrivals_of,
    before,
    by_share,
    objective_of,
    played,
    replicas_for,
)
from tier_router.simulate import Arrival

LINES = (0.5,)


def read(path: Path, config: Config, rate: float | None = None, most: int = 100) -> list[Arrival]:
    with opened(path) as source, collected(source, [config]) as found:
        return arrivals_of(found, LINES, rate, most)


def test_a_log_s_times_are_kept_and_start_at_zero(config: Config, written: Written) -> None:
    log = written([record(n, at=5000 + 3.0 * n, conversation=f"{n % 2:016x}") for n in range(4)])
    found = read(log, config)
    assert [arrival.at for arrival in found] == [0, 3, 6, 9]
    assert found[0].conversation == found[2].conversation != found[1].conversation
    assert (found[0].prompt, found[0].output, found[0].kind) == (160, 100, "light")
    assert [arrival.at for arrival in read(log, config, rate=1.0)] == [0, 1, 2, 3]
    assert len(read(log, config, most=2)) == 2


def test_a_log_without_times_needs_a_rate(config: Config, tmp_path: Path) -> None:
    path = tmp_path / "p.txt"
    path.write_text("when do you open\n" * 50)
    with pytest.raises(RequestError, match="--rate"):
        read(path, config)
    found = read(path, config, rate=10.0)
    assert 2 < found[-1].at < 10


def test_what_no_difficulty_settled_is_put_far_from_the_line(
    config: Config, written: Written
) -> None:
    pinned = record(0, reasons=["pinned"], asked="heavy")
    intent = record(1, reasons=["intent"], intent="hours", threshold=None, difficulty=0.49)
    close = record(2, difficulty=0.49)
    found = read(written([pinned, intent, close]), config)
    assert [arrival.difficulty for arrival in found] == [0.75, 0.0, 0.49]


def test_before_has_the_same_gpus_as_after(config: Config) -> None:
    old = before(config)
    assert [len(tier.replicas) for tier in old.config.tiers] == [1]
    (machine,) = set(old.fleet.values())
    assert machine.speed.prefill == pytest.approx(4_000 * 6 / 4)  # two light GPUs come to it
    assert old.about == "1 heavy, each 1.50 times as fast (6 GPUs)"
    assert after(config, LINES).about == "2 light + 1 heavy"


def test_a_tier_for_embeddings_is_no_rung_and_unknown_gpus_are_those_of_the_machine() -> None:
    config = parse("""
tiers:
  - {name: light, model: a, replicas: [http://a, http://b]}
  - {name: heavy, model: b, replicas: [http://c]}
  - {name: vectors, model: e, replicas: [http://e], can: [embeddings]}
""")
    assert before(config).about == "1 heavy, each 1.50 times as fast (6 GPUs)"
    rates = rates_of(config)
    assert (rates["heavy"].gpus, rates["light"].gpus) == (4, 1)
    assert rates["heavy"].prefill < rates["light"].prefill


def test_easy_requests_stop_waiting_behind_hard_ones(config: Config) -> None:
    hard = [Arrival(n * 0.5, 2_000, 400, "heavy", 1.0) for n in range(100)]
    easy = [Arrival(n * 0.5 + 0.1, 100, 20, "light", 0.0) for n in range(100)]
    arrivals = sorted(hard + easy, key=lambda arrival: arrival.at)
    old, new = played(before(config), arrivals), played(after(config, LINES), arrivals)
    assert old["classes"]["light"]["ttft"]["p95"] > 5 * new["classes"]["light"]["ttft"]["p95"]
    assert new["tiers"] == {"light": 0.5, "heavy": 0.5}
    assert old["classes"]["all"]["requests"] == 200


def test_the_search_finds_the_fewest_replicas_that_meet_the_objective(config: Config) -> None:
    # a hard one takes 40 ms and 300 steps of 30 ms, 16 at a time: 1.77 a second on a replica
    arrivals = [Arrival(n / 4, 160, 300, "heavy", 1.0) for n in range(800)]
    goal = objective_of("ttft=1.0")
    found = replicas_for(config, LINES, arrivals, goal)
    assert found["met"]
    assert found["replicas"]["light"] == 1
    assert found["replicas"]["heavy"] in (3, 4)
    assert found["gpus"] == 1 + 4 * found["replicas"]["heavy"]


def test_an_objective_that_an_idle_replica_misses_is_met_by_no_number(config: Config) -> None:
    arrivals = [Arrival(float(n), 8_000, 10, "heavy", 1.0) for n in range(20)]
    found = replicas_for(config, LINES, arrivals, objective_of("ttft=1.0"))
    assert not found["met"]
    assert found["alone"] == pytest.approx(8_000 / 4_000 + 0.03)


@pytest.mark.parametrize("text", ["ttft", "ttft=0", "ttft=x", "tpot=1", "latency=inf"])
def test_an_objective_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="--slo"):
        objective_of(text)


def test_a_trace_without_difficulties_gets_the_share_it_is_given() -> None:
    plain = [Arrival(float(n), 10, 10) for n in range(2_000)]
    found = by_share(plain, 0.3)
    assert 0.25 < sum(arrival.difficulty for arrival in found) / 2_000 < 0.35
    assert {arrival.kind for arrival in found} == {"easy", "hard"}
    named = by_share([replace(plain[0], kind="chat")], 0.3)
    assert named[0].kind == "chat"
