"""Encoders that are far away, slow, broken or gone: nobody waits for them beyond the deadline."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time

import pytest

from tests.semantic.tools import SlowEncoder, engine_of, settled
from tier_router import TierRouter, parse
from tier_router.request import Turn
from tier_router.semantic import SemanticClassifier
from tier_router.semantic.worker import UNDER_WAY, Patience

SLACK = 0.15
"""Seconds that a busy machine may take for what takes none."""

CONFIG = """
tiers:
  - {name: light, model: m8, replicas: [http://a]}
  - {name: heavy, model: m70, replicas: [http://b]}
intents:
  contract: {tier: heavy, utterances: [review this contract for risks]}
"""


def body(text: str) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}]}


def took(engine: SemanticClassifier, text: str) -> float:
    start = time.monotonic()
    engine.classify(Turn(text))
    return time.monotonic() - start


def test_a_late_answer_serves_the_next_request() -> None:
    engine = engine_of(SlowEncoder(delay=0.4))
    start = time.monotonic()
    verdict = engine.classify(Turn("when do you open"))
    assert time.monotonic() - start < 0.05 + SLACK
    assert (verdict.intent, verdict.abstain, verdict.pending) == (None, None, True)
    assert engine.counts == {"late": 1}
    verdict = settled(engine, "when do you open")
    assert (verdict.intent, verdict.pending) == ("hours", False)
    assert took(engine, "when do you open") < 0.05
    assert engine.counts["answered"] == 1, "one call, however often it was asked for"


def test_the_router_keeps_no_pending_verdict() -> None:
    engine = engine_of(SlowEncoder(delay=0.4))
    router = TierRouter(parse(CONFIG), lambda _: engine)
    view = router.view(body("is this clause enforceable"))
    first = router.decide(view)
    assert first.intent is None
    settled(engine, "is this clause enforceable")
    assert router.decide(view).intent == "contract"
    assert router.decide(view).tier == "heavy"


def test_an_answer_in_time_is_waited_for() -> None:
    engine = engine_of(SlowEncoder(delay=0.02), deadline=5.0)
    assert engine.classify(Turn("when do you open")).intent == "hours"


def test_many_new_texts_together_hold_a_thread_up_for_one_deadline() -> None:
    engine = engine_of(SlowEncoder(delay=1.0), deadline=0.1)
    start = time.monotonic()
    for number in range(30):
        engine.classify(Turn(f"when do you open, question {number}"))
    assert time.monotonic() - start < 1.0, "30 deadlines are 3 s"


def test_patience_comes_back_by_a_tenth() -> None:
    patience = Patience(0.05, share=0.1)
    assert patience.left(0.0) == 0.05
    patience.waited(0.0, 0.05)
    assert patience.left(0.05) == 0.0
    assert patience.left(0.25) == pytest.approx(0.02)
    assert patience.left(9.0) == 0.05
    patience.waited(9.0, 9.5)  # the machine was busy and the wait too long
    assert patience.left(9.5) == 0.0


async def test_ahead_of_a_request_the_event_loop_is_free() -> None:
    engine = engine_of(SlowEncoder(delay=0.3), deadline=5.0)
    router = TierRouter(parse(CONFIG), lambda _: engine)
    view = router.view(body("is this clause enforceable"))
    gaps = []

    async def tick() -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(0.005)
            gaps.append(time.monotonic() - last)
            last = time.monotonic()

    ticking = asyncio.create_task(tick())
    await router.ahead(view)
    ticking.cancel()
    assert len(gaps) > 10
    start = time.monotonic()
    assert router.decide(view).intent == "contract"
    assert time.monotonic() - start < 0.05


async def test_ahead_ends_at_the_deadline_and_the_call_goes_on() -> None:
    engine = engine_of(SlowEncoder(delay=0.5))
    start = time.monotonic()
    await engine.ahead([Turn("when do you open"), Turn(""), Turn("👍")])
    assert time.monotonic() - start < 0.05 + SLACK
    verdict = await asyncio.to_thread(settled, engine, "when do you open")
    assert verdict.intent == "hours"
    assert engine.counts["answered"] == 1


async def test_ahead_of_the_native_classifier_there_is_nothing_to_wait_for() -> None:
    router = TierRouter(parse(CONFIG))
    await router.ahead(router.view(body("hello")))


def test_a_broken_encoder_is_counted_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    engine = engine_of(SlowEncoder(delay=0, error="no route to host"), deadline=5.0)
    with caplog.at_level(logging.WARNING, "tier_router.semantic"):
        for number in range(3):
            verdict = engine.classify(Turn(f"when do you open {number}"))
            assert (verdict.intent, verdict.pending) == (None, True)
    assert engine.counts == {"failed": 3}
    assert len([r for r in caplog.records if r.name == "tier_router.semantic"]) == 1


def test_an_encoder_that_recovers_is_asked_again() -> None:
    encoder = SlowEncoder(delay=0, error="no route to host")
    engine = engine_of(encoder, deadline=5.0)
    assert engine.classify(Turn("when do you open")).intent is None
    encoder.error = None
    assert engine.classify(Turn("when do you open")).intent == "hours"


def test_a_library_slower_than_the_traffic_is_not_asked_more_than_it_can_carry() -> None:
    engine = engine_of(SlowEncoder(delay=1.5), deadline=0.01)
    for number in range(UNDER_WAY + 5):
        assert engine.classify(Turn(f"when do you open {number}")).pending
    assert engine.counts == {"late": UNDER_WAY, "refused": 5}
    assert settled(engine, "when do you open 0").intent == "hours"


def test_an_engine_that_nobody_holds_ends_its_thread() -> None:
    before = set(threading.enumerate())
    engine = engine_of(SlowEncoder(delay=60.0))
    engine.classify(Turn("when do you open"))  # a call that is under way
    (own,) = (t for t in set(threading.enumerate()) - before if t.name == "tier-router-semantic")
    del engine
    gc.collect()
    own.join(timeout=10.0)
    assert not own.is_alive()
