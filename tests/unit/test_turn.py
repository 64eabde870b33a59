"""What is judged of a human turn."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tier_router.request import TURN_CHARS
from tier_router.turn import NOISE_TAGS, turn_of

LOG = "\n".join(
    f"2026-11-30T10:{n // 60 % 60:02}:{n % 60:02} INFO worker-{n} request served in {n} ms"
    for n in range(4_000)
)


@pytest.mark.parametrize("tag", NOISE_TAGS.split("|"))
def test_harness_noise_is_set_aside(tag: str) -> None:
    raw = f"<{tag}>prove the theorem\nrigorously</{tag}>\nhi there"
    assert turn_of(raw).text == "hi there"


def test_an_unclosed_reminder_ends_with_the_turn() -> None:
    assert turn_of("hi\n<system-reminder>never prove anything").text == "hi"


def test_noise_alone_leaves_nothing() -> None:
    turn = turn_of("<system-reminder>todo list is empty</system-reminder>")
    assert (turn.text, turn.code, turn.pasted) == ("", 0, 0)
    assert turn.chars == 53


def test_fenced_code_is_counted_not_judged() -> None:
    code = "def f(x):\n    return prove(x)\n" * 20
    turn = turn_of(f"rename x to y\n```python\n{code}```\nthanks")
    assert turn.text.split("\n") == ["rename x to y", "", "", "thanks"]
    assert turn.code >= len(code)


def test_an_open_fence_takes_the_rest() -> None:
    assert turn_of("fix it\n~~~\nx = 1").text == "fix it"


@pytest.mark.parametrize("template", ["why?\n\n{}", "{}\n\nwhy?", "why?\n{}\nwhat broke?"])
def test_a_pasted_log_leaves_the_question(template: str) -> None:
    turn = turn_of(template.format(LOG))
    assert turn.text.split() in (["why?"], ["why?", "what", "broke?"])
    assert turn.pasted > 0.95 * len(LOG)
    assert turn.chars == len(template.format(LOG))


def test_a_log_in_a_fence_that_is_longer_than_what_is_scanned() -> None:
    assert turn_of(f"why does it fail?\n```\n{LOG}\n```\nbe brief").text.split("\n") == [
        "why does it fail?",
        "be brief",
    ]


def test_a_reminder_that_is_longer_than_what_is_scanned() -> None:
    noise = f"<system-reminder>{'prove it. ' * 5_000}</system-reminder>"
    assert turn_of(f"hi\n{noise}\nthanks").text == "hi\nthanks"
    assert turn_of(f"{noise}thanks").text == "thanks"


def test_three_lines_that_look_like_a_log_may_be_the_question() -> None:
    raw = "ERROR: disk full\nERROR: cannot write\nwhat does this mean?"
    assert turn_of(raw).text == raw


def test_base64_is_not_text() -> None:
    blob = "data:image/png;base64," + "iVBORw0KGgo" * 1_000
    turn = turn_of(f"what is this? {blob}")
    assert turn.text == "what is this?"
    assert turn.pasted > 10_000


@pytest.mark.parametrize(
    "text", ["给我讲一个笑话。" * 60, "ขอบคุณมากครับ" * 60, "なぜ空は青いのですか" * 60]
)
def test_languages_without_spaces_are_not_blobs(text: str) -> None:
    assert turn_of(text).text == text[:TURN_CHARS]


def test_a_long_text_is_judged_by_its_ends() -> None:
    words = [f"w{n}" for n in range(3_000)]
    text = turn_of(" ".join(words)).text
    assert text.startswith("w0 w1 ")
    assert text.endswith(" w2998 w2999")
    assert set(text.split()) <= set(words), "cut at word borders"


@given(st.text(max_size=12_000))
def test_any_text_gives_a_bounded_turn(raw: str) -> None:
    turn = turn_of(raw)
    assert len(turn.text) <= TURN_CHARS
    assert turn.chars == len(raw)
    assert turn.code >= 0
    assert turn.pasted >= 0


@pytest.mark.parametrize("seed", range(20))
def test_any_mixture_of_marks_is_survived(seed: int) -> None:
    pick = random.Random(seed)
    parts = [
        "```",
        "~~~~",
        "\n",
        "<system-reminder>",
        "</system-reminder>",
        "ERROR x\n",
        "é",
        "a b ",
    ]
    raw = "".join(pick.choice(parts) * pick.randint(1, 300) for _ in range(60))
    assert len(turn_of(raw).text) <= TURN_CHARS
