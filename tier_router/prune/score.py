"""How well passages fit a question: BM25 beside static vectors, both without a model to run.

A text's terms and vector are kept, since passages and tools come again with the next request.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any, Protocol

K1, B = 1.2, 0.75
"""BM25's usual constants (Robertson and Zaragoza 2009)."""

ALIKE = 1e-9
"""A kind of evidence in which passages differ no more than this tells nothing."""

KEPT = 4_096
"""Texts whose terms and vectors are kept: about 40 MB at 100 words a passage."""

_ASCII = {code: " " for code in range(128) if not chr(code).isalnum()}
_WORD = re.compile(r"[^\W_]+")
# Scripts written without spaces: Thai, Lao, Khmer, Myanmar, kana, Han.
_UNSPACED = re.compile(r"[฀-໿က-႟ក-៿぀-ヿ㐀-鿿豈-﫿]+")
_MARKS = re.compile(r"[ऀ-ःऺ-़ा-ॏ]")

_STOP = (
    "a about after all also an and any are as at be been before but by can could did do does for"
    " from had has have he her him his how i if in into is it its me my no not of on one or our"
    " over she so some such than that the their them then there these they this those to under up"
    " us was we were what when where which who whom whose why will with would you your"
)
STOP = frozenset(_STOP.split())


class Vectors(Protocol):
    """What gives static vectors, such as `tier_router.encoder.StaticEncoder`."""

    def encode(self, text: str) -> Any:
        """An object whose `vector` is the normalised vector of `text`."""

    def vocabulary(self) -> list[str]:
        """The words it knows, the frequent ones first."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The words of a text with their counts, and how many there are."""

    counts: dict[str, int]
    size: int


@dataclass(frozen=True, slots=True)
class Weighed:
    """How passages fit a question: `scores` among themselves, and the `evidence` of each by itself,
    the question's words that it matches, each weighted by how rare it is; none without vectors."""

    scores: tuple[float, ...]
    evidence: tuple[float, ...] = ()


@lru_cache(KEPT)
def terms(text: str) -> Terms:
    """The terms of `text`: words in lower case, pairs of characters where words are not spaced."""
    found = words(text)
    return Terms(Counter(found), len(found))


def words(text: str) -> list[str]:
    """The words of `text` in order, in lower case and without English plurals."""
    lower = text.lower()
    if lower.isascii():
        return [*map(_stem, lower.translate(_ASCII).split())]
    found = _WORD.findall(_MARKS.sub("", lower))
    for run in _UNSPACED.findall(lower):
        found += [run[at : at + 2] for at in range(max(1, len(run) - 1))]
    return [*map(_stem, found)]


@lru_cache(16_384)
def _stem(word: str) -> str:
    """A light English plural stemmer (Harman's S-stemmer); other languages pass through."""
    if len(word) > 3 and word.endswith("s") and word.isascii():
        if word.endswith("ies") and not word.endswith(("eies", "aies")):
            return word[:-3] + "y"
        if not word.endswith(("us", "ss")):
            return word[:-1]
    return word


def query_terms(text: str) -> list[str]:
    """The distinct terms of a question that say what it is about."""
    found = [word for word in terms(text).counts if word not in STOP]
    return found or list(terms(text).counts)


def bm25(query: Sequence[str], passages: Sequence[Terms]) -> list[float]:
    """The BM25 score of each passage, over these passages alone."""
    count = len(passages)
    mean = sum(each.size for each in passages) / count or 1.0
    scores = [0.0] * count
    norms = [K1 * (1 - B + B * each.size / mean) for each in passages]
    for word in query:
        found = [(at, n) for at, each in enumerate(passages) if (n := each.counts.get(word))]
        if not found:
            continue
        weight = math.log(1 + (count - len(found) + 0.5) / (len(found) + 0.5))
        for at, n in found:
            scores[at] += weight * n * (K1 + 1) / (n + norms[at])
    return scores


def coverage(query: Sequence[str], passages: Sequence[Terms]) -> float:
    """The share of the question's terms that some passage holds."""
    if not query:
        return 0.0
    return sum(any(word in each.counts for each in passages) for word in query) / len(query)


def _pairs(question: str) -> list[str]:
    """Neighbouring words of a question that are not both function words."""
    words = question.lower().split()
    return [
        f"{one} {two}"
        for one, two in itertools.pairwise(words)
        if one not in STOP or two not in STOP
    ]


class Scorer:
    """Scores passages; without `vectors` by words alone."""

    def __init__(self, vectors: Vectors | None = None) -> None:
        self.lock = Lock()
        """Held by who uses it from several threads, for as long as a plan is made."""
        self.kept: dict[Any, Any] = {}
        """What steps keep of their results, the oldest first; they bound it."""
        self._near = None
        if vectors is not None:
            from tier_router.prune.near import Near  # numpy, only where vectors are at hand

            self._near = Near(vectors)

    def warm(self) -> None:
        """Does once what would cost the first request its time."""
        if self._near is not None:
            self._near.warm()
        self.scores(
            "What is in a table of words?", [("A table", "of words"), ("A chair", "of wood")]
        )

    def scores(
        self,
        question: str,
        passages: Sequence[tuple[str, str]],
        tick: Callable[[], None] | None = None,
    ) -> list[float]:
        """A score between 0 and 1 for each (title, text), as `weighed` gives it."""
        return list(self.weighed(question, passages, tick).scores)

    def weighed(
        self,
        question: str,
        passages: Sequence[tuple[str, str]],
        tick: Callable[[], None] | None = None,
    ) -> Weighed:
        """How each (title, text) fits the question; a score is the mean of what can be told, each
        spread over 0..1 among these passages.  `tick` is called now and then, and may raise."""
        query = query_terms(question)
        lowered = [f"{title}\n{text}".lower() for title, text in passages]
        pairs = _pairs(question)
        told: list[Sequence[float]] = [
            bm25(query, [terms(f"{title}\n{text}") for title, text in passages]),
            bm25(query, [terms(title) for title, _ in passages]),
            [float(sum(pair in each for pair in pairs)) for each in lowered],
        ]
        evidence: tuple[float, ...] = ()
        if self._near is not None and query:
            near = self._near.features(question, query, passages, tick)
            evidence = tuple(near[1])
            told += near
        columns = [_spread(each) for each in told if max(each) - min(each) > ALIKE]
        if not columns:
            return Weighed((0.0,) * len(passages), evidence)
        scores = tuple(sum(row) / len(columns) for row in zip(*columns, strict=True))
        return Weighed(scores, evidence)


def _spread(values: Sequence[float]) -> list[float]:
    """`values`, which differ, spread over 0..1."""
    low, high = min(values), max(values)
    return [(value - low) / (high - low) for value in values]
