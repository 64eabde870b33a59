"""Routes: verbatim, paraphrased, out of scope; thresholds, single routes, duplicates."""

import csv
import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from tier_router import encoder
from tier_router.classify import intents
from tier_router.classify.features import core
from tier_router.classify.intents import Intents, Match, Route, confidence_of

ROUTES = [
    Route(
        "balance", ("what is my balance", "how much money do I have in my account", "show my funds")
    ),
    Route(
        "weather", ("what's the weather like today", "will it rain tomorrow", "is it cold outside")
    ),
    Route("refund", ("I want my money back", "how do I return an item", "refund my last order")),
    Route("greeting", ("hi", "hello there", "good morning")),
]


def match(compiled: Intents, text: str) -> Match:
    return compiled.match(text, encoder.load().encode(core(text)))


def compiled(*routes: Route) -> Intents:
    return Intents(routes, encoder.load())


@pytest.fixture(scope="module")
def four() -> Intents:
    return compiled(*ROUTES)


@pytest.mark.parametrize(
    ("text", "name"),
    [(utterance, route.name) for route in ROUTES for utterance in route.utterances]
    + [
        ("WHAT is   my balance?!", "balance"),
        ("Hi!", "greeting"),
        ("what's the weather like today", "weather"),
    ],
)
def test_verbatim_is_certain(four: Intents, text: str, name: str) -> None:
    found = match(four, text)
    assert (found.name, found.confidence) == (name, 1.0)
    assert found.nearest is not None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("can you tell me the balance of my account", "balance"),
        ("how much money is left in the account", "balance"),
        ("what is the weather tomorrow", "weather"),
        ("do you think it will rain today?", "weather"),
        ("please refund the order", "refund"),
        ("hello, good morning", "greeting"),
    ],
)
def test_paraphrases(four: Intents, text: str, name: str) -> None:
    found = match(four, text)
    assert found.name == name
    assert found.confidence >= intents.DEFAULT_THRESHOLD
    assert found.nearest in {route.name: route.utterances for route in ROUTES}[name]


@pytest.mark.parametrize(
    "text",
    [
        "prove that the square root of seven is irrational",
        "who won the world cup in 1998",
        "write a sorting function in python",
        "translate this paragraph into french",
        "why do cats purr",
        "qwxzv",
        "",
        "?!",
        "今天吃什么",
    ],
)
def test_out_of_scope_is_none(four: Intents, text: str) -> None:
    found = match(four, text)
    assert found.name is None
    assert found.nearest is None
    assert 0 <= found.confidence < intents.DEFAULT_THRESHOLD


def test_a_threshold_of_its_own_overrides_the_default() -> None:
    text = "how much money is left in the account"
    sure = match(compiled(*ROUTES), text).confidence
    strict = compiled(Route("balance", ROUTES[0].utterances, min(sure + 0.01, 1.0)), *ROUTES[1:])
    assert match(strict, text).name is None
    assert match(strict, "what is my balance").name == "balance"  # verbatim is certain
    loose = compiled(Route("balance", ROUTES[0].utterances, 0.0), *ROUTES[1:])
    assert match(loose, text).name == "balance"


def test_no_routes_cost_nothing_and_match_nothing() -> None:
    none = compiled()
    assert not none
    assert match(none, "anything") == Match()
    assert repr(none) == "<Intents 0 routes, 0 utterances>"


def test_one_route_takes_its_own_and_leaves_the_rest() -> None:
    one = compiled(ROUTES[0])
    assert match(one, "show me my account balance").name == "balance"
    assert match(one, "who painted the ceiling of the chapel").name is None


def test_one_utterance_is_enough() -> None:
    one = compiled(Route("cancel", ("cancel my subscription",)))
    assert match(one, "Cancel my subscription.").confidence == 1.0
    assert match(one, "please cancel the subscription").name == "cancel"
    assert match(one, "explain quantum tunnelling").name is None


