"""Static text vectors: a table of word pieces, read from the package, no network.

A text's vector is the sum of its words' pieces' rows; marks are left out.  Each word's sum is kept
in a bounded table, so a text of known words costs dictionary look-ups, one `take` and one sum.

One thread at a time adds to the word table; another that meets a new word meanwhile computes it
for itself and moves on.  Nobody waits for the lock, so a fork that copies it while it is held can
cost the child time but neither a wrong vector nor a hang.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import normalizers

from tier_router.classify.text import words_of

Array = npt.NDArray[np.float32]
Table = tuple[dict[str, int], Array]
"""The place of each word, and a row for each place."""

TABLE = Path(__file__).with_name("data") / "encoder.npz"
WORDS = 16_384
"""Words kept beside the vocabulary's own: 17 MB of float32 at 256 columns, taken as they come;
names, compounds and typing errors of a team's English stay below it."""
WORD_CHARS = 64
"""Longer words are cut: base64 and URLs, of which the head says enough."""
PREFIX = 3
"""Characters that tell which lengths a piece can have at a place of a word."""
SHORT = (2, 1)
"""The lengths below that."""
_NORMALIZER = normalizers.BertNormalizer(lowercase=True)
NEW = -1
"""The place of a word that is not in the table."""
HEAD, TAIL = 140, 60
"""Words that a vector is made of: what a text is about shows in its first and last sentences."""
RARE = 8_000
"""Vocabulary entries from this rank on count as rare (BERT sorts its vocabulary by frequency)."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """The vector of a text, and how much of the text the vector knows.

    `vector` is normalised, or all zeros where nothing was known.  `tokens` counts word pieces,
    `unknown` those without a row, `whole` the words that are entries of the vocabulary by
    themselves and `rare` the words that are rare entries or none.
    """

    vector: Array
    words: int
    tokens: int
    unknown: int
    whole: int
    rare: int

    @property
    def known(self) -> float:
        """The share of word pieces that have a row, 0 for a text without any."""
        return (self.tokens - self.unknown) / self.tokens if self.tokens else 0.0


class StaticEncoder:
    """Turns texts into vectors; `load` gives the shared one."""

    def __init__(self, path: Path = TABLE, words: int = WORDS) -> None:
        with np.load(path) as stored:
            vocab = stored["vocab"].tobytes().decode().split("\n")
            rows = stored["table"].astype(np.float32) * stored["scale"][:, None]
        self.dim = int(rows.shape[1])
        self._ids = {token: index for index, token in enumerate(vocab)}
        self._unknown = self._ids["[UNK]"]
        self._inner = {t[2:]: i for t, i in self._ids.items() if t.startswith("##") and len(t) > 2}
        self._sizes, self._inner_sizes = _sizes(self._ids), _sizes(self._inner)
        self._plainly = {w: i for w, i in self._ids.items() if w.isascii() and w.isalnum()}
        self._cap = words
        self._lock = threading.Lock()
        counts = [self._counts(word, [index]) for word, index in self._ids.items()]
        self._memory = self._empty(rows, np.array(counts, np.float32))
        self._base: Array = self._memory[1][: len(rows)]  # never written to again

    def _empty(self, rows: Array, counts: Array) -> Table:
        """{word: row} of the vocabulary's own words, and all its rows with room for more.

        The columns are the vector, then (words, tokens, unknown, whole, rare)."""
        memory = np.zeros((len(rows) + self._cap, self.dim + 5), np.float32)
        memory[: len(rows), : self.dim] = rows
        memory[: len(rows), self.dim :] = counts
        return dict(self._plainly), memory

    def _again(self) -> Table:
        """An empty table; who still reads keeps the old one."""
        return self._empty(self._base[:, : self.dim], self._base[:, self.dim :])

    def __repr__(self) -> str:
        learned = len(self._memory[0]) - len(self._plainly)
        return f"<StaticEncoder {len(self._ids)} pieces x {self.dim}, {learned} words>"

    def encode(self, text: str) -> Encoding:
        """The encoding of `text`, whatever it holds."""
        return self.of_words(words_of(text.lower()))

    def of_words(self, words: list[str]) -> Encoding:
        """The encoding of a text's words in lower case; of many, the first and the last."""
        if len(words) > HEAD + TAIL:
            words = words[:HEAD] + words[-TAIL:]
        total = self._sum(words)
        vector = total[: self.dim]
        norm = float(vector @ vector) ** 0.5
        if norm > 0.0:
            vector = vector / np.float32(norm)
        return Encoding(vector, *map(int, total[self.dim :].tolist()))

    def vocabulary(self) -> list[str]:
        """The word pieces, the frequent ones first after single characters."""
        return [*self._ids]

    def matrix(self, texts: list[str]) -> Array:
        """The normalised vectors of many texts, one a row."""
        if not texts:
            return np.zeros((0, self.dim), np.float32)
        return np.stack([self.encode(text).vector for text in texts])

    def _sum(self, words: list[str]) -> Array:
        if not words:
            return np.zeros(self.dim + 5, np.float32)
        table = self._memory
        places = [*map(table[0].get, words, repeat(NEW))]
        if NEW in places:
            rows = self._with_new(words, places, table)
        else:
            rows = table[1].take(places, axis=0)
        total: Array = np.add.reduce(rows, axis=0)
        return total

    def _with_new(self, words: list[str], places: list[int], table: Table) -> Array:
        """One row a word, in order: a text's sum is the same to the last bit, known or not."""
        at = _places_of(NEW, places)
        self._learn([words[index] for index in at])
        known, memory = now = self._memory
        if now is table:
            for index in at:
                places[index] = known.get(words[index], NEW)
        else:  # started over
            places = [*map(known.get, words, repeat(NEW))]
        rows: Array = memory.take(places, axis=0)
        at = _places_of(NEW, places)
        if at:  # not to be learned: the last row, for now
            rows[at] = self._rows_of([words[index] for index in at])
        return rows

    def _learn(self, new: list[str]) -> None:
        """Puts words that were not in the table there; does nothing while another thread does."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            known, memory = self._memory
            words = [w for w in dict.fromkeys(new) if len(w) <= WORD_CHARS and w not in known]
            learned = len(known) - len(self._plainly)
            if learned + len(words) > self._cap:
                self._memory = known, memory = self._again()
                learned, words = 0, words[: self._cap]
            first = len(self._base) + learned
            last = first + len(words)
            self._fill(memory[first:last], words)
            known.update(zip(words, range(first, last), strict=True))  # readers find whole rows
        finally:
            self._lock.release()

    def _rows_of(self, words: list[str]) -> Array:
        """The row of each word, whether it is in the table or not."""
        rows = np.zeros((len(words), self.dim + 5), np.float32)
        self._fill(rows, words)
        return rows

    def _fill(self, rows: Array, words: list[str]) -> None:
        """Writes the row of each word over zeros."""
        cut = [word[:WORD_CHARS] for word in words]
        clean = [w if w.isascii() else w.encode("utf-8", "replace").decode() for w in cut]
        split = [*map(self._pieces, clean)]
        pieces = self._base.take([*chain.from_iterable(split)], axis=0)
        start = 0
        for row, ids in zip(rows, split, strict=True):
            if ids:
                np.add.reduce(pieces[start : start + len(ids)], axis=0, out=row)
                start += len(ids)
        if words:
            rows[:, self.dim :] = [*map(self._counts, clean, split)]

    def _pieces(self, word: str) -> list[int]:
        """The word pieces of a word, as BERT normalises it: without accents, CJK apart."""
        if word.isascii():
            return self._plain_pieces(word)
        parts = _NORMALIZER.normalize_str(word).split()
        return [*chain.from_iterable(map(self._plain_pieces, parts))]

    def _plain_pieces(self, word: str) -> list[int]:
        """WordPiece: each time the longest entry that fits (Wu et al. 2016).

        What a tokenizer gives, without its price for each call: the few new words of one request.
        """
        out: list[int] = []
        pieces, sizes = self._ids, self._sizes
        start, end = 0, len(word)
        while start < end:
            for size in sizes.get(word[start : start + PREFIX], SHORT):
                piece = pieces.get(word[start : start + size])
                if piece is not None:
                    break
            else:
                return [self._unknown]
            out.append(piece)
            start += size
            pieces, sizes = self._inner, self._inner_sizes
        return out

    def _counts(self, word: str, ids: list[int]) -> tuple[int, int, int, int, int]:
        rank = self._ids.get(word)
        rare = word.isalpha() and (rank is None or rank >= RARE)
        return 1, len(ids), ids.count(self._unknown), rank is not None, rare


def _places_of(value: int, values: list[int]) -> list[int]:
    """Where `value`, of which there are few, stands."""
    out: list[int] = []
    place = -1
    for _ in range(values.count(value)):
        place = values.index(value, place + 1)
        out.append(place)
    return out


def _sizes(pieces: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """{first `PREFIX` characters: the lengths, falling, that pieces beginning with them have}."""
    out: dict[str, set[int]] = {}
    for piece in pieces:
        out.setdefault(piece[:PREFIX], set(SHORT)).add(len(piece))
    return {start: tuple(sorted(sizes, reverse=True)) for start, sizes in out.items()}


@functools.cache
def load() -> StaticEncoder:
    """The encoder over the shipped table, loaded once a process."""
    return StaticEncoder()
