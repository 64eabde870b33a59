"""The clock, the classifier, the text helpers."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tier_router import testing
from tier_router.classify import Classifier, Signal, Verdict
from tier_router.request import Turn
from tier_router.testing import FixedClassifier, ManualClock, tokens
from tier_router.testing.answers import Part, Writer, natural_length
from tier_router.testing.structured import example


def test_a_manual_clock_moves_by_hand_alone() -> None:
    clock = ManualClock(5)
    assert clock() == 5
    clock.advance(2.5)
    assert clock() == clock() == 7.5
    assert repr(clock) == "<ManualClock 7.5s>"
    with pytest.raises(ValueError):
        clock.advance(-1)


def test_a_fixed_classifier_follows_the_first_rule_that_fits() -> None:
    hard = Verdict(0.9, intent="maths")
    fixed: Classifier = FixedClassifier(0.2, {"prove": hard, "PROVERB": 0.3, "cancel": 0.4})
    assert fixed.classify(Turn("hello")) == Verdict(0.2)
    assert fixed.classify(Turn("a Proverb, please")) is hard
    assert fixed.classify(Turn("Cancel it")) == Verdict(0.4)
    assert fixed.default_threshold == 0.5
    assert fixed.reference_quantile(0.3) == 0.7
    assert fixed.explain(Turn("prove it")) == [Signal("contains 'prove'", 0.9 - 0.5)]
    assert fixed.explain(Turn("hello")) == []


def test_the_public_names_are_sorted_and_there() -> None:
    assert testing.__all__ == sorted(
        testing.__all__, key=lambda n: (not n.isupper(), n[0].islower(), n)
    )
    assert all(hasattr(testing, name) for name in testing.__all__)


def test_only_the_server_needs_h11() -> None:
    script = (
        "import sys; sys.modules['h11'] = None\n"
        "import asyncio, tier_router.testing as t\n"
        "t.ManualClock(), t.FixedClassifier(), t.speed_of('sim://a')\n"
        "try: asyncio.run(t.FakeVllm().start())\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "the fake vLLM needs h11: pip install 'tier-router[proxy]'"


@given(st.text())
def test_pieces_joined_are_the_text(text: str) -> None:
    parts = tokens.pieces(text)
    assert "".join(parts) == text
    assert all(len(part.strip()) <= 4 for part in parts)
    assert len(tokens.ids(text)) == tokens.count(text)


def test_hard_and_long_questions_get_long_answers() -> None:
    short = natural_length("what is my balance?")
    hard = natural_length("Prove step by step that there are infinitely many primes")
    pasted = natural_length("summary: " + "word " * 1000)
    assert short <= 20
    assert hard > 200
    assert short < pasted < 800


def chat(text: str, **more: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}], **more}


def test_an_answer_says_who_gives_it_and_is_the_same_each_time() -> None:
    light, heavy = Writer("light"), Writer("heavy")
    said = light.chat(chat("hi"), 100)
    assert said == light.chat(chat("hi"), 100)
    assert said.text(Part.CONTENT).startswith("light answers:")
    assert heavy.chat(chat("hi"), 100).text(Part.CONTENT).startswith("heavy answers:")
    assert said != light.chat(chat("hi"), 100, 1)


def test_how_long_an_answer_is() -> None:
    writer = Writer("light")
    cases = [
        (chat("hi"), 5, 5, "length"),
        (chat("hi"), 100, 16, "stop"),
        (chat("hi", min_tokens=40), 100, 40, "stop"),
        (chat("hi", ignore_eos=True), 77, 77, "length"),
    ]
    for body, room, size, finish in cases:
        draft = writer.chat(dict(body), room)
        assert (len(draft.pieces), draft.finish) == (size, finish)


def test_a_stop_string_ends_the_answer_before_it() -> None:
    writer = Writer("light", answer=lambda body: "one two three four")
    draft = writer.chat(chat("hi", stop=["four", " three"]), 100)
    assert (draft.text(Part.CONTENT), draft.finish, draft.stop) == ("one two", "stop", " three")


def test_thinking_may_use_up_all_tokens() -> None:
    body = chat("hi", chat_template_kwargs={"enable_thinking": True})
    draft = Writer("light").chat(body, 10)
    assert (draft.reasoning_tokens, draft.text(Part.CONTENT), draft.finish) == (10, "", "length")
    whole = Writer("light").chat(body, 1000)
    assert whole.reasoning_tokens == 32
    assert whole.text(Part.CONTENT).startswith("light answers:")


def test_an_example_fits_its_schema() -> None:
    schema = {
        "type": "object",
        "required": ["tier", "n", "who", "list", "yes", "maybe", "ref"],
        "properties": {
            "tier": {"enum": ["light", "heavy"]},
            "n": {"type": "integer", "minimum": 3},
            "who": {"type": "string"},
            "list": {"type": "array", "items": {"type": "number"}},
            "yes": {"type": "boolean"},
            "maybe": {"anyOf": [{"type": "null"}, {"type": "string"}]},
            "ref": {"$ref": "#/$defs/node"},
            "left_out": {"type": "string"},
        },
        "$defs": {
            "node": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"const": "x"}, "next": {"$ref": "#/$defs/node"}},
            }
        },
    }
    assert example(schema) == {
        "tier": "light", "n": 3, "who": "text", "list": [1.0], "yes": True, "maybe": None,
        "ref": {"name": "x"},
    }  # fmt: skip
