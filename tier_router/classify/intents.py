"""Which configured intent a text belongs to, or none: semantic-router's routes, compiled.

A text's vector is whitened, so that what all requests share ("i want to", "please") counts little.
A linear head over words and vector says which route is likely; the vector is also compared with
each route's mean and with its nearest utterance.  How near the best route is, how strongly the head
speaks for it and how many of the text's words it knows make the confidence; the weights are fitted
by `tier_router.train.intents` on routes and texts that no table is made of.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tier_router.classify import lexicon
from tier_router.classify.features import core
from tier_router.classify.head import Head
from tier_router.classify.text import words_of
from tier_router.encoder import Array, Encoding, StaticEncoder

Scores = npt.NDArray[np.floating[Any]]

ARTEFACT = Path(__file__).parents[1] / "data" / "intents.npz"
DEFAULT_THRESHOLD = 0.5
"""Confidence from which a text counts as a route's: more likely right than wrong."""
WORDS = 64
"""Words of a text that are looked up; intents are short."""
COSINES = 3.0
"""Nats that the cosines with a route's mean and nearest utterance count for beside the head's log
odds: the best of 2 to 8 by validation texts of CLINC150, Banking77 and HWU64, by 0.2 points."""
EXHAUSTIVE = 1_500
"""Up to so many utterances all are compared with the text, beyond only those of `BEST` routes."""
BEST = 6
MOST = 1.5
"""A logit of so many times what the routes' own utterances have says no more."""
FILLER = 0.2
"""What a function word weighs among the words that a route knows."""

_FILLERS = frozenset(
    " ".join(lexicon.CLASSES[name] for name in ("english", "foreign", "i", "you", "what", "polite"))
    .replace("+", "")
    .split()
)

_COSINES = np.float32(COSINES)


@dataclass(frozen=True, slots=True)
class Route:
    """An intent as configured; `threshold` is the confidence it takes, None the default."""

    name: str
    utterances: tuple[str, ...]
    threshold: float | None = None


@dataclass(frozen=True, slots=True)
class Match:
    """The route a text belongs to, None where it belongs to none; `confidence` is the best's."""

    name: str | None = None
    confidence: float = 0.0
    nearest: str | None = None


NO_MATCH = Match()


@dataclass(frozen=True, slots=True)
class Model:
    """What is learnt once for all routes: the whitening matrix and the confidence's weights."""

    whiten: Array
    weights: tuple[float, ...]


@functools.cache
def load() -> Model:
    """The model of the shipped artefact, loaded once a process."""
    with np.load(ARTEFACT) as stored:
        return Model(stored["whiten"].astype(np.float32), tuple(stored["weights"].tolist()))


def plain(text: str) -> str:
    """The text as exactness sees it: case, punctuation and spacing aside."""
    return " ".join(words_of(text.lower()))


