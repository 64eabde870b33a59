"""Hand features of a turn: what a person sees at a glance, as numbers.

Nothing here looks at a model or at numpy.  The text of a turn is bounded, so is the cost.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import log1p, sqrt
from typing import NamedTuple

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
FORMULA_MARKS = b"=+^<>/*"
FORMULA_SIGNS = re.compile(r"[√∑∏∫≤≥≠≈∞∈∉⊂⊆∪∩∀∃∂∇×÷±→⇒⇔α-ωΓΔΘΛΣΦΨΩ²³]+")
CODE_MARKS = b";{}`[]"
NAMES_OF_ONE = frozenset("bcfghjklnpqruvwxz")
"""One-letter words that are variables ; a, e, i, o, y are words, s and t ends of them."""
_LETTERS = string.ascii_letters.encode()
_DIGITS = string.digits.encode()


@dataclass(frozen=True, slots=True)
class Script:
    """A set of letters: a run of them, and the blocks of 256 characters that it has all of or
    only a part of."""

    run: re.Pattern[str]
    whole: bytes
    part: bytes

    @classmethod
    def of(cls, *ranges: tuple[int, int]) -> Script:
        """The script of ranges of code points below 65,536, their last one included."""
        members = {code for first, last in ranges for code in range(first, last + 1)}
        sizes = Counter(code >> 8 for code in members)
        return cls(
            re.compile("[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges) + "]+"),
            bytes(block for block, size in sizes.items() if size == 256),
            bytes(block for block, size in sizes.items() if size < 256),
        )

    def count(self, text: str, blocks: bytes) -> int:
        """How many letters of `text` it has; `blocks` is the block of each character."""
        if len(blocks.translate(None, self.part)) < len(blocks):
            return _total(self.run.findall(text))
        return len(blocks) - len(blocks.translate(None, self.whole))


_CJK_LETTERS = Script.of((0x3040, 0x30FF), (0x3400, 0x9FFF), (0xAC00, 0xD7AF))
# Scripts that the word lists have no word of; Greek is left out, it is mathematics.
_STRANGE = Script.of(
    (0x0530, 0x05FF), (0x0700, 0x1CFF), (0x2C00, 0x2DFF), (0xA4D0, 0xA83F), (0xA980, 0xABFF)
)
_OTHER = Script.of((0x0400, 0x052F), (0x0600, 0x06FF))

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

_FEATURE = {name: place for place, name in enumerate(NAMES)}
_COUNTED = (*lexicon.NAMES, *GROUPS, "variable", "stranger")
"""What words are counted by."""
_ENGLISH, _FOREIGN = _PLACE["english"], _PLACE["foreign"]
_MEMBERS = len(lexicon.NAMES) + len(GROUPS)

Places = tuple[int, ...]
"""What a word or phrase counts as, by its places in `_COUNTED`."""


_GROUPS = [
    (place, {_PLACE[name] for name in names})
    for place, names in enumerate(GROUPS.values(), len(lexicon.NAMES))
]


def _places(packed: Mapping[str, int]) -> dict[str, Places]:
    """The places of each text's classes and of the groups that these are in."""
    out = {}
    for text, bits in packed.items():
        own = [p for p in _PLACE.values() if bits >> p * lexicon.FIELD_BITS & 1]
        out[text] = (*own, *(group for group, of in _GROUPS for _ in of.intersection(own)))
    return out


_WORDS = _places(lexicon.packed())
_CJK_TEXTS = _places(lexicon.packed_cjk())
_CJK = re.compile("|".join(sorted(map(re.escape, _CJK_TEXTS), key=len, reverse=True)))
_STEMS = _places(lexicon.packed_stems())
_STEM = re.compile(
    "(?:وال|بال|كال|فال|لل|ال|و|ب|ل)?("
    + "|".join(sorted(_STEMS, key=lambda stem: (-len(stem), stem)))
    + ")"
)
"""A word's beginning, in Arabic after the article and what is written together with it."""
_PHRASES = _places(lexicon.packed_phrases())
_MARKED = {text: places for text, places in _PHRASES.items() if not {*text}.isdisjoint("-+#/")}
_PLAIN = {text: places for text, places in _PHRASES.items() if text not in _MARKED}


