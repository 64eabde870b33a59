"""The linear head: it learns, it is the same each time, it bears odd input."""

import numpy as np
import pytest

from tier_router.classify import head
from tier_router.classify.head import Head, grams_of

TEXTS = [
    "what is my balance", "show my balance", "how much money have i",
    "play a song", "play some jazz", "put on music",
    "will it rain", "is it cold", "the weather please",
]  # fmt: skip
ROUTES = [0, 0, 0, 1, 1, 1, 2, 2, 2]


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def vectors() -> np.ndarray:
    pick = np.random.default_rng(0)
    return unit(pick.normal(size=(9, 16)) * 0.3 + np.repeat(np.eye(3, 16), 3, axis=0))


@pytest.fixture
def fitted(vectors: np.ndarray) -> Head:
    return Head([text.split() for text in TEXTS], vectors, ROUTES)


def test_utterances_belong_to_their_routes(fitted: Head, vectors: np.ndarray) -> None:
    found = [int(fitted.logits(t.split(), v).argmax()) for t, v in zip(TEXTS, vectors, strict=True)]
    assert found == ROUTES
    assert fitted.usual > 1


def test_words_speak_without_a_vector(fitted: Head) -> None:
    nothing = np.zeros(16, np.float32)
    assert fitted.logits(["play", "jazz"], nothing).argmax() == 1
    assert np.abs(fitted.logits(["unheard"], nothing)).max() == 0
    assert np.abs(fitted.logits([], nothing)).max() == 0


def test_the_same_routes_give_the_same_head(fitted: Head, vectors: np.ndarray) -> None:
    again = Head([text.split() for text in TEXTS], vectors, ROUTES)
    logits = [one.logits(TEXTS[0].split(), vectors[0]) for one in (fitted, again)]
    assert np.array_equal(*logits)


def test_chunks_change_nothing(
    fitted: Head, vectors: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head, "CHUNK", 1)
    small = Head([text.split() for text in TEXTS], vectors, ROUTES)
    for text, vector in zip(TEXTS, vectors, strict=True):
        np.testing.assert_allclose(
            small.logits(text.split(), vector), fitted.logits(text.split(), vector), atol=1e-4
        )


def test_texts_without_words_rest_on_their_vector() -> None:
    rows = unit(np.eye(2, 4) + 0.01)
    bare = Head([[], []], rows, [0, 1])
    assert [int(bare.logits([], row).argmax()) for row in rows] == [0, 1]


def test_many_utterances_leave_single_words_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "SINGLES", 4)
    rows = unit(np.ones((6, 4)))
    texts = [["pay", f"a{i}"] if i < 3 else ["play", f"b{i}"] for i in range(6)]
    many = Head(texts, rows, [0, 0, 0, 1, 1, 1])
    nothing = np.zeros(4, np.float32)
    assert np.abs(many.logits(["a1"], nothing)).max() == 0
    assert many.logits(["pay"], nothing).argmax() == 0


def test_words_and_pairs_once() -> None:
    assert grams_of(["a", "b", "a", "b"]) == ["a", "b", ("a", "b"), ("b", "a")]
    assert grams_of([]) == []
