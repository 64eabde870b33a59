"""The engine: intents by the library, all else by the native classifier; nothing of it breaks."""

from __future__ import annotations

import math
import threading
from collections import Counter
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.semantic.tools import ROUTES, engine_of
from tier_router import TierRouter, parse
from tier_router.classify import Verdict
from tier_router.classify.intents import Route
from tier_router.classify.native import NativeClassifier
from tier_router.request import Turn
from tier_router.semantic import SemanticClassifier, TierEncoder
from tier_router.semantic.engine import DIRECT

VERBATIM = [(text, route.name) for route in ROUTES for text in route.utterances]
NOTHING = ["", " ", "\n\t  ", "👍", "🎉🎉 🙏", "?!", "…", "\u200b", "\ud800", "∑∫"]
UNKNOWN = ["zzxqj qqqqw", "ཀཁགང", "ꙮꙮꙮ"]


@pytest.fixture(scope="module")
def engine() -> SemanticClassifier:
    return SemanticClassifier.of_routes(ROUTES)


@pytest.fixture(scope="module")
def native() -> NativeClassifier:
    return NativeClassifier(ROUTES)


@pytest.fixture(scope="module")
def bare() -> NativeClassifier:
    return NativeClassifier()


@pytest.mark.parametrize(("text", "name"), VERBATIM)
def test_verbatim_is_certain_as_it_is_for_the_native_engine(
    engine: SemanticClassifier, native: NativeClassifier, text: str, name: str
) -> None:
    found, expected = engine.classify(Turn(text)), native.classify(Turn(text))
    assert type(found) is type(expected) is Verdict
    assert found.intent == expected.intent == name
    assert found.confidence == expected.confidence == 1.0
    assert replace(found, nearest=expected.nearest) == expected


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("until when are you open today", "hours"),
        ("tell me the balance of my account", "balance"),
        ("I would like my money back please", "refund"),
        ("write a haiku about the sea", None),
        ("prove that the square root of two is irrational", None),
    ],
)
def test_a_paraphrase_is_found_and_what_is_out_of_scope_is_not(
    engine: SemanticClassifier, text: str, name: str | None
) -> None:
    assert engine.classify(Turn(text)).intent == name


@pytest.mark.parametrize("text", NOTHING + UNKNOWN)
def test_the_library_is_not_believed_where_no_word_is_known(
    engine: SemanticClassifier, bare: NativeClassifier, text: str
) -> None:
    assert engine.classify(Turn(text)) == bare.classify(Turn(text))
    assert engine.classify(Turn(text, pasted=5_000)) == bare.classify(Turn(text, pasted=5_000))


def test_difficulty_and_small_talk_are_the_native_ones(
    engine: SemanticClassifier, bare: NativeClassifier
) -> None:
    for text in ("thanks!", "yes, do it", "derive the closed form of the Fibonacci numbers"):
        assert engine.classify(Turn(text)) == bare.classify(Turn(text))
    assert engine.default_threshold == bare.default_threshold
    assert engine.reference_quantile(0.3) == bare.reference_quantile(0.3)
    assert engine.explain(Turn("thanks!")) == bare.explain(Turn("thanks!"))


@given(st.text(max_size=200))
def test_any_text_has_a_verdict(text: str) -> None:
    engine = shared()
    verdict = engine.classify(Turn(text))
    assert math.isfinite(verdict.confidence)
    assert 0 <= verdict.confidence <= 1
    assert "failed" not in engine.counts


@cache
def shared() -> SemanticClassifier:
    """A fixture that hypothesis allows."""
    return SemanticClassifier.of_routes(ROUTES)


def test_a_routes_threshold_is_a_confidence() -> None:
    text = "until when are you open today"
    for threshold, name in ((None, "hours"), (0.1, "hours"), (0.999, None)):
        routes = [Route("hours", ROUTES[1].utterances, threshold), ROUTES[0]]
        assert SemanticClassifier.of_routes(routes).classify(Turn(text)).intent == name


@pytest.mark.parametrize("routes", [[], [Route("emoji", ("👍", " "))]])
def test_no_routes_find_nothing(routes: list[Route], bare: NativeClassifier) -> None:
    engine = SemanticClassifier.of_routes(routes)
    assert engine.classify(Turn("what is my balance")) == bare.classify(Turn("what is my balance"))


def test_many_utterances_are_left_to_the_worker() -> None:
    words = (
        "red",
        "green",
        "blue",
        "large",
        "small",
        "old",
        "new",
        "cheap",
        "fast",
        "round",
        "hot",
    )
    texts = [f"{a} {b} {c}" for a in words for b in words for c in words]
    engine = SemanticClassifier.of_routes([Route("things", tuple(texts)), *ROUTES], 5.0)
    assert len(texts) > DIRECT
    assert "Patient" in repr(engine)
    assert engine.classify(Turn("what is my balance")).intent == "balance"


def test_a_router_of_the_users_own() -> None:
    engine = engine_of(TierEncoder(), deadline=5.0)
    assert engine.classify(Turn("when do you open")).intent == "hours"
    assert engine.classify(Turn("write a haiku about the sea")).intent is None
    assert engine.counts == {"answered": 2}


# ---- change while serving

CONFIG = """
tiers:
  - {name: light, model: m8, replicas: [http://a]}
  - {name: heavy, model: m70, replicas: [http://b]}
classifier: {engine: semantic-router}
intents:
"""
BALANCE = "  balance: {tier: light, utterances: [what is my balance, show my funds]}\n"
HOURS = "  hours: {tier: heavy, utterances: [when do you open, are you open on Sunday]}\n"


def test_routes_change_while_threads_ask() -> None:
    both, one = parse(CONFIG + BALANCE + HOURS), parse(CONFIG + BALANCE)
    router = TierRouter(both)
    seen: Counter[tuple[str, str | None, str | None]] = Counter()
    done = threading.Event()

    def ask(thread: int) -> None:
        for turn in range(100_000):
            if done.is_set():
                return
            for text in ("what is my balance", "when do you open"):
                body = {"messages": [{"role": "user", "content": f"{text} {thread} {turn}"}]}
                verdict = router.judge(router.view(body)).now
                seen[text, verdict.intent, verdict.abstain] += 1

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for turn in range(20):
        router.reload(one if turn % 2 else both)
    done.set()
    for thread in threads:
        thread.join()
    assert set(seen) == {
        ("what is my balance", "balance", None),
        ("when do you open", "hours", None),
        ("when do you open", None, None),
    }