def _kinds() -> tuple[dict[str, int], list[Places]]:
    """({word: its kind}, the places of each kind): words that count alike, as one byte.

    A text is then a string of bytes, and counting them is quick; other words have no kind.
    """
    kinds: dict[Places, int] = {(): 0}
    of: dict[str, int] = {}
    for word in sorted({*_WORDS, *NAMES_OF_ONE, *lexicon.STRANGERS}):
        variable = (_COUNTED.index("variable"),) * (word in NAMES_OF_ONE)
        stranger = (_COUNTED.index("stranger"),) * (word in lexicon.STRANGERS)
        of[word] = kinds.setdefault(_WORDS.get(word, ()) + variable + stranger, len(kinds))
    return of, [*kinds]


_KIND, _PLACES = _kinds()


@dataclass(frozen=True, slots=True)
class Glance:
    """What was seen of a turn: the features and what abstaining needs besides.

    `text` is the turn's without greetings before and thanks after it; `whole` says that there
    were none.
    `words` are the words in lower case; `letters` counts letters, `strange` the share of them in
    scripts without any known word; `foreign` says that the text is not English; `classes` counts
    the words of each class of the lexicon and then of `GROUPS`, `strangers` those of
    `lexicon.STRANGERS`.
    """

    text: str
    whole: bool
    values: list[float]
    words: list[str]
    letters: int
    strange: float
    foreign: bool
    cjk: int
    classes: list[int]
    strangers: int

    def count(self, *names: str) -> int:
        """How many words of these classes the turn has."""
        return sum([self.classes[_PLACE[name]] for name in names])

    def value(self, name: str) -> float:
        """One feature by its name."""
        return self.values[_FEATURE[name]]


