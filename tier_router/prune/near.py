"""How near passages are to a question by static vectors: word by word, sentence by sentence, whole.

Holds numpy; imported where vectors are at hand.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tier_router.prune.score import KEPT, Vectors, words

Floats = npt.NDArray[np.float32]

WORDS = 16_384
"""Distinct words whose vectors are kept: 16 MB at 256 columns."""
COMMON = 900
"""Entries at the head of the vocabulary that are marks, single characters and the commonest words:
below this rank a word says almost nothing."""
ALIKE = 0.6
"""Cosine from which a passage's word counts as the question's for its document frequency."""
FAR = 0.3
"""Cosine below which two words have nothing to do with each other."""
ROOM = 4_096
"""Places in the word table that a request finds free when it begins."""
KNOWN = 8_192
"""Words of the vocabulary that the table can be given before any request, in about 50 ms."""
MOST_CHARS, SENTENCES = 8_000, 64
"""Of a longer passage, what is looked at."""

_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？।])|\n+")


@dataclass(frozen=True, slots=True)
class _Passage:
    """A passage as places in the word table, its sentences two by two, and it as a whole."""

    words: npt.NDArray[np.intp]
    windows: Floats
    whole: Floats


class Near:
    """Compares by one table of vectors; keeps what it computed of texts and words."""

    def __init__(self, vectors: Vectors) -> None:
        self._vectors = vectors
        self._rank = {word: at for at, word in enumerate(vectors.vocabulary())}
        self._top = math.log(max(len(self._rank), 2))
        self._generation = self._base = 0
        self._places: dict[str, int] = {}
        self._table = np.zeros((WORDS, len(vectors.encode("").vector)), np.float32)
        self._weight = np.zeros(WORDS, np.float32)
        self._passage = lru_cache(KEPT)(self._made)

    def features(
        self,
        question: str,
        query: Sequence[str],
        passages: Sequence[tuple[str, str]],
        tick: Callable[[], None] | None = None,
    ) -> tuple[list[float], list[float], list[float], list[float]]:
        """Four numbers for each (title, text): how much of the question its words match, the same
        weighted by how rare that is among these, its nearest two sentences, and it as a whole."""
        while True:
            if len(self._places) > WORDS - ROOM:
                self._forget()
            generation, made = self._generation, []
            for title, text in passages:
                made.append(self._passage(title, text))
                if tick is not None:
                    tick()
            if generation == self._generation:
                break
        matches = self._matches(query, made)
        rare = np.array([self._rarity(word) for word in query], np.float32)
        share = matches @ rare / max(float(rare.sum()), 1e-6)
        alike = (matches > ALIKE).sum(axis=0)
        weight = np.log(1 + (len(made) - alike + 0.5) / (alike + 0.5)) + FAR
        weighted = np.maximum(matches - FAR, 0) @ (weight * rare)
        about = self._sums([list(query)])[0]
        asked = self._sums([words(question)])[0]
        starts = np.cumsum([0, *(len(each.windows) for each in made[:-1])])
        near = np.concatenate([each.windows for each in made]) @ about
        windows = np.maximum.reduceat(near, starts)
        whole = np.stack([each.whole for each in made]) @ asked
        return share.tolist(), weighted.tolist(), windows.tolist(), whole.tolist()

    def warm(self) -> None:
        """Looks up the frequent words, so that the first requests need not; they are kept."""
        plain = [word for word in self._rank if word.isalnum()]
        for word in plain[COMMON : COMMON + KNOWN]:
            self._place(word)
        self._base = len(self._places)

    def _forget(self) -> None:
        self._generation += 1
        self._places = dict(itertools.islice(self._places.items(), self._base))
        self._passage.cache_clear()

    def _matches(self, query: Sequence[str], made: Sequence[_Passage]) -> Floats:
        """The cosine of each question word's nearest word, a row a passage."""
        asked = self._table[self._all(query)]
        everything = np.concatenate([each.words for each in made])
        used, back = np.unique(everything, return_inverse=True)
        # einsum: no pool of threads that spins on the other cores for a millisecond's work
        near = np.einsum("ij,kj->ik", self._table[used], asked)
        starts = np.cumsum([0, *(len(each.words) for each in made[:-1])])
        best: Floats = np.maximum.reduceat(near[back], starts, axis=0)
        return best

    def _made(self, title: str, text: str) -> _Passage:
        parts = [words(part) for part in _SENTENCE.split(text[:MOST_CHARS]) if part]
        parts = [part for part in parts if part][:SENTENCES] or [[""]]
        head = words(title)
        sums = self._sums([head, *parts, [*head, *(w for part in parts for w in part)]], raw=True)
        pairs = sums[0] + sums[1:-1]
        pairs[:-1] += sums[2:-1]
        distinct = {word for part in (head, *parts) for word in part} or {""}
        places = np.array(self._all(distinct), np.intp)
        return _Passage(places, _unit(pairs), _unit(sums[-1:])[0])

    def _sums(self, texts: Sequence[Sequence[str]], *, raw: bool = False) -> Floats:
        """The sum of each text's word vectors, weighted by how rare the words are."""
        places = self._all([word for text in texts for word in (text or ("",))])
        rows = self._table[places] * self._weight[places][:, None]
        starts = np.cumsum([0, *(len(text) or 1 for text in texts[:-1])])
        sums: Floats = np.add.reduceat(rows, starts, axis=0)
        return sums if raw else _unit(sums)

    def _all(self, words: Collection[str]) -> list[int]:
        """The places of many words."""
        known = [*map(self._places.get, words)]
        if None not in known:
            return known  # type: ignore[return-value]  # none is None
        return [self._place(word) for word in words]

    def _place(self, word: str) -> int:
        place = self._places.get(word)
        if place is None:
            if len(self._places) >= WORDS:
                self._forget()
            place = len(self._places)
            self._table[place] = self._vectors.encode(word).vector
            self._weight[place] = self._rarity(word) if word else 0.0
            self._places[word] = place
        return place

    def _rarity(self, word: str) -> float:
        """0.05 for the commonest words, 1 for words that the vocabulary does not have."""
        rank = self._rank.get(word)
        if rank is None:
            return 1.0
        return min(1.0, max(0.05, math.log(1 + max(0, rank - COMMON)) / self._top))


def _unit(rows: Floats) -> Floats:
    norms = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    unit: Floats = rows / np.maximum(norms, 1e-9)
    return unit
