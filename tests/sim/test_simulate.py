"""The simulation against what can be worked out by hand, and against the asyncio engine."""

from __future__ import annotations

import gzip
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("simpy", reason="the extra `simulate` is not installed")

from tier_router.config import Config, parse
from tier_router.decide import Reason
from tier_router.errors import ConfigError
from tier_router.ledger import Ledger, Report
from tier_router.simulate import (
    HEAVY,
    LIGHT,
    Arrival,
    Ended,
    Fault,
    Lengths,
    Machine,
    Result,
    bursts,
    conversations,
    faster,
    fleet_of,
    merge,
    poisson,
    read_trace,
    run,
)
from tier_router.simulate.library import simpy
from tier_router.simulate.replica import Job, Replica
from tier_router.simulate.routers import Peers
from tier_router.testing.engine import Engine, Speed

PLENTY = 10**9
"""KV tokens that nothing in these tests fills."""


def tiers(light: int = 2, heavy: int = 2, more: str = "") -> Config:
    """Two tiers with so many replicas."""
    lights = ", ".join(f"http://light-{number}:1" for number in range(light))
    heavies = ", ".join(f"http://heavy-{number}:1" for number in range(heavy))
    return parse(
        f"""
tiers:
  - {{name: light, model: small, replicas: [{lights}]}}
  - {{name: heavy, model: large, replicas: [{heavies}]}}
policy: {{threshold: 0.5}}
{more}
""",
        name="tiers",
    )


def alone(replicas: int = 1, more: str = "") -> Config:
    """One tier."""
    urls = ", ".join(f"http://big-{number}:1" for number in range(replicas))
    return parse(f"tiers: [{{name: big, model: large, replicas: [{urls}]}}]\n{more}", name="alone")


class Heard:
    """Notes what a replica says of one job."""

    def __init__(self) -> None:
        self.first: float | None = None
        self.last: float | None = None
        self.lost_at: float | None = None
        self.endings = 0

    def first_token(self, now: float) -> None:
        assert self.first is None
        self.first = now

    def finished(self, now: float) -> None:
        self.last = now
        self.endings += 1

    def lost(self, now: float) -> None:
        self.lost_at = now
        self.endings += 1


def played(machine: Machine, given: Sequence[tuple[float, Job]]) -> Replica:
    """The replica after jobs came at their times."""
    env = simpy.Environment()
    replica = Replica(env, "it", machine)

    def coming() -> object:
        for at, job in given:
            yield env.timeout(at - env.now)
            assert replica.submit(job) is None

    env.process(coming())  # type: ignore[arg-type]
    env.run()
    return replica


# ---- the replica


@given(
    jobs=st.lists(
        st.tuples(st.floats(0, 2), st.integers(1, 3_000), st.integers(1, 80), st.integers(-1, 1)),
        min_size=1,
        max_size=25,
    ),
    slots=st.integers(1, 8),
    scheduling=st.sampled_from(["fcfs", "priority"]),
)
@settings(deadline=None, max_examples=40)
def test_it_keeps_the_times_of_the_engine_that_takes_every_step(
    jobs: list[tuple[float, int, int, int]], slots: int, scheduling: str
) -> None:
    speed = Speed(slots, 5_000, 0.01, 0.001, 512, scheduling=scheduling)
    jobs.sort()
    engine, steps = Engine(speed), []
    for at, prompt, output, priority in jobs:
        engine.advance_to(at)
        steps.append(engine.submit(prompt, output, priority))
    engine.advance(1_000)
    heard = [Heard() for _ in jobs]
    played(
        Machine(speed, PLENTY),
        [
            (at, Job(prompt, output, ear, priority=priority))
            for (at, prompt, output, priority), ear in zip(jobs, heard, strict=True)
        ],
    )
    assert [ear.first for ear in heard] == pytest.approx([job.first_at for job in steps], abs=1e-6)
    assert [ear.last for ear in heard] == pytest.approx([job.last_at for job in steps], abs=1e-6)


