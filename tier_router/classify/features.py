"""Hand features of a turn: what a person sees at a glance, as numbers.

Nothing here looks at a model or at numpy.  The text of a turn is bounded, so is the cost.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from tier_router.classify import lexicon
from tier_router.classify.text import words_of
from tier_router.request import Turn

# Greetings before and thanks after a request say nothing of it.
_HEAD = re.compile(
    r"(?:(?:hi|hello|hey|dear|good (?:morning|afternoon|evening|day))"
    r"(?: (?:there|all|everyone|team|assistant|sir|madam))?[,.!\s]+)?"
    r"(?:i hope [^.!?\n]{0,60}[.!]\s+)?"
    r"(?:(?:i (?:have|need|got) (?:a|one|another|some) (?:quick )?(?:question|help)"
    r"(?: for you| with this)?|(?:can|could|would) you (?:please )?help me(?: out| with this)?)"
    r"[.:,!?]\s*)?"
    r"(?:please[,:]? )?",
    re.I,
)
_TAIL = re.compile(
    r"[\s.!,]*\b(?:thanks|thank you|many thanks|thx|cheers|please)"
    r"(?: (?:a lot|so much|very much|again|in advance|for your help))*[\s.!:)]*\Z",
    re.I,
)
_TAIL_CHARS = 60
_SPACES = re.compile(" {2,}")
_ENDINGS = " \n\t.?!:…。？！؟"
_OPTION = re.compile(r"\s*\(?[A-Ja-j1-9][.):]\s")
_LATEX = re.compile(r"\\[a-zA-Z]+|\$[^$\n]{1,80}\$")
_ORDINALS = ("st", "nd", "rd", "th")
FORMULA_MARKS = "=+^<>/*"
FORMULA_SIGNS = re.compile(r"[√∑∏∫≤≥≠≈∞∈∉⊂⊆∪∩∀∃∂∇×÷±→⇒⇔α-ωΓΔΘΛΣΦΨΩ²³]")
CODE_MARKS = ";{}`[]"
NAMES_OF_ONE = frozenset("bcfghjklnpqruvwxz")
"""One-letter words that are variables ; a, e, i, o, y are words, s and t ends of them."""
_DIGITS = b"0123456789"
_CJK = re.compile("|".join(sorted(map(re.escape, lexicon.packed_cjk()), key=len, reverse=True)))
_CJK_CHAR = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_LETTER = re.compile(r"[^\W\d_]")
# Letters of scripts that the word lists have no word of; Greek is left out, it is mathematics.
_STRANGE = re.compile(r"[\u0530-\u05ff\u0700-\u1cff\u2c00-\u2dff\ua4d0-\ua83f\ua980-\uabff]")
_OTHER = re.compile(r"[\u0400-\u052f\u0600-\u06ff]")

_PACKED = lexicon.packed()
_PACKED_CJK = lexicon.packed_cjk()
_PACKED_STEMS = lexicon.packed_stems()
_STEM = re.compile(
    "(?:وال|بال|كال|فال|لل|ال|و|ب|ل)?("
    + "|".join(sorted(_PACKED_STEMS, key=lambda stem: (-len(stem), stem)))
    + ")"
)
"""A word's beginning, in Arabic after the article and what is written together with it."""
_PHRASES = tuple(lexicon.packed_phrases().items())
_BITS = lexicon.FIELD_BITS
_MASK = (1 << _BITS) - 1
_SHIFTS = tuple(place * _BITS for place in range(len(lexicon.NAMES)))
_PLACE = {name: place for place, name in enumerate(lexicon.NAMES)}
SHAPE = (
    "words", "chars", "word_length", "long_words", "variety", "sentences", "lines", "longest_line",
    "questions", "commas", "colons", "quotes", "parens", "numbers", "digit_share",
    "formula", "formula_share", "code_marks", "ordinals", "blanks", "options", "code_block",
    "pasted", "media", "foreign_text", "cjk",
)  # fmt: skip
GROUPS: dict[str, tuple[str, ...]] = {
    "tasks": ("proof", "analyse", "design", "compute", "plan"),
    "fields": (
        "math", "physics", "chemistry", "medicine", "law", "economy", "computing",
    ),
    "everyday": ("greet", "thanks", "errand", "account", "status", "rewrite", "i", "you", "polite"),
}  # fmt: skip
"""Classes that are also counted together, so that what is learnt of one holds for its like."""
NAMES = SHAPE + lexicon.NAMES + tuple(GROUPS) + tuple(f"{name}_share" for name in GROUPS)
"""Names of the numbers that `features` gives, in order."""

_GROUPS = [[_PLACE[name] for name in names] for names in GROUPS.values()]


@dataclass(frozen=True, slots=True)
class Glance:
    """What was seen of a turn: the features and what abstaining needs besides.

    `text` is the turn's without greetings before and thanks after it.
    `words` are the words in lower case; `letters` counts letters, `strange` the share of them in
    scripts without any known word; `foreign` says that the text is not English; `classes` counts
    the words of each class of the lexicon.
    """

    text: str
    values: list[float]
    words: list[str]
    letters: int
    strange: float
    foreign: bool
    cjk: int
    classes: list[int]

    def count(self, *names: str) -> int:
        """How many words of these classes the turn has."""
        return sum([self.classes[_PLACE[name]] for name in names])

    def value(self, name: str) -> float:
        """One feature by its name."""
        return self.values[NAMES.index(name)]


