"""A classifier whose difficulties are corrected by labels of the operator's own traffic."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

from tier_router.classify import Classifier, Signal, Verdict
from tier_router.request import Turn


class Corrected:
    """`inner`, with each difficulty put through a rising, piecewise linear map.

    The default threshold stays the same number: it is a probability, and these are better ones.
    """

    def __init__(self, inner: Classifier, points: Sequence[tuple[float, float]]) -> None:
        self._inner = inner
        self._x = [x for x, _ in points]
        self._y = [y for _, y in points]

    @property
    def default_threshold(self) -> float:
        """The difficulty from which the next tier up is wanted, where the policy says nothing."""
        return self._inner.default_threshold

    def reference_quantile(self, share: float) -> float:
        """The corrected difficulty that `share` (0..1) of the reference traffic lies above."""
        return self.corrected(self._inner.reference_quantile(share))

    def classify(self, turn: Turn) -> Verdict:
        """The inner verdict on `turn` with its difficulty corrected."""
        verdict = self._inner.classify(turn)
        if verdict.abstain is not None:
            return verdict
        return replace(verdict, difficulty=self.corrected(verdict.difficulty))

    async def ahead(self, turns: Sequence[Turn]) -> None:
        """Returns when the inner classifier need not wait for anybody to judge `turns`."""
        wait = getattr(self._inner, "ahead", None)
        if wait is not None:
            await wait(turns)

    def explain(self, turn: Turn) -> list[Signal]:
        """The inner signals: a correction moves all difficulties alike."""
        return self._inner.explain(turn)

    def corrected(self, difficulty: float) -> float:
        """The map at `difficulty`."""
        place = bisect_right(self._x, difficulty)
        if place == 0:
            return self._y[0]
        if place == len(self._x):
            return self._y[-1]
        low, high = self._x[place - 1], self._x[place]
        share = (difficulty - low) / (high - low)
        return self._y[place - 1] + share * (self._y[place] - self._y[place - 1])
