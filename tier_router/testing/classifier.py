"""A classifier that says what it was told to say."""

from __future__ import annotations

from collections.abc import Mapping

from tier_router.classify import Signal, Verdict
from tier_router.request import Turn


class FixedClassifier:
    """The verdict of the first rule whose substring the turn contains, else `difficulty`.

    A rule's value is a `Verdict`, or a difficulty alone.  Case does not matter.
    """

    def __init__(
        self,
        difficulty: float = 0.1,
        rules: Mapping[str, Verdict | float] | None = None,
        *,
        default_threshold: float = 0.5,
    ) -> None:
        self._default = Verdict(difficulty)
        self._rules = tuple(
            (text.lower(), says if isinstance(says, Verdict) else Verdict(float(says)))
            for text, says in (rules or {}).items()
        )
        self._threshold = default_threshold

    @property
    def default_threshold(self) -> float:
        """The difficulty from which the next tier up is wanted."""
        return self._threshold

    def reference_quantile(self, share: float) -> float:
        """The difficulty that `share` of an even spread over 0..1 lies above."""
        return 1.0 - share

    def classify(self, turn: Turn) -> Verdict:
        """The verdict on `turn`."""
        return self._rule(turn)[1]

    def explain(self, turn: Turn) -> list[Signal]:
        """The one rule that was followed, or nothing where none fits."""
        text, verdict = self._rule(turn)
        return [Signal(f"contains {text!r}", verdict.difficulty - self._threshold)] if text else []

    def _rule(self, turn: Turn) -> tuple[str, Verdict]:
        text = turn.text.lower()
        for part, verdict in self._rules:
            if part in text:
                return part, verdict
        return "", self._default