def glance(turn: Turn) -> Glance:
    """The features of a turn and what else its text shows.

    Upper case is not looked at: people who type in haste ask hard things, too.
    """
    text = _bare(core(turn.text))
    plain = text.isascii()
    lower = text.lower()
    words = words_of(lower)
    total = sum(filter(None, map(_PACKED.get, words)))
    total += sum([packed for phrase, packed in _PHRASES if phrase in lower])
    letters, strange, cjk, other = (-1, 0.0, 0, 0) if plain else _scripts(text)
    if cjk:
        total += sum(map(_PACKED_CJK.__getitem__, _CJK.findall(lower)))
    classes = [(total >> shift) & _MASK for shift in _SHIFTS]
    foreign = bool(cjk or other) or _is_foreign(classes, plain)
    if (foreign and not cjk) or (not plain and not any(classes)):
        total += _by_stems(words)
        classes = [(total >> shift) & _MASK for shift in _SHIFTS]
        foreign = foreign or _is_foreign(classes, plain)
    values = _shape(turn, text, words, cjk, plain)
    if letters < 0:
        letters = len(text) - text.count(" ")  # near enough: only its being small matters
    values += (float(foreign), math.log1p(cjk))
    values += map(math.sqrt, classes)
    sums = [sum([classes[place] for place in places]) for places in _GROUPS]
    values += map(math.sqrt, sums)
    many = max(len(words) + cjk // 2, 1)
    values += [min(found / many, 1.0) for found in sums]
    return Glance(text, values, words, letters, strange, foreign, cjk, classes)


def core(text: str) -> str:
    """`text` without a greeting before and thanks after it, where something is left."""
    start = _HEAD.match(text)
    rest = text[start.end() :] if start else text
    end = rest[-_TAIL_CHARS:].lower()
    found = None
    if "thank" in end or "please" in end or "thx" in end or "cheers" in end:
        found = _TAIL.search(rest, max(len(rest) - _TAIL_CHARS, 0))
    if found:
        mark = "?" if "?" in found[0] else ""
        rest = rest[: found.start()] + mark
    return rest if len(rest) > 8 or not rest.isascii() else text


def _bare(text: str) -> str:
    """`text` without marks at its end and with single spaces: haste and layout mean nothing."""
    if "  " in text:
        text = _SPACES.sub(" ", text)
    return text.rstrip(_ENDINGS) or text


def _by_stems(words: list[str]) -> int:
    """The classes of words that no list has but whose beginning one has, packed."""
    return sum([_by_stem(word) for word in words if word not in _PACKED])


@lru_cache(maxsize=16_384)
def _by_stem(word: str) -> int:
    found = _STEM.match(word)
    return _PACKED_STEMS[found[1]] if found else 0


def _is_foreign(classes: list[int], plain: bool) -> bool:
    foreign, english = classes[_PLACE["foreign"]], classes[_PLACE["english"]]
    if foreign > english:
        return foreign > 1 or not plain or english == 0
    return 0 < foreign == english and not plain


def _scripts(text: str) -> tuple[int, float, int, int]:
    """(letters, share in unknown scripts, CJK letters, Cyrillic and Arabic letters).

    A few letters of another script, a quoted word, do not make a text of it: they count as none.
    """
    letters = len(_LETTER.findall(text))
    cjk, other = len(_CJK_CHAR.findall(text)), len(_OTHER.findall(text))
    strange = len(_STRANGE.findall(text)) / max(letters, 1)
    few = letters / 4
    return letters, strange, cjk if cjk > few else 0, other if other > few else 0


def _shape(turn: Turn, text: str, words: list[str], cjk: int, plain: bool) -> list[float]:
    """The numbers that need no word list, but for the last two of `SHAPE`."""
    count = text.count
    chars = len(text) or 1
    sizes = [*map(len, words)]
    known = len(words) or 1
    many = len(words) + cjk * 2 // 3  # a CJK word has about 1.5 letters
    most = many or 1
    lines = text.split("\n")
    raw = text.encode("ascii", "ignore")
    digits = len(raw) - len(raw.translate(None, _DIGITS))
    numbers = [word for word in words if word < ":"] if digits else []
    formula = _formula(text, words, sizes, plain)
    ends = count(". ") + count("? ") + count("! ") + count(".\n") + count("?\n")
    asked = count("?")
    if not plain:
        asked += count("？") + count("؟")
        ends += count("。") + count("？")
    return [
        math.log1p(many),
        math.log1p(len(text)),
        sum(sizes) / known,
        sum([size > 8 for size in sizes]) / most,
        len(set(words)) / known,
        math.log1p(ends),
        math.log1p(len(lines)),
        math.log1p(max(map(len, lines))),
        float(min(asked, 3)),
        math.log1p(count(",")),
        float(min(count(":"), 4)),
        float(min(count('"') + count("“"), 4)),
        math.log1p(count("(")),
        math.log1p(len(numbers)),
        digits / chars,
        math.log1p(formula),
        formula / most,
        math.log1p(_code(count)),
        float(min(sum([number.endswith(_ORDINALS) for number in numbers]), 2)),
        float("___" in text or "..." in text),
        float(min(sum(map(bool, map(_OPTION.match, lines))), 10) if len(lines) > 1 else 0),
        math.log1p(turn.code),
        math.log1p(turn.pasted),
        float(min(turn.media, 3)),
    ]


def _formula(text: str, words: list[str], sizes: list[int], plain: bool) -> int:
    """How much of the text looks like mathematics: signs, LaTeX, one-letter names."""
    found = sum(map(text.count, FORMULA_MARKS))
    if not plain:
        found += len(FORMULA_SIGNS.findall(text))
    if "\\" in text or "$" in text:
        found += len(_LATEX.findall(text))
    if 1 in sizes:
        found += sum(map(NAMES_OF_ONE.__contains__, words))
    return found


def _code(count: Callable[[str], int]) -> int:
    """How much of the text looks like program code."""
    found = sum(map(count, CODE_MARKS))
    found += count("()") + 2 * count("def ")
    return found + count("==") + count("=>") + count("!=")
