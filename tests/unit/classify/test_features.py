"""Hand features: what they see, what they leave aside, and that any text has them."""

import math
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tier_router.classify import features, lexicon
from tier_router.classify.features import NAMES, core, glance
from tier_router.classify.text import words_of
from tier_router.request import Turn
from tier_router.turn import turn_of


def value(text: str, name: str) -> float:
    return glance(turn_of(text)).value(name)


def test_names_are_unique_and_fit_the_values() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert len(glance(Turn("prove it")).values) == len(NAMES)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("prove that it holds", "proof"),
        ("Proving this took years", "proof"),
        ("show that it holds", "proof"),
        ("demuestra que es par", "proof"),
        ("证明根号2是无理数", "proof"),
        ("докажи теорему", "proof"),
        ("the patient has a fever", "medicine"),
        ("el paciente tiene fiebre", "medicine"),
        ("is the contract enforceable?", "law"),
        ("is 97 a prime number", "math"),
        ("the 7th planet", "ordinals"),
        ("x^2 + y^2 = z^2", "formula"),
        ("∫ f(t) dt ≤ ε", "formula"),
        ("\\frac{a}{b}", "formula"),
        ("for (i = 0; i < n; i++) { a[i] = b[i]; }", "code_marks"),
        ("pick one\nA. red\nB. blue", "options"),
        ("translate it", "rewrite"),
        ("what is my balance", "account"),
        ("fasse den text zusammen", "foreign_text"),
    ],
)
def test_sees(text: str, name: str) -> None:
    assert value(text, name) > 0
    assert value("the dog sleeps on a mat", name) == 0


def test_upper_case_changes_nothing() -> None:
    text = "Prove that the sum of two odd integers is even."
    assert glance(turn_of(text)).values == glance(turn_of(text.upper())).values


@pytest.mark.parametrize(
    "text",
    [
        "Hi! I hope you can help me. Prove that it converges",
        "hello, please prove that it converges",
        "Good morning everyone, prove that it converges. Thanks a lot in advance!",
        "Could you please help me with this: Prove that it converges",
    ],
)
def test_greetings_around_a_request_are_left_aside(text: str) -> None:
    assert core(text).rstrip(".").lower() == "prove that it converges"


@pytest.mark.parametrize(
    "text", ["hi", "please", "thanks a lot", "hello there!", "", "你好，证明", "high noon"]
)
def test_a_greeting_alone_stays(text: str) -> None:
    assert core(text) == text


def test_what_was_set_aside_is_counted() -> None:
    seen = glance(Turn("explain", code=100, pasted=50, media=2))
    assert seen.value("code_block") == pytest.approx(math.log1p(100))
    assert seen.value("pasted") == pytest.approx(math.log1p(50))
    assert seen.value("media") == 2


def test_counters_do_not_run_into_each_other() -> None:
    seen = glance(Turn("prove " * 333))
    assert seen.count("proof") == 333
    assert seen.count("analyse") == 0


@pytest.mark.parametrize(
    ("text", "foreign"),
    [
        ("what is the capital of France", False),
        ("la capitale de la France est une ville", True),
        ("wie ist das Wetter in der Stadt", True),
        ("что это такое", True),
        ("今天天气怎么样", True),
        ("what does the word привет mean in English", False),
        ("e = m c squared", False),
    ],
)
def test_foreign(text: str, foreign: bool) -> None:
    assert glance(turn_of(text)).foreign is foreign


def test_scripts_without_known_words_are_strange() -> None:
    assert glance(Turn("สวัสดีชาวโลก")).strange > 0.5
    assert glance(Turn("Γειά σου κόσμε α β")).strange == 0
    assert glance(Turn("hello world")).strange == 0


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(codec=None, exclude_categories=()), max_size=400))
def test_any_text_has_finite_features(text: str) -> None:
    seen = glance(Turn(text, chars=len(text)))
    assert all(map(math.isfinite, seen.values))
    assert len(seen.values) == len(NAMES)


def test_every_word_of_the_lexicon_can_be_met() -> None:
    """Words are runs of letters and digits: a hyphen in the lists would never be met."""
    lost = [word for word in lexicon.packed() if not word.isalnum()]
    marks = [word for word in lost if not any(ord(char) > 0x300 for char in word)]
    assert marks == []


@pytest.mark.parametrize(
    ("script", "ranges"),
    [
        (features._CJK_LETTERS, r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"),
        (features._OTHER, r"\u0400-\u052f\u0600-\u06ff"),
        (features._STRANGE, r"\u0530-\u05ff\u0700-\u1cff\u2c00-\u2dff\ua4d0-\ua83f\ua980-\uabff"),
    ],
)
def test_letters_of_a_script_are_counted_one_by_one_or_by_blocks(
    script: features.Script, ranges: str
) -> None:
    one = re.compile(f"[{ranges}]")
    pick = random.Random(1)
    for _ in range(300):
        low = pick.choice((0x20, 0x3000, 0x400, 0x500, 0x6F0, 0xA4C0, 0xD700, 0x1F600))
        text = "".join(chr(low + pick.randrange(0x300)) for _ in range(pick.randrange(1, 60)))
        blocks = text.encode("utf-16-le", "surrogatepass")[1::2]
        assert script.count(text, blocks) == len(one.findall(text))


@given(st.text(max_size=200))
def test_letters_are_counted_whatever_the_text(text: str) -> None:
    letters, *_ = features._scripts(text, words_of(text.lower()))
    assert letters == len(re.findall(r"[^\W\d_]", text))