def test_a_schedule_worked_out_by_hand() -> None:
    speed = Speed(slots=2, prefill=1_000, step=0.1, per_seq=0.0, batched_tokens=2_048)
    first, second, third = Heard(), Heard(), Heard()
    played(
        Machine(speed, PLENTY),
        [
            (0.0, Job(200, 4, first)),  # prefill until 0.3, then a token each 0.1
            (0.35, Job(100, 2, second)),  # joins at 0.4, prefill until 0.6
            (0.36, Job(300, 1, third)),  # no slot until 0.7, prefill until 1.1
        ],
    )
    assert first.first == pytest.approx(0.3)
    assert second.first == pytest.approx(0.6)
    assert (first.last, second.last) == pytest.approx((0.7, 0.7))
    assert (third.first, third.last) == pytest.approx((1.1, 1.1))


def test_one_slot_under_poisson_arrivals_waits_as_m_m_1_does() -> None:
    """Mean wait of M/M/1 is rho / (mu - lambda); service here is geometric with a tiny step."""
    pick = random.Random(5)
    speed = Speed(slots=1, prefill=1e12, step=0.001, batched_tokens=100_000)
    rate, mean, at, given, heard = 0.7, 1.0, 0.0, [], []
    for _ in range(15_000):
        at += pick.expovariate(rate)
        heard.append(Heard())
        output = max(1, round(pick.expovariate(1 / mean) / 0.001))
        given.append((at, Job(1, output, heard[-1])))
    played(Machine(speed, PLENTY), given)
    waits = [(ear.first or 0) - at for (at, _), ear in zip(given, heard, strict=True)]
    assert sum(waits) / len(waits) == pytest.approx(0.7 / (1 - 0.7), rel=0.12)