def test_duplicates_count_once_and_the_first_route_wins() -> None:
    twice = compiled(
        Route("a", ("open the door", "Open the door!")), Route("b", ("open the door",))
    )
    assert match(twice, "open the door").name == "a"
    assert repr(twice) == "<Intents 2 routes, 2 utterances>"


def test_utterances_without_words_are_ignored() -> None:
    odd = compiled(Route("nothing", ("?!", "")), Route("hi", ("hello", "...")))
    assert repr(odd) == "<Intents 1 routes, 1 utterances>"
    assert match(odd, "hello").name == "hi"
    assert not compiled(Route("nothing", ("", "!")))


@pytest.mark.parametrize("text", ["\ud800", "a\x00b", "🎉", "שלום", "x" * 2_000])
def test_odd_utterances_and_texts(text: str) -> None:
    odd = compiled(Route("odd", (text, "plain words")), Route("other", ("some other words",)))
    assert 0 <= match(odd, text).confidence <= 1
    assert match(odd, "plain words").name == "odd"


def test_a_route_in_another_script() -> None:
    routes = compiled(
        Route("saldo", ("我的余额是多少", "查询余额")), Route("wetter", ("今天天气怎么样",))
    )
    assert match(routes, "我的余额是多少？").name == "saldo"


def test_many_utterances_take_the_long_way_round() -> None:
    topics = {"fruit": "apple pear plum", "tool": "hammer saw drill", "pet": "cat dog hamster"}
    routes = [
        Route(name, tuple(f"{verb} the {thing} number {i}" for thing in things.split()
                          for verb in ("buy", "find", "clean") for i in range(60)))
        for name, things in topics.items()
    ]  # fmt: skip
    many = compiled(*routes)
    assert len(many._texts) > intents.EXHAUSTIVE
    for name, things in topics.items():
        for thing in things.split():
            assert match(many, f"please buy a {thing}").name == name
    assert match(many, "derive the gradient of softmax").name is None


def test_the_same_text_gets_the_same_answer(four: Intents) -> None:
    texts = ["how much is in my account", "rain?", "give me back the money"]
    assert [match(four, text) for text in texts] == [match(four, text) for text in texts]


def test_confidence_rises_with_its_evidence() -> None:
    weights = intents.load().weights
    far, near = [0.2, 0.2, 0.2, 1.0, 0.04, 0.2], [0.9, 0.8, 1.0, 1.0, 0.9, 1.0]
    assert confidence_of(far, weights) < 0.2 < 0.9 < confidence_of(near, weights)
    assert confidence_of([1e9] * 6, weights) <= 1.0
    assert confidence_of([-1e9] * 6, weights) >= 0.0


def test_public_sets() -> None:
    """Accuracy and out-of-scope on CLINC150, which nothing here was fitted on."""
    folder = os.environ.get("TIER_ROUTER_DATA")
    if not folder:
        pytest.skip("TIER_ROUTER_DATA is not set (see tests/data/README.md)")
    file = Path(folder) / "intent" / "intents.csv.gz"
    with gzip.open(file, "rt", encoding="utf-8", newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["dataset"] == "clinc150"]
    train: dict[str, list[str]] = {}
    for row in rows:
        if row["split"] == "train":
            train.setdefault(row["intent"], []).append(row["text"])
    routes = compiled(*(Route(name, tuple(texts)) for name, texts in train.items()))
    test = [row for row in rows if row["split"] == "test"][::5]
    found = [match(routes, row["text"]) for row in test]
    kept = [(m.name == row["intent"]) for m, row in zip(found, test, strict=True) if m.name]
    strange = [match(routes, row["text"]) for row in rows if row["split"] == "oos_test"][::2]
    assert np.mean(kept) >= 0.94
    assert len(kept) / len(test) >= 0.94
    assert np.mean([m.name is None for m in strange]) >= 0.68