class Intents:
    """Routes compiled over the static encoder."""

    def __init__(
        self, routes: Sequence[Route], encoder: StaticEncoder, model: Model | None = None
    ) -> None:
        self._routes = [route for route in routes if any(map(plain, route.utterances))]
        if not self._routes:
            return
        self._model = model or load()
        self._texts: list[str] = []
        self._exact: dict[str, tuple[int, str]] = {}
        self._known: list[frozenset[str]] = []
        starts, vectors = [], []
        for place, route in enumerate(self._routes):
            starts.append(len(self._texts))
            words: set[str] = set()
            for key, text in {plain(u): u for u in reversed(route.utterances)}.items():
                if key:
                    self._exact.setdefault(key, (place, text))
                    self._texts.append(text)
                    words.update(key.split())  # of the whole utterance, "please" and all
                    vectors.append(encoder.encode(core(text)).vector)
            self._known.append(frozenset(words))
        self._starts = np.array(starts)
        self._ends = np.array([*starts[1:], len(self._texts)])
        self._rows = _unit(np.stack(vectors) @ self._model.whiten)
        self._means = _unit(np.add.reduceat(self._rows, self._starts, axis=0))
        self._both = np.concatenate([self._means, self._rows])
        self._longest = max(map(len, self._exact))
        self._head = self._linear_head() if len(self._routes) > 1 else None

    def __bool__(self) -> bool:
        return bool(self._routes)

    def __repr__(self) -> str:
        count = len(self._texts) if self._routes else 0
        return f"<Intents {len(self._routes)} routes, {count} utterances>"

    def match(self, text: str, encoding: Encoding, words: Sequence[str] | None = None) -> Match:
        """The route of `text`; `encoding` is that of its core (see `features.core`), and `words`
        are all of its words, where they are known."""
        if not self._routes:
            return NO_MATCH
        if words is None:
            words = words_of(text.lower())
        if not words:
            return NO_MATCH
        exact = self._exact.get(" ".join(words)) if 2 * len(words) <= self._longest + 1 else None
        if exact is not None:
            return Match(self._routes[exact[0]].name, 1.0, exact[1])
        best, confidence, nearest = self._nearest(words[:WORDS], encoding)
        route = self._routes[best]
        needed = DEFAULT_THRESHOLD if route.threshold is None else route.threshold
        name = route.name if confidence >= needed else None
        return Match(name, confidence, self._texts[nearest] if name else None)

    def evidence(self, words: Sequence[str], encoding: Encoding) -> tuple[int, int, list[float]]:
        """(best route, its nearest utterance, the numbers that its confidence is made of)."""
        x = encoding.vector @ self._model.whiten
        norm = float(x @ x) ** 0.5
        if norm > 0.0:
            x = x / np.float32(norm)
        logits = self._head.logits(words, x) if self._head is not None else np.zeros(1, np.float32)
        count = len(self._routes)
        exhaustive = len(self._texts) <= EXHAUSTIVE
        cosines = (self._both if exhaustive else self._means) @ x
        means, near = cosines[:count], cosines[count:]
        score: Scores = logits + _COSINES * means
        if exhaustive:
            score = score + _COSINES * np.maximum.reduceat(near, self._starts)
            best = int(score.argmax())
            start = int(self._starts[best])
            nearest = start + int(near[start : self._ends[best]].argmax())
            top = float(near[nearest])
        else:
            best, nearest, top = self._among_best(x, score)
        mean = float(means[best])
        covered, content = self._covered(words, best)
        numbers = [top, mean, covered, math.log1p(content), top * covered]
        usual = 1.0 if self._head is None else float(logits[best]) / self._head.usual
        return best, nearest, [*numbers, min(usual, MOST)]

    def _nearest(self, words: Sequence[str], encoding: Encoding) -> tuple[int, float, int]:
        best, nearest, numbers = self.evidence(words, encoding)
        return best, confidence_of(numbers, self._model.weights), nearest

    def _among_best(self, x: Array, score: Scores) -> tuple[int, int, float]:
        """(best of the most promising routes, its nearest utterance, that one's cosine)."""
        count = min(BEST, len(score))
        found = []
        for place in np.sort(np.argpartition(score, -count)[-count:]).tolist():
            start, end = int(self._starts[place]), int(self._ends[place])
            near = self._rows[start:end] @ x
            at = int(near.argmax())
            total = float(score[place] + COSINES * near[at])
            found.append((total, place, start + at, float(near[at])))
        _, best, nearest, top = max(found)
        return best, nearest, top

    def _covered(self, words: Iterable[str], best: int) -> tuple[float, float]:
        """(the share of the words that the route knows, how many there are); fillers weigh less."""
        own = frozenset(words)
        total = _weight(own)
        return _weight(own & self._known[best]) / total, total

    def _linear_head(self) -> Head:
        words = [plain(text).split()[:WORDS] for text in self._texts]
        sizes = self._ends - self._starts
        return Head(words, self._rows, np.repeat(np.arange(len(sizes)), sizes).tolist())


def _weight(words: frozenset[str]) -> float:
    fillers = len(words & _FILLERS)
    return len(words) - fillers + FILLER * fillers


def _unit(rows: npt.NDArray[np.float32]) -> Array:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    out: Array = (rows / np.maximum(norms, 1e-9)).astype(np.float32)
    return out


def confidence_of(numbers: Sequence[float], weights: Sequence[float]) -> float:
    """The logistic function of the weighted numbers; the last weight is the constant."""
    total = weights[-1] + sum(w * x for w, x in zip(weights, numbers, strict=False))
    return 1 / (1 + math.exp(-min(max(total, -30.0), 30.0)))
