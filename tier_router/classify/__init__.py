"""What classification says of a turn, and the one seam behind which classifiers stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tier_router.request import Turn


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judgement of one human turn.

    `difficulty` is the calibrated probability (0..1) that the lightest tier is *not* enough: that
    a heavy model would answer rightly where a light one would not.  `intent` names the configured
    route that the turn belongs to, with `confidence` (0..1) and the `nearest` example utterance.
    `abstain` says why nothing could be judged ("empty", "language", ...); difficulty is then the
    prior and means nothing.  `continues` marks a turn that only makes sense with the one before
    it ("yes, do it"); `courtesy` one that asks for nothing ("thanks!").  `pending` says that a
    later call may know more of the same turn, so this verdict is not to be kept.
    """

    difficulty: float
    confidence: float = 1.0
    intent: str | None = None
    nearest: str | None = None
    abstain: str | None = None
    continues: bool = False
    courtesy: bool = False
    pending: bool = False


@dataclass(frozen=True, slots=True)
class Signal:
    """One reason behind a difficulty, for people: `weight` > 0 speaks for the heavy tier."""

    text: str
    weight: float


class Classifier(Protocol):
    """Judges turns.  Deterministic, bounded in time, raises nothing on any text."""

    @property
    def default_threshold(self) -> float:
        """The difficulty from which the next tier up is wanted, where the policy says nothing."""
        ...

    def reference_quantile(self, share: float) -> float:
        """The difficulty that `share` (0..1) of the reference traffic lies above."""
        ...

    def classify(self, turn: Turn) -> Verdict:
        """The verdict on `turn`."""
        ...

    def explain(self, turn: Turn) -> list[Signal]:
        """The signals behind `classify(turn).difficulty`, strongest first; may be slow."""
        ...