@given(
    jobs=st.lists(
        st.tuples(st.floats(0, 3), st.integers(1, 900), st.integers(1, 200), st.integers(0, 4)),
        min_size=1,
        max_size=40,
    )
)
@settings(deadline=None, max_examples=40)
def test_every_job_ends_once_within_the_limits_of_batch_and_memory(
    jobs: list[tuple[float, int, int, int]],
) -> None:
    speed = Speed(slots=6, prefill=5_000, step=0.01, batched_tokens=256)
    heard = [Heard() for _ in jobs]
    replica = played(
        Machine(speed, kv_tokens=2_000),
        [
            (at, Job(prompt, output, ear, conversation=talk, prefix=prompt // 2))
            for (at, prompt, output, talk), ear in zip(sorted(jobs), heard, strict=True)
        ],
    )
    assert [ear.endings for ear in heard] == [1] * len(jobs)
    assert all(ear.first is not None and ear.last is not None for ear in heard)
    assert replica.largest_batch <= 6
    assert replica.most_step_tokens <= 256
    assert replica.most_kv <= 2_000
    assert (replica.running, replica.waiting) == (0, 0)


def test_memory_that_runs_out_preempts_the_last_one_and_loses_no_token() -> None:
    speed = Speed(slots=4, prefill=10_000, step=0.01)
    early, late = Heard(), Heard()
    replica = played(
        Machine(speed, kv_tokens=1_000), [(0.0, Job(300, 400, early)), (0.1, Job(300, 400, late))]
    )
    assert replica.preempted == 1
    assert early.last is not None
    assert late.first is not None
    assert late.last is not None
    assert early.last < late.last
    # 700 tokens of each: the second cannot have gone on before the first had left
    assert late.last > early.last + 2


def test_the_next_turn_of_a_conversation_finds_its_prefix() -> None:
    speed = Speed(slots=4, prefill=1_000, step=0.01)
    ears = [Heard() for _ in range(3)]
    jobs = [
        Job(160, 16, ears[0], conversation=1),
        Job(400, 1, ears[1], conversation=1, prefix=176),
        Job(400, 1, ears[2], conversation=2, prefix=176),
    ]
    played(Machine(speed, PLENTY), [(0.0, jobs[0]), (2.0, jobs[1]), (4.0, jobs[2])])
    assert [job.cached for job in jobs] == [0, 176, 0]
    assert ears[1].first == pytest.approx(2 + 0.01 + 224 / 1_000)


def test_the_prefix_cache_evicts_what_was_used_longest_ago() -> None:
    speed = Speed(slots=1, prefill=100_000, step=0.001, batched_tokens=2_048)
    jobs = [
        Job(prompt, 10, Heard(), conversation=talk, prefix=prefix)
        for talk, prompt, prefix in [
            (1, 390, 0), (2, 390, 0), (3, 390, 0), (3, 391, 390), (1, 391, 390),
        ]
    ]  # fmt: skip
    times = [float(place) for place in range(5)]
    played(Machine(speed, kv_tokens=1_000), list(zip(times, jobs, strict=True)))
    assert jobs[3].cached == 384  # whole blocks of 390
    assert jobs[4].cached == 192  # 199 were left: 1,000 less the 401 and the 400 of later ones


def test_a_replica_that_dies_tells_every_job_and_comes_back_empty() -> None:
    env = simpy.Environment()
    replica = Replica(env, "it", LIGHT)
    heard = [Heard() for _ in range(100)]
    for ear in heard:
        replica.submit(Job(1_000, 500, ear))
    env.run(until=1.0)
    replica.fail()
    assert replica.submit(Job(1, 1, Heard())) is not None
    assert {ear.lost_at for ear in heard} == {1.0}
    replica.revive()
    after = Heard()
    assert replica.submit(Job(100, 2, after)) is None
    env.run()
    assert after.last is not None
    assert after.endings == 1


def test_a_slow_replica_takes_its_steps_slowly() -> None:
    speed = Speed(slots=1, prefill=1e9, step=0.1)
    env = simpy.Environment()
    replica, ear = Replica(env, "it", Machine(speed, PLENTY)), Heard()
    replica.submit(Job(1, 10, ear))
    env.run(until=0.45)
    replica.slow(3.0)  # the fifth step is under way
    env.run()
    assert ear.last == pytest.approx(0.5 + 5 * 0.3)


# ---- routers


MIXED = merge(
    poisson(6, 60, Lengths(60, 60), 1, kind="simple", difficulty=(1.0, 6.0)),
    poisson(3, 60, Lengths(800, 180), 2, kind="hard", difficulty=(6.0, 1.0)),
)


def fates(result: Result) -> list[object]:
    return [(each.replica, each.ttft, each.latency, each.router) for each in result.records]


def test_every_request_ends_once_and_in_its_place() -> None:
    result = run(tiers(), MIXED, routers=3)
    assert [record.at for record in result.records] == [arrival.at for arrival in MIXED]
    assert result.ended(Ended.DONE) == len(MIXED)
    assert all(record.attempts == 1 for record in result.records)
    assert result.share("heavy", "hard") > 0.9
    assert result.share("light", "simple") > 0.9
    assert {each.open for each in result.occupancy.values()} == {0}


def test_an_equal_seed_gives_an_equal_result_and_another_one_another() -> None:
    one, again = (run(tiers(4, 2), MIXED[:300], routers=4, seed=9) for _ in range(2))
    other = run(tiers(4, 2), MIXED[:300], routers=4, seed=10)
    assert fates(one) == fates(again)
    assert fates(one) != fates(other)


def test_a_dead_replica_loses_nothing_that_had_not_begun() -> None:
    fault = Fault("heavy-0", 20.0, 40.0)
    queue = [Arrival(19.9, 2_000, 50, "hard", 0.9, key) for key in range(40)]
    result = run(tiers(), merge(MIXED, queue), routers=2, faults=[fault])
    ended = Counter(record.ended for record in result.records)
    cut = [record for record in result.records if record.ended is Ended.CUT]
    assert set(ended) == {Ended.DONE, Ended.CUT}
    assert cut
    assert {record.replica for record in cut} == {"heavy-0"}
    assert all(record.at <= 20 and record.ttft is not None for record in cut)
    # nothing ends there while it is dead
    sent = [record.at for record in result.records if record.replica == "heavy-0"]
    assert not any(20 < at < 40 for at in sent)
    assert any(record.attempts > 1 for record in result.records)


def test_a_replica_that_came_back_is_used_again() -> None:
    result = run(tiers(), MIXED, routers=2, faults=[Fault("heavy-0", 5.0, 10.0)])
    assert any(record.replica == "heavy-0" and record.at > 10 for record in result.records)


def test_no_replica_left_is_a_refusal_and_no_hang() -> None:
    result = run(alone(2), MIXED, faults=[Fault("big-0", 0.0, 9e9), Fault("big-1", 0.0, 9e9)])
    assert result.ended(Ended.REFUSED) == len(MIXED)


def test_a_slow_replica_gets_fewer_requests() -> None:
    rows = list(poisson(30, 30, Lengths(300, 200), 4))
    result = run(alone(4), rows, faults=[Fault("big-1", 0.0, 9e9, slowdown=4.0)])
    sent = Counter(record.replica for record in result.records)
    assert result.ended(Ended.DONE) == len(rows)
    assert sent["big-1"] < 0.6 * sent["big-0"]


def test_a_price_of_nothing_moves_nothing_and_a_high_one_does() -> None:
    rows = list(poisson(14, 50, Lengths(900, 250), 4, difficulty=(3.0, 2.0)))
    free = run(tiers(2, 1, "load: {price: 0, shed: null}"), rows)
    dear = run(tiers(2, 1, "load: {price: 2, shed: null}"), rows)
    moved = (Reason.LOAD_DOWN, Reason.LOAD_UP)
    assert [free.because(reason) for reason in moved] == [0, 0]
    assert dear.because(Reason.LOAD_DOWN) > 0.05
    for arrival, record in zip(rows, free.records, strict=True):
        assert (record.tier == "heavy") == (arrival.difficulty >= 0.5)
    assert dear.mean("latency") < free.mean("latency")


def test_conversations_come_back_to_their_replica_and_find_their_prefix() -> None:
    rows = conversations(1.0, 100, Lengths(300, 80), 3)
    result = run(alone(4), rows, routers=2)
    assert result.stickiness > 0.9  # so little load that rendezvous hashing alone decides
    assert result.cached_share > 0.3
    none = run(alone(4), rows, {f"big-{n}": replace(LIGHT, prefix_cache=False) for n in range(4)})
    assert none.cached_share == 0
    assert none.mean("ttft") > result.mean("ttft")


def test_routers_that_hear_of_each_other_spread_better() -> None:
    rows = list(poisson(60, 25, Lengths(300, 200), 4))
    telling = run(alone(8), rows, routers=8)
    silent = run(alone(8), rows, routers=8, tick=1e6)
    assert telling.open(99) < silent.open(99)


def test_a_sum_of_reports_tells_a_ledger_what_the_reports_tell() -> None:
    config, pick = tiers(4, 4), random.Random(3)
    names = [f"light-{n}" for n in range(4)] + [f"heavy-{n}" for n in range(4)]
    peers = Peers()
    told: dict[int, Report] = {}
    for now in range(200):
        number = pick.randrange(6)
        some = pick.sample(names, 3)
        told[number] = mine = Report(
            {name: pick.randrange(1, 9) for name in some},
            {name: float(pick.randrange(1, 9_999)) for name in some},
            {some[0]: pick.random()} if pick.random() < 0.2 else {},
        )
        both = Ledger(config), Ledger(config)
        both[0].heard([report for who, report in told.items() if who != number], now)
        both[1].heard([peers.swap(number, mine)], now)
        assert both[0].pressures(now) == both[1].pressures(now)


def test_tiers_beat_one_big_model_on_equal_gpus() -> None:
    """Two heavy replicas of four GPUs; or one of them, and four light ones of one GPU."""
    rows = merge(
        poisson(30, 30, Lengths(100, 60), 1, kind="simple", difficulty=0.1),
        poisson(5, 30, Lengths(1_020, 130), 2, kind="hard", difficulty=0.9),
    )
    one = run(alone(2, "load: {shed: null}"), rows, {f"big-{n}": HEAVY for n in range(2)})
    ladder = run(tiers(4, 1, "load: {shed: null}"), rows)
    assert one.ended(Ended.DONE) == ladder.ended(Ended.DONE) == len(rows)
    assert ladder.percentile("ttft", 99, "simple") < one.percentile("ttft", 99, "simple") / 5
    assert ladder.mean("latency") < 0.6 * one.mean("latency")


# ---- arrivals and the fleet


def test_a_trace_is_read_with_its_conversations(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    rows = ["0 1", "0 2", "0 1 3", "0 4", "0 1 3 5"]
    with gzip.open(path, "wt") as file:
        file.write("t_s,in_tokens,out_tokens,prefix_block_ids\n")
        file.writelines(f"{place},{900 + place},{place},{ids}\n" for place, ids in enumerate(rows))
    found = read_trace(path, kind="chat", difficulty=0.25)
    assert [each.prompt for each in found] == [900, 901, 902, 903, 904]
    assert found[0].output == 1  # an answer has a token
    assert {(each.kind, each.difficulty) for each in found} == {("chat", 0.25)}
    talks = [each.conversation for each in found]
    assert talks[0] == talks[2] == talks[4]
    assert len(set(talks)) == 3
    assert [each.prefix for each in found] == [0, 512, 1_024, 512, 1_536]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("t_s,in_tokens,out_tokens\n0,5,5\n1,x,3\n", ":3 in_tokens is no number from 0 up: 'x'"),
        ("t_s,in_tokens\n0,5\n", ":2 out_tokens is missing"),
        ("t_s,in_tokens,out_tokens\n0,nan,5\n", ":2 in_tokens is no number"),
        ("t_s,in_tokens,out_tokens,difficulty\n0,1,5,-1\n", ":2 difficulty is no number"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_trace(path)
    assert said in str(caught.value)


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a readable CSV file"):
        read_trace(tmp_path / "none.csv")
    (tmp_path / "no.csv.gz").write_bytes(b"no gzip")
    with pytest.raises(ConfigError, match="not a readable CSV file"):
        read_trace(tmp_path / "no.csv.gz")


def test_bursts_keep_every_request_and_the_mean_rate() -> None:
    rows = list(poisson(20, 600, Lengths(10, 10), 1))
    uneven = list(bursts(rows, every=60, lasting=5, factor=6))
    assert len(uneven) == len(rows)
    assert [each.at for each in uneven] == sorted(each.at for each in uneven)
    assert uneven[-1].at <= 600
    dense = sum(each.at % 60 < 5 for each in uneven)
    assert dense / len(rows) == pytest.approx(0.5, abs=0.03)  # half of them in a twelfth of time
    assert faster(rows, 2)[-1].at == pytest.approx(rows[-1].at / 2)


def test_arrivals_out_of_order_and_unknown_replicas_are_refused() -> None:
    rows = [Arrival(2.0, 10, 10), Arrival(1.0, 10, 10)]
    with pytest.raises(ValueError, match=r"arrivals\[1\].at"):
        run(alone(), rows)
    with pytest.raises(ConfigError, match="big-1"):
        run(alone(), rows, faults=[Fault("big-1", 0, 1)])
    with pytest.raises(ConfigError, match="`fleet` lacks replica `big-0`"):
        run(alone(), rows, {})


def test_without_simpy_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['simpy'] = None; import tier_router.simulate"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode != 0
    assert "SimPy is not installed: pip install 'tier-router[simulate]'" in done.stderr


def test_a_fleet_follows_the_configuration() -> None:
    config = parse(
        """
tiers:
  - {name: light, model: a, replicas: ["sim://a?slots=9&step=3ms", "http://b:1"]}
  - {name: heavy, model: b, replicas: ["http://c:1"]}
""",
        name="fleet",
    )
    fleet = fleet_of(config)
    assert (fleet["light-0"].speed.slots, fleet["light-0"].speed.step) == (9, 0.003)
    assert (fleet["light-1"], fleet["heavy-0"]) == (LIGHT, HEAVY)
    assert fleet_of(config, {"light": HEAVY})["light-0"] == HEAVY
    assert run(config, [Arrival(0.0, 10, 10)], fleet).ended(Ended.DONE) == 1
