"""The difficulty of a turn from the shipped artefact: small trees over features.

The trees are evaluated all at once: every comparison that goes right rules out leaves, and the
lowest leaf that is left is the tree's answer (QuickScorer, Lucchese et al. 2015).
"""

from __future__ import annotations

import functools
import json
from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tier_router.classify.features import NAMES, Glance
from tier_router.encoder import Encoding

Floats = npt.NDArray[np.float64]

ARTEFACT = Path(__file__).parents[1] / "data" / "difficulty.npz"
LEAVES = 16
"""Leaves of a tree at most: the mask of one tree is 16 bits."""
KNOWLEDGE = ("known_share", "whole_share", "rare_share")


def known(glance: Glance, encoding: Encoding) -> list[float]:
    """How much of an English text is vocabulary, and how rare; neutral for other languages."""
    words = encoding.words
    if glance.foreign or not words:
        return [1.0, 1.0, 0.0]
    return [encoding.known, encoding.whole / words, encoding.rare / words]


class Topics:
    """Linear scores of a text's vector for a few fields ("law", "errands", ...)."""

    def __init__(self, names: tuple[str, ...], weights: npt.NDArray[np.float32], bias: Floats):
        self.names, self.weights = names, weights
        self.bias: list[float] = bias.tolist()

    def scores(self, glance: Glance, encoding: Encoding) -> list[float]:
        """One score a topic; zeros where the vector means nothing (not English, no words)."""
        if glance.foreign or not encoding.tokens:
            return [0.0] * len(self.names)
        return [*map(add, (encoding.vector @ self.weights).tolist(), self.bias)]


class Trees:
    """Boosted trees as flat arrays, (nodes, trees) each; see `tier_router.train.trees`.

    All comparisons of all trees are made at once, in order and in single precision, as rows have
    been in training: some 60 KB are read from end to end, whatever the row holds.
    """

    def __init__(self, stored: Mapping[str, npt.NDArray[Any]]) -> None:
        self.feature = stored["feature"].astype(np.intp)
        self.threshold = stored["threshold"].astype(np.float64)
        self.mask = stored["mask"].astype(np.uint16)
        self.leaf = stored["leaf"].astype(np.float64)
        self.mean = stored["mean"].astype(np.float64)
        self.child = stored["child"].astype(np.int64)
        self.count = self.leaf.shape[1]
        self._flat = np.ascontiguousarray(self.leaf.T).ravel()
        self._base = np.arange(self.count) * LEAVES
        self._cut = _floor(self.threshold)
        self._gone = ~self.mask
        gone = np.arange(1 << LEAVES, dtype=np.uint32)
        self._lowest = np.log2(~gone & (gone + 1)).astype(np.uint8)  # of the leaves not gone

    def value(self, row: Sequence[float] | Floats) -> float:
        """The sum of the trees' values for one row of features."""
        right = np.asarray(row, np.float32).take(self.feature) > self._cut
        gone = np.bitwise_or.reduce(right * self._gone, axis=0)
        return float(np.add.reduce(self._flat.take(self._base + self._lowest.take(gone))))

    def values(self, rows: Floats) -> Floats:
        """`value` for many rows."""
        return np.array([self.value(row) for row in rows.tolist()])

    def contributions(self, row: Sequence[float] | Floats) -> Floats:
        """How much each feature moved the value along the paths taken (Saabas)."""
        out = np.zeros(len(row))
        for tree in range(self.count):
            node = 0
            while node >= 0 and self.child[node, tree, 0] != self.child[node, tree, 1]:
                feature = self.feature[node, tree]
                side = int(row[feature] > self.threshold[node, tree])
                after = int(self.child[node, tree, side])
                value = self.leaf[~after, tree] if after < 0 else self.mean[after, tree]
                out[feature] += value - self.mean[node, tree]
                node = after
        return out


def _floor(values: Floats) -> npt.NDArray[np.float32]:
    """The greatest numbers of single precision that are not above `values`."""
    near = values.astype(np.float32)
    out: npt.NDArray[np.float32] = np.where(near > values, np.nextafter(near, -np.inf), near)
    return out


class Difficulty:
    """The calibrated difficulty; `load` gives the shared one."""

    def __init__(self, path: Path = ARTEFACT) -> None:
        with np.load(path) as stored:
            arrays = {name: stored[name] for name in stored.files}
        self.meta: dict[str, Any] = json.loads(arrays["meta"].tobytes().decode())
        if tuple(self.meta["features"]) != NAMES + KNOWLEDGE:
            raise ValueError(f"{path}: made for other features; train again")
        self.trees = Trees(arrays)
        topics = tuple(self.meta["topics"])
        self.topics = Topics(topics, arrays["topic_weights"], arrays["topic_bias"].astype(float))
        self.names = NAMES + KNOWLEDGE + tuple(f"about_{name}" for name in topics)
        self._x: list[float] = arrays["map_x"].tolist()
        self._y: list[float] = arrays["map_y"].tolist()
        self._quantiles: list[float] = arrays["quantiles"].tolist()
        self.threshold = float(self.meta["threshold"])
        self.prior = float(self.meta["prior"])

    def row(self, glance: Glance, encoding: Encoding) -> array[float]:
        """The features of one turn, in the order of `names`, in single precision as in training."""
        topics = self.topics.scores(glance, encoding)
        return array("f", glance.values + known(glance, encoding) + topics)

    def of_row(self, row: Sequence[float] | Floats) -> float:
        """The calibrated difficulty of one row of features."""
        return self.calibrated(self.trees.value(row))

    def calibrated(self, raw: float) -> float:
        """The monotone, piecewise linear map from the trees' sum to a probability."""
        xs, ys = self._x, self._y
        place = bisect_right(xs, raw)
        if place == 0:
            return ys[0]
        if place == len(xs):
            return ys[-1]
        low, high = xs[place - 1], xs[place]
        share = (raw - low) / (high - low)
        return ys[place - 1] + share * (ys[place] - ys[place - 1])

    def reference_quantile(self, share: float) -> float:
        """The difficulty above which `share` (0..1) of the reference service mix lies."""
        place = (1.0 - min(max(share, 0.0), 1.0)) * (len(self._quantiles) - 1)
        low = int(place)
        if low >= len(self._quantiles) - 1:
            return self._quantiles[-1]
        first, second = self._quantiles[low], self._quantiles[low + 1]
        return first + (place - low) * (second - first)


@functools.cache
def load() -> Difficulty:
    """The model of the shipped artefact, loaded once a process."""
    return Difficulty()
