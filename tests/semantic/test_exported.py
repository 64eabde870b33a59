"""Our intents as a router of 1.x, alone and among its own."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.semantic.tools import ROUTES, V1, router_of
from tier_router.classify.native import NativeClassifier
from tier_router.request import Turn
from tier_router.semantic import TierEncoder, library

if not V1:
    pytest.skip("TierRouterRoutes needs semantic-router 1.x", allow_module_level=True)

from semantic_router import Chain, Merge

from tier_router.semantic import TierRouterRoutes

THEIRS = [library.Route(name=r.name, utterances=list(r.utterances)) for r in ROUTES]


@pytest.fixture
def router() -> Any:
    return TierRouterRoutes(THEIRS)


@pytest.mark.parametrize(
    "text",
    ["when do you open", "until when are you open today", "write a haiku", "", "👍", "zzxqj qqq"],
)
def test_it_says_what_the_native_engine_says(router: Any, text: str) -> None:
    choice, verdict = router(text), NativeClassifier(ROUTES).classify(Turn(text))
    assert choice.name == verdict.intent
    assert choice.calibrated
    if choice.name is not None:
        assert choice.confidence == verdict.confidence


async def test_it_is_awaited(router: Any) -> None:
    assert (await router.acall("when do you open")).name == "hours"
    assert [c.name for c in await router.acall("when do you open", limit=None)] == ["hours"]


def test_thresholds_are_the_librarys(router: Any) -> None:
    text = "tell me how much money there is"
    sure = router(text)
    assert (sure.name, sure.confidence < 1) == ("balance", True)
    assert router(text, threshold=(1 + sure.confidence) / 2).name is None
    strict = [library.Route(name="hours", utterances=["when do you open"], confidence_threshold=1)]
    assert TierRouterRoutes(strict)("do you open").name is None
    assert TierRouterRoutes(strict)("when do you open").name == "hours"


def test_routes_come_and_go_while_threads_ask(router: Any) -> None:
    wrong: list[object] = []
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            name = router("when do you open").name
            if name != "hours":
                wrong.append(name)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        router.add(library.Route(name="pay", utterances=["pay my bill"]))
        assert router("pay my bill").name == "pay"
        router.remove("pay")
        assert router("pay my bill").name != "pay"
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong


def test_it_stands_in_a_chain_and_in_a_merge(router: Any) -> None:
    other = router_of(TierEncoder())
    assert Chain([router, other], confidence_threshold=0.5)("when do you open").name == "hours"
    assert Merge([router, other])("when do you open").name == "hours"


def test_it_is_fitted_and_evaluated(router: Any) -> None:
    texts = ["are you open tomorrow", "show my balance", "is it going to rain", "write a haiku"]
    labels = ["hours", "balance", "weather", None]
    assert router.evaluate(texts, labels) >= 0.75
    router.fit(texts * 3, labels * 3)
    assert router("when do you open").name == "hours"
