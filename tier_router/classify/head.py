"""The linear head of intents: softmax regression on words, pairs of words and static vectors.

It is fitted when routes are compiled, by L-BFGS (Liu and Nocedal 1989) in numpy alone, from zero
and for a fixed number of steps: the same routes give the same head.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, pairwise

import numpy as np
import numpy.typing as npt

from tier_router.encoder import Array

Gram = str | tuple[str, str]

STEPS, MEMORY = 25, 5
"""Steps of the fit, and how many of them L-BFGS remembers: more steps move accuracy by less than
0.2 points."""
RIDGE = 0.1
"""L2 penalty; 0.03 and 0.3 are within 0.3 points on validation texts."""
STATIC, STATIC_FEW = 1.0, 2.0
"""Length of the static part beside that of the words, with `MANY` and more utterances a route and
with `FEW` and less: few utterances hold few words."""
FEW, MANY = 20, 80
SINGLES = 3_000
"""Utterances from which words and pairs that only one of them has are left out."""
CHUNK = 2_000
"""Words whose weights are added up at once while fitting, which bounds the memory."""


class Head:
    """Logits of each route for a text's words and vector."""

    def __init__(self, texts: Sequence[Sequence[str]], vectors: Array, routes: Sequence[int]):
        """`texts` as words, their unit `vectors`, and the place of each one's route."""
        count = max(routes) + 1
        size = len(texts) / count
        share = min(max((size - FEW) / (MANY - FEW), 0.0), 1.0)
        self._static = STATIC_FEW + share * (STATIC - STATIC_FEW)
        grams = [grams_of(words) for words in texts]
        seen = Counter(gram for own in grams for gram in own)
        least = 2 if len(texts) > SINGLES else 1
        kept = [gram for gram in sorted(seen, key=_spelt) if seen[gram] >= least]
        self._places = {gram: place for place, gram in enumerate(kept)}
        self._rare: Array = (
            np.log((1 + len(texts)) / (1 + np.array([seen[gram] for gram in kept], np.float64))) + 1
        ).astype(np.float32)
        words = _Rows([self._row(own) for own in grams], len(kept))
        fitted = _fit(words, vectors * np.float32(self._static), np.asarray(routes), count)
        self._words: Array = np.ascontiguousarray(fitted[: len(kept)])
        self._vector: Array = fitted[len(kept) :].T.copy() * np.float32(self._static)
        own = words.times(fitted[: len(kept)]) + vectors @ self._vector.T
        self.usual = max(float(own[np.arange(len(routes)), routes].mean()), 1e-6)
        """The mean logit of the utterances for their own route."""

    def logits(self, words: Sequence[str], vector: Array) -> Array:
        """One number a route; `vector` is of unit length, or zeros."""
        places, weights = self._row(chain(words, pairwise(words)))
        out: Array = self._vector @ vector
        if len(places):
            out = out + weights @ self._words.take(places, axis=0)
        return out

    def _row(self, grams: Iterable[Gram]) -> tuple[npt.NDArray[np.intp], Array]:
        """(places, weights) of the known ones, each once: rare ones weigh more; of length one."""
        found = dict.fromkeys(map(self._places.get, grams))
        found.pop(None, None)
        places = np.array([*found], np.intp)
        weights = self._rare.take(places)
        norm = float(weights @ weights) ** 0.5
        return places, weights / np.float32(norm) if norm else weights


def grams_of(words: Sequence[str]) -> list[Gram]:
    """The words and the pairs of neighbours, each once."""
    return [*dict.fromkeys(words), *dict.fromkeys(pairwise(words))]


def _spelt(gram: Gram) -> str:
    return gram if isinstance(gram, str) else " ".join(gram)


