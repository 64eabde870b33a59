"""The queueing model, in its own time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tier_router.testing import Engine, Job, QueueFull, Speed, State


def ttft(job: Job) -> float:
    assert job.first_at is not None
    return job.first_at - job.submitted_at


def test_one_request_alone_takes_its_prefill_and_its_steps() -> None:
    engine = Engine(Speed(prefill=1000, step=0.1))
    job = engine.submit(200, 4)
    engine.advance(10)
    assert ttft(job) == pytest.approx(0.3)  # 200 tokens at 1000/s, and one step
    assert job.last_at == pytest.approx(0.6)
    assert job.gaps == pytest.approx([0.1] * 3)
    assert job.state is State.DONE
    assert repr(engine) == "<Engine 0 running, 0 waiting, 10.000s>"


def test_each_sequence_more_makes_a_step_longer() -> None:
    engine = Engine(Speed(prefill=1e9, step=0.1, per_seq=0.05))
    jobs = [engine.submit(1, 2) for _ in range(3)]
    engine.advance(10)
    assert [job.last_at for job in jobs] == pytest.approx([0.4] * 3)


def test_long_prefills_block_a_short_request_behind_them() -> None:
    speed = Speed(slots=8, prefill=8000, step=0.02)
    shared, own = Engine(speed), Engine(speed)
    for _ in range(6):
        shared.submit(8000, 100)
    behind, alone = shared.submit(40, 8), own.submit(40, 8)
    shared.advance(60)
    own.advance(60)
    assert ttft(alone) < 0.03
    assert ttft(behind) > 6  # 48,000 tokens at 8000/s come first
    assert ttft(behind) > 200 * ttft(alone)


def test_full_slots_block_a_short_request_behind_long_answers() -> None:
    engine = Engine(Speed(slots=2, prefill=1e9, step=0.01))
    for _ in range(4):
        engine.submit(10, 500)
    behind = engine.submit(10, 1)
    engine.advance(9.9)
    assert (engine.waiting, behind.tokens) == (1, 0)
    engine.advance(0.2)
    assert behind.state is State.DONE  # the 1001st step


def test_a_chunked_prefill_makes_the_steps_of_others_long() -> None:
    engine = Engine(Speed(prefill=8000, step=0.02, batched_tokens=2048))
    writing = engine.submit(10, 50)
    engine.advance(0.1)
    engine.submit(8000, 1)
    engine.advance(20)
    assert max(writing.gaps) == pytest.approx(0.02 + 2047 / 8000)  # the budget but its own token
    assert sum(gap > 0.05 for gap in writing.gaps) == 4


def test_no_more_run_than_there_are_slots() -> None:
    engine = Engine(Speed(slots=3, step=0.01))
    for _ in range(10):
        engine.submit(10, 5)
    assert (engine.running, engine.waiting) == (0, 10)
    engine.advance(0.001)
    assert (engine.running, engine.waiting) == (3, 7)
    assert engine.gauges.waiting == 0  # a step has not ended yet: stale, as vLLM's gauges are
    engine.advance(0.02)
    assert (engine.gauges.running, engine.gauges.waiting) == (3, 7)


def test_cancelling_frees_the_slot_at_the_next_step() -> None:
    engine = Engine(Speed(slots=1, prefill=1e9, step=0.1))
    first, second = engine.submit(10, 1000), engine.submit(10, 1)
    engine.advance(0.55)
    engine.cancel(first)
    assert (engine.running, engine.waiting) == (1, 1)
    engine.advance(0.06)
    assert (engine.running, engine.waiting) == (1, 0)
    assert second.started_at == pytest.approx(0.6)
    assert first.tokens == 5
    engine.cancel(first)  # once more is no harm
    engine.advance(1)
    assert second.state is State.DONE


def test_cancelling_one_that_waits_takes_it_out_at_once() -> None:
    engine = Engine(Speed(slots=1, step=0.1))
    engine.submit(10, 10)
    engine.advance(0.01)
    waiting = [engine.submit(10, 1) for _ in range(3)]
    engine.cancel(waiting[1])
    assert engine.waiting == 2
    engine.advance(10)
    assert [job.tokens for job in waiting] == [1, 0, 1]


def test_cancelling_the_last_one_leaves_an_idle_engine() -> None:
    engine = Engine(Speed(step=0.1))
    job = engine.submit(10, 100)
    engine.advance(0.15)
    engine.cancel(job)
    engine.advance(0.1)
    assert (engine.running, engine.next_at, engine.gauges.running) == (0, None, 0)


@pytest.mark.parametrize(("scheduling", "order"), [("fcfs", "abcd"), ("priority", "cbda")])
def test_priority_decides_who_is_next_where_it_is_asked_for(scheduling: str, order: str) -> None:
    engine = Engine(Speed(slots=1, step=0.1, scheduling=scheduling))
    engine.submit(10, 5, priority=9)
    engine.advance(0.01)  # it runs, and is not preempted
    jobs = {
        name: engine.submit(10, 1, priority=priority)
        for name, priority in [("a", 5), ("b", 0), ("c", -1), ("d", 0)]
    }
    engine.advance(10)
    assert "".join(sorted(jobs, key=lambda name: jobs[name].first_at or 0)) == order


def test_the_queue_is_bounded_by_waiting_and_running_together() -> None:
    engine = Engine(Speed(slots=2, step=0.1, queue=3))
    for _ in range(3):
        engine.submit(10, 1)
    assert not engine.admits()
    with pytest.raises(QueueFull):
        engine.submit(10, 1)
    assert engine.rejected_total == 1
    engine.advance(0.15)
    assert engine.admits(2)
    assert not engine.admits(3)


def test_kv_use_grows_with_prompt_and_answer_and_ends_with_it() -> None:
    engine = Engine(Speed(prefill=1e9, step=0.1), kv_tokens=200)
    engine.submit(90, 10)
    engine.advance(0.55)
    assert engine.kv_used == 95
    assert engine.kv_usage == pytest.approx(0.475)
    engine.advance(1)
    assert engine.kv_usage == 0


def test_a_callback_may_cancel_and_submit() -> None:
    engine = Engine(Speed(step=0.1))
    later: list[Job] = []

    def once(job: Job) -> None:
        if job.state is not State.CANCELLED:
            later.append(engine.submit(1, 1))
            engine.cancel(job)

    job = engine.submit(1, 10, on_token=once)
    engine.advance(5)
    assert (job.tokens, later[0].state) == (1, State.DONE)


@pytest.mark.parametrize(
    ("field", "value"),
    [("slots", 0), ("prefill", 0), ("step", -1), ("per_seq", -1), ("queue", 0),
     ("scheduling", "lifo"), ("batched_tokens", 8)],
)  # fmt: skip
def test_a_speed_that_makes_no_sense_says_which_field(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=field):
        Speed(**{field: value})  # type: ignore[arg-type]


jobs = st.tuples(
    st.integers(0, 5000), st.integers(1, 30), st.integers(-2, 2), st.floats(0, 2), st.booleans()
)
speeds = st.builds(
    Speed,
    slots=st.integers(1, 6),
    prefill=st.floats(100, 1e6),
    step=st.floats(0, 0.1),
    per_seq=st.floats(0, 0.02),
    batched_tokens=st.integers(6, 2048),
    scheduling=st.sampled_from(["fcfs", "priority"]),
)


@settings(max_examples=150, deadline=None)
@given(speeds, st.lists(jobs, max_size=25), st.data())
def test_every_token_comes_out_once_and_in_order(
    speed: Speed, plan: list[tuple[int, int, int, float, bool]], data: st.DataObject
) -> None:
    engine = Engine(speed)
    seen: dict[int, list[int]] = {}
    times: dict[int, list[float]] = {}
    all_jobs: list[tuple[Job, bool]] = []

    def heard(job: Job) -> None:
        if job.state is not State.CANCELLED:
            seen.setdefault(id(job), []).append(job.tokens)
            times.setdefault(id(job), []).append(engine.now)

    for prompt, output, priority, pause, cancel in plan:
        engine.advance(pause)
        all_jobs.append((engine.submit(prompt, output, priority, on_token=heard), cancel))
        assert engine.running <= speed.slots
        if cancel:
            engine.advance(data.draw(st.floats(0, 1)))
            engine.cancel(all_jobs[-1][0])
    engine.advance(1e7)

    assert (engine.running, engine.waiting, engine.kv_used) == (0, 0, 0)
    for job, cancelled in all_jobs:
        said = seen.get(id(job), [])
        assert said == list(range(1, job.tokens + 1))
        assert times.get(id(job), []) == sorted(times.get(id(job), []))
        if job.state is State.CANCELLED:
            assert cancelled
            assert job.tokens < job.output_tokens
        else:
            assert job.state is State.DONE
            assert job.tokens == job.output_tokens
            assert job.prefilled == job.prompt_tokens
    assert engine.generated_total == sum(job.tokens for job, _ in all_jobs)
    assert engine.prompt_tokens_total == sum(job.prefilled for job, _ in all_jobs)


@settings(max_examples=60, deadline=None)
@given(speeds, st.lists(jobs, min_size=1, max_size=12), st.lists(st.floats(0.001, 3), max_size=30))
def test_time_in_one_go_or_in_pieces_gives_the_same(
    speed: Speed, plan: list[tuple[int, int, int, float, bool]], pieces: list[float]
) -> None:
    whole, parts = Engine(speed), Engine(speed)
    pairs = [(whole.submit(p, o, r), parts.submit(p, o, r)) for p, o, r, *_ in plan]
    whole.advance(1e7)
    for piece in pieces:
        parts.advance(piece)
    parts.advance(1e7)
    assert [one.last_at for one, _ in pairs] == pytest.approx([two.last_at for _, two in pairs])


def test_first_come_first_served_starts_in_order() -> None:
    engine = Engine(Speed(slots=2, step=0.01))
    line = [engine.submit(100 * (number % 3 + 1), number % 5 + 1) for number in range(30)]
    engine.advance(100)
    starts = [job.started_at or 0 for job in line]
    assert starts == sorted(starts)
