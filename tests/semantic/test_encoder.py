"""Our vectors in the library's own routers, as its users would use them."""

from __future__ import annotations

import asyncio
import math

import numpy as np
import pytest

from tests.semantic.tools import ROUTES, router_of
from tier_router.semantic import TierEncoder, library
from tier_router.semantic.encoder import EVEN
from tier_router.semantic.library import V1
from tier_router.semantic.routers import OFFSET, SLOPE


def test_vectors_are_of_length_one_whatever_the_text() -> None:
    texts = ["what is my balance", "", "👍", "zzxqj qqqqw", "\ud800", "余额", "a" * 5_000]
    vectors = np.array(TierEncoder()(texts))
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1.0)
    assert asyncio.run(TierEncoder().acall(texts)) == vectors.tolist()
    assert TierEncoder()([]) == []


def test_a_text_of_no_known_word_is_like_none_that_has_one() -> None:
    known, unknown = TierEncoder()(["what is my balance", "👍"])
    assert float(np.dot(known, unknown)) == 0.0


@pytest.mark.parametrize("text", ["", " ", "👍", "zzxqj qqqqw"])
def test_the_library_finds_nothing_where_it_would_answer_nan(text: str) -> None:
    choice = router_of(TierEncoder())(text)
    assert choice.name is None


def test_the_library_routes_by_our_vectors() -> None:
    router = router_of(TierEncoder())
    for route in ROUTES:
        for utterance in route.utterances:
            choice = router(utterance)
            assert choice.name == route.name
            score = choice.confidence if V1 else choice.similarity_score
            assert math.isclose(score, 1.0, abs_tol=1e-6)
    assert router("write a haiku about the sea").name is None


async def test_the_library_awaits_our_vectors() -> None:
    assert (await router_of(TierEncoder()).acall("when do you open")).name == "hours"


def test_the_threshold_of_0_x_is_where_right_and_wrong_are_even() -> None:
    assert pytest.approx(-OFFSET / SLOPE, abs=0.01) == EVEN
    if not V1:
        router = library.SemanticRouter(encoder=TierEncoder(), routes=[])
        assert router.score_threshold == EVEN
