"""What a tier's answers teach."""

import json

import pytest

from tier_router.ledger import Lease
from tier_router.pace import ENOUGH, SCALES, Pace, Paces, Script, Usage, usage_at_end
from tier_router.view import view_of

LATIN = view_of({"messages": [{"role": "user", "content": "word " * 800}]})
CHINESE = view_of({"messages": [{"role": "user", "content": "\u4f59\u989d" * 400}]})


def lease(opened: float = 0.0, first: float | None = None, alone: bool = False) -> Lease:
    return Lease("r", 10, opened, 100.0, alone=alone, first_at=first)


def test_speeds_come_from_the_answers_own_times_and_counts() -> None:
    pace = Pace()
    pace.answered(LATIN, lease(first=0.5, alone=True), Usage(1000, 11, cached=200), now=1.5)
    assert pace.ttft == 0.5
    assert pace.gap == pytest.approx(0.1)
    assert pace.prefill == pytest.approx(1600)
    assert pace.whole == 1.5


def test_a_replica_that_had_more_to_do_says_nothing_of_prefill() -> None:
    pace = Pace()
    pace.answered(LATIN, lease(first=0.5), Usage(1000, 11), now=1.5)
    pace.answered(LATIN, lease(first=0.5, alone=True), Usage(1000, 11, cached=900), now=1.5)
    assert pace.prefill is None


def test_an_answer_that_says_nothing_teaches_nothing() -> None:
    pace = Pace()
    pace.answered(LATIN, lease(), None, now=3.0)
    assert (pace.ttft, pace.gap, pace.whole) == (None, None, None)


def test_tokens_are_counted_by_script() -> None:
    paces = Paces()
    for _ in range(20):
        paces.of("t").answered(LATIN, lease(), Usage(2 * LATIN.tokens, 1), now=1.0)
        paces.of("t").answered(CHINESE, lease(), Usage(CHINESE.tokens // 2, 1), now=1.0)
    assert Script.of(CHINESE) is Script.OTHER
    assert paces.scales(LATIN)["t"] == pytest.approx(2)
    assert paces.scales(CHINESE)["t"] == pytest.approx(0.5, abs=0.01)


def test_a_few_counts_are_not_believed_nor_absurd_ones() -> None:
    pace = Pace()
    pace.answered(LATIN, lease(), Usage(2 * LATIN.tokens, 1), now=1.0)
    assert pace.scale(Script.ASCII) == 1.0
    for _ in range(200):
        pace.answered(LATIN, lease(), Usage(100 * LATIN.tokens, 1), now=1.0)
    assert pace.scale(Script.ASCII) <= SCALES[1]


def test_images_are_left_out_of_the_count() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:,"}}
    view = view_of({"messages": [{"role": "user", "content": [picture]}]})
    pace = Pace()
    for _ in range(20):
        pace.answered(view, lease(), Usage(5, 1), now=1.0)
    assert pace.scale(Script.ASCII) == 1.0


def test_the_95th_percentile_follows_the_newest_answers() -> None:
    pace = Pace()
    for step in range(1, 400):
        assert (pace.late is None) == (step <= ENOUGH)
        pace.answered(LATIN, lease(first=(step % 100) / 100), None, now=1.0)
    assert pace.late == pytest.approx(0.95, abs=0.02)
    for _ in range(300):
        pace.answered(LATIN, lease(first=3.0), None, now=4.0)
    assert pace.late == 3.0


def test_usage_is_found_at_the_end_of_an_answer() -> None:
    usage = {
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    whole = json.dumps({"choices": [], "usage": usage}).encode()
    assert usage_at_end(whole) == Usage(7, 3, cached=4)
    stream = (
        b"b2\r\ndata: " + whole.replace(b" ", b"") + b"\n\n\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
    )
    assert usage_at_end(stream) == Usage(7, 3, cached=4)
    said = json.dumps({"input_tokens": 2, "output_tokens": 5})
    assert usage_at_end(b'{"usage": ' + said.encode() + b"}") == Usage(2, 5)


@pytest.mark.parametrize("answer", [
    b"",
    b'data: {"usage": null}',
    b'{"usage":{"prompt_tokens":3}}',
    json.dumps({"content": json.dumps({"usage": {"prompt_tokens": 1, "completion_tokens": 2}},
                                      separators=(",", ":"))}).encode(),
])  # fmt: skip
def test_what_is_no_usage_is_none(answer: bytes) -> None:
    assert usage_at_end(answer) is None
