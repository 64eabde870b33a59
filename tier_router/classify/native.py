"""The classifier that ships in the package: small talk, intents, difficulty; local and bounded.

What is empty, in a language without known words, or cannot be judged without reading what was
pasted is abstained from; routing sends that up.
"""

from __future__ import annotations

from collections.abc import Sequence

from tier_router.classify import Signal, Verdict, difficulty, talk
from tier_router.classify.features import GROUPS, Glance, glance
from tier_router.classify.intents import NO_MATCH, Intents, Match, Route
from tier_router.classify.words import spoken
from tier_router.encoder import Encoding
from tier_router.encoder import load as load_encoder
from tier_router.request import Turn

EASY = 0.01
"""The difficulty of a courtesy: the lowest that the calibration gives is about this."""
STRANGE = 0.5
"""Share of letters in unknown scripts from which the language counts as unknown."""
KNOWN_WORDS = 0.34
"""Share of words that are vocabulary below which a text without any known word says nothing."""
MATERIAL, MATERIAL_WORDS = 2_000, 8
"""A question of so few words about so many characters of pasted text or code is about the paste."""
BARE_MATERIAL, BARE_WORDS = 150, 3
"""Nearly no words ("why?", "help") leave even a short paste to be the question."""


class NativeClassifier:
    """Judges turns by the shipped model and the configured routes; safe to share among threads."""

    def __init__(self, routes: Sequence[Route] = ()) -> None:
        self._encoder = load_encoder()
        self._model = difficulty.load()
        self._intents = Intents(routes, self._encoder)

    def __repr__(self) -> str:
        return f"<NativeClassifier {self._intents!r}>"

    @property
    def model(self) -> difficulty.Difficulty:
        """The difficulty model by itself."""
        return self._model

    @property
    def default_threshold(self) -> float:
        """The difficulty that 1.25% of simple requests reach, each intent weighing the same."""
        return self._model.threshold

    def reference_quantile(self, share: float) -> float:
        """The difficulty that `share` (0..1) of a service mix of public data lies above."""
        return self._model.reference_quantile(share)

    def classify(self, turn: Turn) -> Verdict:
        """The verdict on `turn`."""
        nothing = _without_text(turn)
        if nothing is not None:
            return self._abstained(nothing) if nothing else self._prior()
        text = turn.text
        seen = glance(turn)
        encoding = self._encoder.of_words(seen.words)
        found = NO_MATCH
        if self._intents:
            found = self._intents.match(text, encoding, seen.words if seen.whole else None)
        alone = not (turn.code or turn.pasted or turn.media)
        if alone and len(seen.words) <= talk.LONGEST + 2:
            kind = talk.kind_of(text)
            if kind == "courtesy":
                return _verdict(EASY, found, courtesy=True)
            if kind == "continues":
                return _verdict(self._model.prior, found, continues=True)
        why = _unknown(seen, encoding) or _about_material(turn, seen)
        if why is not None and found.name is None:
            return self._abstained(why)
        return _verdict(self._model.of_row(self._model.row(seen, encoding)), found)

    def explain(self, turn: Turn) -> list[Signal]:
        """The signals behind `classify(turn).difficulty`, strongest first."""
        verdict = self.classify(turn)
        if verdict.abstain is not None:
            return [Signal(ABSTAINED[verdict.abstain], 1.0)]
        if verdict.courtesy:
            return [Signal("a greeting or thanks, asks for nothing", -1.0)]
        if verdict.continues:
            return [Signal("only makes sense with the turn before it", 0.0)]
        if not turn.text.strip():
            return [Signal("images or sound without words", 0.0)]
        seen = glance(turn)
        row = self._model.row(seen, self._encoder.of_words(seen.words))
        moved = self._model.trees.contributions(row)
        return spoken(self._model.names, row, moved.tolist(), GROUPS)

    def _abstained(self, why: str) -> Verdict:
        return Verdict(difficulty=self._model.prior, confidence=0.0, abstain=why)

    def _prior(self) -> Verdict:
        return Verdict(difficulty=self._model.prior, confidence=0.0)


ABSTAINED = {
    "empty": "there is nothing to judge",
    "material": "the question is about what was pasted, which is not read",
    "language": "a language without known words",
    "no_signal": "no known words",
}
"""What the codes of `Verdict.abstain` mean."""


def _verdict(
    level: float, found: Match, *, continues: bool = False, courtesy: bool = False
) -> Verdict:
    if found.name is None:
        return Verdict(level, continues=continues, courtesy=courtesy)
    return Verdict(
        level, found.confidence, found.name, found.nearest, continues=continues, courtesy=courtesy
    )


def _without_text(turn: Turn) -> str | None:
    """Why a turn without text cannot be judged, "" where only media speak, None where text does."""
    if turn.text and not turn.text.isspace():
        return None
    if turn.code or turn.pasted:
        return "material"
    return "" if turn.media else "empty"


def _unknown(seen: Glance, encoding: Encoding) -> str | None:
    """Why the words say nothing, None where they say something."""
    if seen.strange > STRANGE:
        return "language"
    if seen.cjk:
        return None if any(seen.classes) or seen.cjk > 5 else "no_signal"
    words = seen.words
    if not words or not seen.letters:
        formula = seen.value("formula") > 1.0
        return None if formula else "no_signal"
    strangers = seen.strangers
    if strangers > 1 and strangers * 5 >= len(words):
        ours = max(seen.count("english"), seen.count("foreign"))
        if strangers > ours:
            return "language"
    if any(seen.classes) or encoding.whole >= KNOWN_WORDS * encoding.words:
        return None
    return "language" if len(words) > 3 else "no_signal"


def _about_material(turn: Turn, seen: Glance) -> str | None:
    """ "material" where a few words ask about much that is not read.

    A plain errand ("summarize this", "fix the typo") is light whatever it is about.
    """
    size = turn.code + turn.pasted
    if size < BARE_MATERIAL:
        return None
    words = len(seen.words) + seen.cjk // 2
    if seen.count("rewrite") and not seen.count("design", "analyse", "proof"):
        return None
    if words <= BARE_WORDS or (words <= MATERIAL_WORDS and size >= MATERIAL):
        return "material"
    return None