class _Rows:
    """A sparse matrix by rows and, for its transpose, by columns."""

    def __init__(self, rows: Sequence[tuple[npt.NDArray[np.intp], Array]], width: int) -> None:
        sizes = [len(places) for places, _ in rows]
        self.height, self.width = len(rows), width
        self.row = np.repeat(np.arange(len(rows)), sizes)
        self.column = np.concatenate([places for places, _ in rows])
        self.value: Array = np.concatenate([weights for _, weights in rows]).astype(np.float32)
        self._by_column = np.argsort(self.column, kind="stable")

    def times(self, other: Array) -> Array:
        """The product with a dense matrix."""
        return _added(self.row, self.column, self.value, other, self.height)

    def transposed_times(self, other: Array) -> Array:
        """The product of the transpose with a dense matrix."""
        at = self._by_column
        return _added(self.column[at], self.row[at], self.value[at], other, self.width)


def _added(
    to: npt.NDArray[np.intp], from_: npt.NDArray[np.intp], value: Array, rows: Array, height: int
) -> Array:
    """Rows `from_` of `rows`, weighted, summed into rows `to`, which is sorted."""
    out = np.zeros((height, rows.shape[1]), np.float32)
    starts = np.flatnonzero(np.diff(to, prepend=-1))
    first = 0
    while first < len(starts):
        begin = int(starts[first])
        last = max(int(np.searchsorted(starts, begin + CHUNK)), first + 1)
        end = int(starts[last]) if last < len(starts) else len(to)
        taken = rows.take(from_[begin:end], axis=0) * value[begin:end, None]
        at = starts[first:last]
        out[to[at]] = np.add.reduceat(taken, at - begin, axis=0)
        first = last
    return out


def _fit(words: _Rows, dense: Array, routes: npt.NDArray[np.intp], count: int) -> Array:
    """The weights, those of words first, that minimise the penalised log loss."""
    rows = np.arange(len(routes))
    split = words.width

    def loss(weights: Array) -> tuple[float, Array]:
        logits = words.times(weights[:split]) + dense @ weights[split:]
        logits -= logits.max(1, keepdims=True)
        chance = np.exp(logits)
        total = chance.sum(1, keepdims=True)
        value = float((np.log(total[:, 0]) - logits[rows, routes]).sum(dtype=np.float64))
        chance /= total
        chance[rows, routes] -= 1
        slope = np.concatenate([words.transposed_times(chance), dense.T @ chance])
        value += 0.5 * RIDGE * float(np.vdot(weights, weights))
        return value, slope + np.float32(RIDGE) * weights

    return _minimised(loss, np.zeros((split + dense.shape[1], count), np.float32))


def _minimised(loss: Callable[[Array], tuple[float, Array]], at: Array) -> Array:
    """`at`, after `STEPS` steps of L-BFGS with backtracking."""
    past: list[tuple[Array, Array, float]] = []
    value, slope = loss(at)
    for _ in range(STEPS):
        step = _direction(slope, past)
        fall, size = float(np.vdot(slope, step)), 1.0
        while True:
            new = at - np.float32(size) * step
            new_value, new_slope = loss(new)
            if new_value <= value - 1e-4 * size * fall or size < 1e-3:
                break
            size /= 2
        moved, bent = new - at, new_slope - slope
        curve = float(np.vdot(moved, bent))
        if new_value > value or curve <= 0:  # as good as it gets in single precision
            break
        past = [*past[1 - MEMORY :], (moved, bent, curve)]
        at, value, slope = new, new_value, new_slope
    return at


def _direction(slope: Array, past: Sequence[tuple[Array, Array, float]]) -> Array:
    """The slope times the inverse curvature that the past steps suggest."""
    step = slope.copy()
    if not past:
        return step / np.float32(max(10 * float(np.abs(slope).max()), 1e-9))
    sizes = []
    for moved, bent, curve in reversed(past):
        size = np.float32(float(np.vdot(moved, step)) / curve)
        sizes.append(size)
        step -= size * bent
    _, bent, curve = past[-1]
    step *= np.float32(curve / float(np.vdot(bent, bent)))
    for (moved, bent, curve), size in zip(past, reversed(sizes), strict=True):
        step += moved * (size - np.float32(float(np.vdot(bent, step)) / curve))
    return step