def glance(turn: Turn) -> Glance:
    """The features of a turn and what else its text shows.

    Upper case is not looked at: people who type in haste ask hard things, too.
    """
    inner = core(turn.text)
    text = _bare(inner)
    plain = text.isascii()
    lower = text.lower()
    words = words_of(lower)
    marks = _marks(text)
    counts = _counts(lower, words, marks.found)
    # of a plain text the letters are near enough: only their being few matters
    letters, strange, cjk, other = (
        (len(text) - marks.spaces, 0.0, 0, 0) if plain else _scripts(text, words)
    )
    if cjk:
        _add(counts, map(_CJK_TEXTS.__getitem__, _CJK.findall(lower)))
    foreign = bool(cjk or other) or _is_foreign(counts, plain)
    if (foreign and not cjk) or (not plain and not any(counts[:_MEMBERS])):
        _add(counts, [_by_stem(word) for word in words if word not in _WORDS])
        foreign = foreign or _is_foreign(counts, plain)
    strangers, variables = counts.pop(), counts.pop()
    values = _shape(turn, text, words, cjk, marks, variables)
    values += (float(foreign), log1p(cjk))
    values += map(sqrt, counts)
    many = max(len(words) + cjk // 2, 1)
    values += [min(found / many, 1.0) for found in counts[-len(GROUPS) :]]
    whole = len(inner) == len(turn.text)
    return Glance(text, whole, values, words, letters, strange, foreign, cjk, counts, strangers)


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


def _counts(lower: str, words: list[str], marks: bytes) -> list[int]:
    """How many words and phrases there are of each of `_COUNTED`."""
    out = [0] * len(_COUNTED)
    kinds = bytes(filter(None, map(_KIND.get, words)))
    for kind in set(kinds):
        count = kinds.count(kind)
        for place in _PLACES[kind]:
            out[place] += count
    found = [places for phrase, places in _PLAIN.items() if phrase in lower]
    if b"-" in marks or b"+" in marks or b"#" in marks or b"/" in marks:
        found += [places for phrase, places in _MARKED.items() if phrase in lower]
    if found:
        _add(out, found)
    return out


def _add(counts: list[int], found: Iterable[Places]) -> None:
    for places in found:
        for place in places:
            counts[place] += 1


@lru_cache(maxsize=16_384)
def _by_stem(word: str) -> Places:
    found = _STEM.match(word)
    return _STEMS[found[1]] if found else ()


def _is_foreign(counts: list[int], plain: bool) -> bool:
    foreign, english = counts[_FOREIGN], counts[_ENGLISH]
    if foreign > english:
        return foreign > 1 or not plain or english == 0
    return 0 < foreign == english and not plain


def _scripts(text: str, words: list[str]) -> tuple[int, float, int, int]:
    """(letters, share in unknown scripts, CJK letters, Cyrillic and Arabic letters).

    A few letters of another script, a quoted word, do not make a text of it: they count as none.
    """
    digits = sum([sum(map(str.isdecimal, word)) for word in words if not word.isalpha()])
    letters = _total(words) - digits
    blocks = text.encode("utf-16-le", "surrogatepass")[1::2]
    cjk, other = _CJK_LETTERS.count(text, blocks), _OTHER.count(text, blocks)
    strange = _STRANGE.count(text, blocks) / max(letters, 1)
    few = letters / 4
    return letters, strange, cjk if cjk > few else 0, other if other > few else 0


def _total(runs: list[str]) -> int:
    return sum(map(len, runs))


class Marks(NamedTuple):
    """The ASCII of a text by kind: letters, digits, spaces, and the marks `found`, in order."""

    found: bytes
    letters: int
    digits: int
    spaces: int


def _marks(text: str) -> Marks:
    raw = text.encode("ascii", "ignore")
    rest = raw.translate(None, _LETTERS)
    spaced = rest.translate(None, _DIGITS)
    found = spaced.translate(None, b" ")
    return Marks(found, len(raw) - len(rest), len(rest) - len(spaced), len(spaced) - len(found))


def _shape(
    turn: Turn, text: str, words: list[str], cjk: int, marks: Marks, variables: int
) -> list[float]:
    """The numbers that need no word list, but for the last two of `SHAPE`."""
    plain = text.isascii()
    count, found = text.count, marks.found
    chars = len(text) or 1
    known = len(words) or 1
    many = len(words) + cjk * 2 // 3  # a CJK word has about 1.5 letters
    most = many or 1
    lines = text.split("\n")
    sizes = marks.letters + marks.digits if plain else _total(words)
    numbers = [word for word in words if word < ":"] if marks.digits else []
    formula = variables + _formula(text, found)
    asked = found.count(b"?")
    ends = _ends(count, found)
    if not plain:
        formula += _total(FORMULA_SIGNS.findall(text))
        asked += count("？") + count("؟")
        ends += count("。") + count("？")
    return [
        log1p(many),
        log1p(len(text)),
        sizes / known,
        len([word for word in words if len(word) > 8]) / most,
        len(set(words)) / known,
        log1p(ends),
        log1p(len(lines)),
        log1p(max(map(len, lines))),
        float(min(asked, 3)),
        log1p(found.count(b",")),
        float(min(found.count(b":"), 4)),
        float(min(found.count(b'"') + (0 if plain else count("“")), 4)),
        log1p(found.count(b"(")),
        log1p(len(numbers)),
        marks.digits / chars,
        log1p(formula),
        formula / most,
        log1p(_code(count, found)),
        float(min(sum([number.endswith(_ORDINALS) for number in numbers]), 2)),
        float((b"___" in found and "___" in text) or (b"..." in found and "..." in text)),
        float(min(sum(map(bool, map(_OPTION.match, lines))), 10) if len(lines) > 1 else 0),
        log1p(turn.code),
        log1p(turn.pasted),
        float(min(turn.media, 3)),
    ]


def _ends(count: Callable[[str], int], marks: bytes) -> int:
    """How many sentences end before the last."""
    ends = count(". ") + count(".\n") if b"." in marks else 0
    if b"?" in marks:
        ends += count("? ") + count("?\n")
    return ends + count("! ") if b"!" in marks else ends


def _formula(text: str, marks: bytes) -> int:
    """How much of the text looks like mathematics by its ASCII: signs and LaTeX."""
    found = len(marks) - len(marks.translate(None, FORMULA_MARKS))
    if b"\\" in marks or b"$" in marks:
        found += len(_LATEX.findall(text))
    return found


def _code(count: Callable[[str], int], marks: bytes) -> int:
    """How much of the text looks like program code."""
    found = len(marks) - len(marks.translate(None, CODE_MARKS)) + 2 * count("def ")
    if b"()" in marks:
        found += count("()")
    if b"=" in marks:
        found += count("==") + count("=>") + count("!=")
    return found
