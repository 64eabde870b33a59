"""Typed questions, answered by the decision."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tier_router.decide import Decision, Reason
from tier_router.errors import RequestError
from tier_router.questions import COMPLEXITY, Known, answer, messages_of

KNOWN = Known(("light", "middle", "heavy"), (0.2, 0.5), ("balance", "refund"))


def decided(tier: str, *reasons: Reason, **more: Any) -> Decision:
    return Decision(tier, f"{tier}-0", "http://x", "m", reasons or (Reason.EASY,), **more)


def choice(*labels: str) -> dict[str, Any]:
    return {"type": "choice", "instructions": "?", "criteria": dict.fromkeys(labels, "...")}


@given(st.floats(0, 1))
def test_the_tier_decided_is_chosen_and_likely(difficulty: float) -> None:
    known = Known(("light", "heavy"), (0.2,), ())
    tier, reason = ("heavy", Reason.HARD) if difficulty >= 0.2 else ("light", Reason.EASY)
    told = answer(
        "q", choice("light", "heavy"), decided(tier, reason, difficulty=difficulty), known
    )
    assert told["choice"] == tier
    assert told["confidence"] == told["probabilities"][tier] >= 0.499
    assert sum(told["probabilities"].values()) == pytest.approx(1)


def test_what_is_settled_is_certain() -> None:
    told = answer(
        "q", choice(*KNOWN.tiers), decided("middle", Reason.PINNED, difficulty=0.9), KNOWN
    )
    assert told["probabilities"] == {"light": 0.0, "middle": 1.0, "heavy": 0.0}


def test_a_tier_that_was_not_asked_for_goes_up_or_to_the_highest() -> None:
    settled = decided("middle", Reason.PINNED)
    assert answer("q", choice("light", "heavy"), settled, KNOWN)["choice"] == "heavy"
    assert answer("q", choice("light"), settled, KNOWN)["choice"] == "light"


def test_an_intent_takes_its_confidence() -> None:
    found = decided("light", Reason.INTENT, intent="balance", confidence=0.8)
    told = answer("q", choice("balance", "refund", "other"), found, KNOWN)
    assert told["choice"] == "balance"
    assert told["probabilities"] == {"balance": 0.8, "refund": 0.1, "other": 0.1}
    none = answer("q", choice("balance", "refund"), decided("light"), KNOWN)
    assert none["confidence"] == 0.5, "no intent: no preference"


@pytest.mark.parametrize(
    ("difficulty", "label"),
    [(0.01, "SIMPLE"), (0.26, "MEDIUM"), (0.42, "COMPLEX"), (0.9, "REASONING")],
)
def test_complexity_in_litellms_words(difficulty: float, label: str) -> None:
    told = answer("q", choice(*COMPLEXITY), decided("x", difficulty=difficulty), KNOWN)
    assert told["choice"] == label


@pytest.mark.parametrize(
    ("question", "param"),
    [
        ({"type": "noul", "instructions": "?"}, "questions.q"),
        ({"type": "choice", "criteria": {}}, "questions.q.criteria"),
        (choice("small", "big"), "questions.q.criteria"),
        ("which?", "questions.q"),
    ],
)
def test_what_cannot_be_answered_is_named(question: Any, param: str) -> None:
    with pytest.raises(RequestError) as caught:
        answer("q", question, decided("light"), KNOWN)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ("hi", "hi"),
        ({"role": "user", "content": "hi"}, "hi"),
        ([{"role": "user", "content": "hi"}], "hi"),
        ({"messages": [{"role": "user", "content": "hi"}]}, "hi"),
        ({"ticket": "é"}, '{"ticket": "é"}'),
        (["a", "b"], '["a", "b"]'),
    ],
)
def test_a_state_is_read_as_messages(state: Any, text: str) -> None:
    assert messages_of(state)[-1]["content"] == text
