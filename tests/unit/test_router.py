"""The facade that doors use."""

from pathlib import Path
from typing import Any

import pytest

from tier_router.classify import Signal, Verdict
from tier_router.config import Config, parse
from tier_router.decide import Reason
from tier_router.errors import ConfigError
from tier_router.explain import WORDS, record, sentence
from tier_router.ledger import Outcome
from tier_router.request import Turn
from tier_router.router import STEP_ODDS, TierRouter
from tier_router.testing import FixedClassifier, ManualClock

TEXT = """
tiers:
  - {name: light, model: m8, replicas: [http://a], defaults: {max_tokens: 64, temperature: 0}}
  - {name: heavy, model: m70, replicas: [http://b]}
"""


def fixed(_: Config) -> FixedClassifier:
    return FixedClassifier(0.1, {"prove": 0.9, "yes": Verdict(0.1, continues=True)})


def router(text: str = TEXT) -> TierRouter:
    return TierRouter(parse(text), fixed, ManualClock())


def chat(*texts: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text} for text in texts], **more}


def test_body_to_decision() -> None:
    routes = router()
    assert routes.decide(routes.view(chat("hello"))).tier == "light"
    assert routes.decide(routes.view(chat("prove it"))).tier == "heavy"
    assert routes.decide(routes.view(chat("prove it", "yes"))).tier == "heavy"


def test_each_turn_is_judged_once() -> None:
    asked: list[str] = []

    class Counting(FixedClassifier):
        def classify(self, turn: Turn) -> Verdict:
            asked.append(turn.text)
            return super().classify(turn)

    routes = TierRouter(parse(TEXT), lambda _: Counting(0.1), ManualClock())
    for texts in (["a"], ["a", "b"], ["a", "b", "c"], ["a", "b", "c"]):
        routes.decide(routes.view(chat(*texts)))
    assert asked == ["a", "b", "c"]


def test_a_classifier_that_fails_goes_up_and_breaks_nothing() -> None:
    class Broken(FixedClassifier):
        def classify(self, turn: Turn) -> Verdict:
            raise ZeroDivisionError

        def explain(self, turn: Turn) -> list[Signal]:
            return []

    routes = TierRouter(parse(TEXT), lambda _: Broken(), ManualClock())
    decision = routes.decide(routes.view(chat("hello")))
    assert (decision.tier, decision.abstain) == ("heavy", "classifier failed")


def test_a_dispatch_counts_in_the_ledger_and_fails_over() -> None:
    routes = router()
    way = routes.dispatch(routes.view(chat("hello")))
    assert way.begin(0).replica == "light-0"
    assert routes.ledger.in_flight("light-0") == 1
    way.closed(Outcome.DONE, 1)
    assert routes.ledger.in_flight("light-0") == 0


@pytest.mark.parametrize(
    ("body", "changes"),
    [
        ({}, {"model": "m8", "max_tokens": 64, "temperature": 0}),
        ({"max_tokens": 5, "temperature": 1}, {"model": "m8"}),
        ({"max_completion_tokens": 5}, {"model": "m8", "temperature": 0}),
        ({"temperature": None}, {"model": "m8", "max_tokens": 64, "temperature": 0}),
    ],
)
def test_defaults_go_where_the_client_left_them_unset(
    body: dict[str, Any], changes: dict[str, Any]
) -> None:
    routes = router()
    decision = routes.decide(routes.view(chat("hello")))
    assert routes.changes(decision, body) == changes


THREE = TEXT + "  - {name: huge, model: m400, replicas: [http://c]}\n"


@pytest.mark.parametrize(
    ("policy", "thresholds"),
    [
        ("", (0.5, STEP_ODDS / (1 + STEP_ODDS))),
        ("policy: {threshold: 0.2}", (0.2, 0.25 * STEP_ODDS / (1 + 0.25 * STEP_ODDS))),
        ("policy: {threshold: [0.1, 0.4]}", (0.1, 0.4)),
        ("policy: {threshold: 0}", (0, 0)),
        ("policy: {threshold: 1}", (1, 1)),
    ],
)
def test_one_threshold_for_each_step(policy: str, thresholds: tuple[float, ...]) -> None:
    assert router(THREE + policy).thresholds == pytest.approx(thresholds)


def test_threshold_nought_sends_everything_up_and_one_nothing() -> None:
    always, never = (router(TEXT + f"policy: {{threshold: {t}}}") for t in (0, 1))
    assert always.decide(always.view(chat("hello"))).tier == "heavy"
    assert never.decide(never.view(chat("prove it"))).tier == "light"


def test_reload_takes_the_new_file_and_keeps_the_books() -> None:
    routes = router()
    routes.dispatch(routes.view(chat("hello"))).begin(0)
    routes.reload(parse(TEXT.replace("m8", "m9") + "policy: {threshold: 0.05}"))
    assert routes.decide(routes.view(chat("hello"))).tier == "heavy"
    assert routes.ledger.in_flight("light-0") == 1


def test_from_file(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(TEXT)
    assert TierRouter.from_file(path, classifier=fixed).config.tiers[0].model == "m8"
    path.write_text("tiers: 5")
    with pytest.raises(ConfigError):
        TierRouter.from_file(path)


# ---- in words


def test_every_reason_has_words() -> None:
    assert set(WORDS) == set(Reason)
    assert all(words and words[0].islower() for words in WORDS.values())


def test_a_sentence_says_why() -> None:
    routes = router()
    told = sentence(routes.decide(routes.view(chat("prove it"))))
    assert (
        told
        == "heavy: the light tier is likely not enough (difficulty 0.90, over the line at 0.50)"
    )
    told = sentence(routes.decide(routes.view(chat("hello", model="heavy"))))
    assert told == "heavy: the client named this tier"


def test_a_record_is_plain_data() -> None:
    routes = router()
    told = record(routes.decide(routes.view(chat("hello"))))
    assert told["tier"] == "light"
    assert told["reasons"] == ["easy"]
    assert told["difficulty"] == 0.1
    assert told["pressures"] == {"light": 0.0, "heavy": 0.0}
    assert told["alternatives"] == ["heavy"]
