"""Features in words that a person understands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tier_router.classify import Signal

SMALLEST = 0.004
"""Moves of the predicted gain below this are not worth a word."""

# Feature name to what it says where it is present.
PRESENT: Mapping[str, str] = {
    "proof": "asks for a proof or a derivation",
    "analyse": "asks to analyse, compare or justify",
    "design": "asks to design, build or debug a system",
    "compute": "asks to compute or solve something",
    "plan": "asks for a plan under constraints",
    "explain": "asks for an explanation",
    "write": "asks to write something",
    "rewrite": "asks to rework a text",
    "greet": "a greeting",
    "thanks": "thanks or praise",
    "polite": "polite words",
    "errand": "words of everyday errands",
    "account": "words of accounts and payments",
    "status": "asks for a simple fact or a status",
    "i": "speaks of oneself",
    "you": "speaks to the assistant",
    "what": "a what-question",
    "how": "a how-question",
    "math": "mathematical terms",
    "physics": "physics terms",
    "chemistry": "chemistry terms",
    "medicine": "medical terms",
    "law": "legal terms",
    "economy": "economic terms",
    "society": "terms of history, philosophy or politics",
    "computing": "computer science terms",
    "coding": "programming words",
    "condition": "conditions (if, suppose, given)",
    "quantifier": "all, none, at least, exactly",
    "negation": "negations",
    "order": "comparisons and quantities",
    "number": "number words",
    "time": "spans of time",
    "numbers": "numbers",
    "digit_share": "numbers",
    "formula": "formulas or variables",
    "formula_share": "formulas or variables",
    "code_marks": "looks like code",
    "ordinals": "asks for the n-th of something",
    "options": "a list of options to choose from",
    "blanks": "a gap to fill",
    "code_block": "comes with code",
    "pasted": "comes with pasted material",
    "media": "comes with images or sound",
    "quotes": "quotes",
    "parens": "parentheses",
    "colons": "colons",
    "questions": "question marks",
    "english": "plain English words",
    "foreign": "words of another language",
    "foreign_text": "not in English",
    "cjk": "Chinese, Japanese or Korean",
}
_ABSENT: Mapping[str, str] = {
    "fields_share": "no terms of a specialist field",
    "fields": "no terms of a specialist field",
    "tasks_share": "does not ask for reasoning",
    "tasks": "does not ask for reasoning",
    "numbers": "no numbers",
    "digit_share": "no numbers",
    "formula": "no formulas",
    "formula_share": "no formulas",
    "i": "does not speak of oneself",
}
_SIZE = frozenset({"words", "chars", "lines", "longest_line", "sentences", "commas"})
_STYLE = frozenset({"word_length", "long_words", "variety", "rare_share", "whole_share"})
_TOPICS: Mapping[str, str] = {
    "about_math": "mathematics",
    "about_science": "science or engineering",
    "about_life": "medicine or biology",
    "about_law": "law",
    "about_economy": "business or economics",
    "about_society": "history, society or philosophy",
    "about_computing": "programming",
    "about_trivia": "general knowledge",
    "about_stories": "stories and situations",
    "about_errands": "everyday errands",
    "about_banking": "banking",
    "about_smalltalk": "small talk",
    "about_office": "office and support tasks",
}
_VOCABULARY = ("plain vocabulary", "unusual vocabulary")
_EVERYDAY = ("no everyday words", "few everyday words", "mostly everyday words")
EVERYDAY = 0.2
"""Share of everyday words from which they are called most: the rest is "the", "of", names."""
SHORT, LONG = 12, 60
"""Words up to which a text is short, and from which it is long."""
TOPIC = 0.2
"""A topic's score, of 1 for a text of it, from which a text counts as near it."""


def spoken(
    names: Sequence[str],
    row: Sequence[float],
    moved: Sequence[float],
    groups: Mapping[str, Sequence[str]],
) -> list[Signal]:
    """One signal for each thing that moved the difficulty; like ones are summed.

    `groups` names the features that another one, or its `_share`, counts together.
    """
    values = dict(zip(names, row, strict=True))
    found: dict[str, float] = {}
    for name, move in zip(names, moved, strict=True):
        text = _text(name, values, groups)
        if text is not None:
            found[text] = found.get(text, 0.0) + move
    kept = [
        Signal(_VOCABULARY[move > 0] if text == "vocabulary" else text, round(move, 4))
        for text, move in found.items()
        if abs(move) >= SMALLEST
    ]
    return sorted(kept, key=lambda signal: (-abs(signal.weight), signal.text))


def _text(
    name: str, values: Mapping[str, float], groups: Mapping[str, Sequence[str]]
) -> str | None:
    if name in _SIZE:
        return _size(values)
    if name in _STYLE:
        return "vocabulary"
    if name in _TOPICS:
        return f"near {_TOPICS[name]}" if values[name] >= TOPIC else None
    if name in ("everyday", "everyday_share"):
        share = values["everyday_share"]
        return _EVERYDAY[(share > 0) + (share >= EVERYDAY)]
    if values[name] <= 0:
        return _ABSENT.get(name)
    group = name.removesuffix("_share")
    if group in ("tasks", "fields"):
        name = max(groups[group], key=values.__getitem__)  # says which: "medical terms"
    return PRESENT.get(name)


def _size(values: Mapping[str, float]) -> str:
    words = 2.718281828459045 ** values["words"] - 1
    if words > LONG:
        return "a long text"
    if words > SHORT:
        return "a text of some sentences" if values["sentences"] > 0.7 else "a longer question"
    return "a short everyday question" if values["everyday_share"] >= EVERYDAY else "a short text"
