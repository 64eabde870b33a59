"""Static text vectors: a table of word pieces, read from the package, no network.

A text's vector is the sum of its words' pieces' rows; marks are left out.  Each word's sum is kept
in a bounded table, so a text of known words costs dictionary look-ups, one `take` and one sum.

One thread at a time adds to the word table; another that meets a new word meanwhile computes it
for itself and moves on.  Nobody waits for the lock, so a fork that copies it while it is held can
cost the child time but neither a wrong vector nor a hang.
"""

from __future__ import annotations

import functools
import os
import threading
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tier_router.classify.text import words_of

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # no thread pool that a fork would lose

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

Array = npt.NDArray[np.float32]

TABLE = Path(__file__).with_name("data") / "encoder.npz"
WORDS = 16_384
"""Words kept beside the vocabulary's own: 17 MB of float32 at 256 columns, taken as they come;
names, compounds and typing errors of a team's English stay below it."""
WORD_CHARS = 64
"""Longer words are cut: base64 and URLs, of which the head says enough."""
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
        self._tokenizer = _tokenizer(self._ids)
        self._plainly = {w: i for w, i in self._ids.items() if w.isascii() and w.isalnum()}
        self._cap = words
        self._lock = threading.Lock()
        counts = [self._counts(word, [index]) for word, index in self._ids.items()]
        self._memory = self._empty(rows, np.array(counts, np.float32))
        self._base: Array = self._memory[1][: len(rows)]  # never written to again

    def _empty(self, rows: Array, counts: Array) -> tuple[dict[str, int], Array]:
        """{word: row} of the vocabulary's own words, and all its rows with room for more.

        The columns are the vector, then (words, tokens, unknown, whole, rare)."""
        memory = np.zeros((len(rows) + self._cap, self.dim + 5), np.float32)
        memory[: len(rows), : self.dim] = rows
        memory[: len(rows), self.dim :] = counts
        return dict(self._plainly), memory

    def _again(self) -> tuple[dict[str, int], Array]:
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
        known, memory = self._memory
        places = [*map(known.get, words, repeat(NEW))]
        if NEW in places:
            rows = self._with_new(words, places, memory)
        else:
            rows = memory.take(places, axis=0)
        total: Array = rows.sum(axis=0)
        return total

    def _with_new(self, words: list[str], places: list[int], memory: Array) -> Array:
        """One row a word, in order: a text's sum is the same to the last bit, known or not."""
        rows: Array = memory.take(places, axis=0)  # a new word: the last row, for now
        at = [index for index, place in enumerate(places) if place == NEW]
        rows[at] = self._learn([words[index] for index in at])
        return rows

    def _learn(self, words: list[str]) -> Array:
        """The rows of words that were not in the table; puts them there."""
        rows = self._rows_of(words)
        if self._lock.acquire(blocking=False):  # else another thread writes: learn it next time
            try:
                known, memory = self._memory
                for word, row in zip(words, rows, strict=True):
                    if len(word) > WORD_CHARS or word in known:
                        continue
                    learned = len(known) - len(self._plainly)
                    if learned >= self._cap:
                        self._memory = known, memory = self._again()
                        learned = 0
                    place = len(self._base) + learned
                    memory[place] = row
                    known[word] = place  # last: a reader finds complete rows only
            finally:
                self._lock.release()
        return rows

    def _rows_of(self, words: list[str]) -> Array:
        """The row of each word, whether it is in the table or not."""
        cut = [word[:WORD_CHARS] for word in words]
        clean = [w if w.isascii() else w.encode("utf-8", "replace").decode() for w in cut]
        out = np.zeros((len(words), self.dim + 5), np.float32)
        for row, word, ids in zip(out, clean, self._pieces(clean), strict=True):
            if ids:
                pieces = self._base.take(ids, axis=0)[:, : self.dim]
                np.add.reduce(pieces, axis=0, out=row[: self.dim])
            row[self.dim :] = self._counts(word, ids)
        return out

    def _pieces(self, words: list[str]) -> list[list[int]]:
        """The word pieces of each word; the tokenizer is asked for what needs normalising."""
        pieces = [self._ascii_pieces(word) if word.isascii() else [] for word in words]
        asked = [index for index, word in enumerate(words) if not word.isascii()]
        if asked:
            split = self._tokenizer.encode_batch_fast(
                [words[index] for index in asked], add_special_tokens=False
            )
            for index, encoded in zip(asked, split, strict=True):
                pieces[index] = encoded.ids
        return pieces

    def _ascii_pieces(self, word: str) -> list[int]:
        """WordPiece for letters and digits: each time the longest entry that fits (Wu et al. 2016).

        What the tokenizer gives, without its price for each call: the few words of one request.
        """
        whole = self._ids.get(word)
        if whole is not None:
            return [whole]
        out: list[int] = []
        start, size = 0, len(word)
        while start < size:
            mark = "##" if start else ""
            for end in range(size, start, -1):
                piece = self._ids.get(mark + word[start:end])
                if piece is not None:
                    break
            else:
                return [self._unknown]
            out.append(piece)
            start = end
        return out

    def _counts(self, word: str, ids: list[int]) -> tuple[int, int, int, int, int]:
        rank = self._ids.get(word)
        rare = word.isalpha() and (rank is None or rank >= RARE)
        return 1, len(ids), ids.count(self._unknown), rank is not None, rare


def _tokenizer(ids: dict[str, int]) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(vocab=ids, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


@functools.cache
def load() -> StaticEncoder:
    """The encoder over the shipped table, loaded once a process."""
    return StaticEncoder()
