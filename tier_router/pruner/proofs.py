"""What audits have proven, kept in a file so that a restart does not begin anew.

Several processes may share the file: each adds what it has counted since its last visit, under a
lock, and takes over what the others did.  Counts belong to a step's settings; under other settings
the same step has proven nothing yet, and what it had proven before stays in the file.
"""

from __future__ import annotations

import fcntl
import os
from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import msgspec

from tier_router.config.pruning import LOSSY, Pruning, Step
from tier_router.errors import ConfigError
from tier_router.prune.audit import Audit, Audits, Count

VERSION = 1
ROWS = 16_384
"""Rows that a file may have; the oldest settings' rows go first."""


class Row(msgspec.Struct, frozen=True):
    """Counts of one group under one step's settings, of which `of` is the digest."""

    of: str
    step: str
    tier: str
    intent: str
    tool: str
    audits: int
    lost: int
    saved: int


class Book(msgspec.Struct, frozen=True):
    """The file.  `ranks` are by tier and place how often a called tool stood there."""

    v: int
    rows: list[Row]
    ranks: dict[str, dict[str, int]] = {}


class Proofs:
    """The audits so far.  Not safe to use from several threads at once."""

    def __init__(self, config: Pruning) -> None:
        """Reads the file that `config` names.  Raises ConfigError where it is none of ours."""
        self._path = None if config.proofs is None else Path(config.proofs)
        self._digests = {step.value: digest(config, step) for step in LOSSY}
        self._fresh = Audits()
        self.changed = False
        """Whether there is something that the file does not have."""
        self.audits = self._of(self._read())

    def add(self, audit: Audit) -> None:
        """Counts one audit."""
        self.audits.add(audit)
        if self._path is not None:
            self._fresh.add(audit)
            self.changed = True

    def save(self) -> None:
        """Adds what is new to the file, in one step.  Raises OSError, and keeps it, where that
        cannot be done."""
        if self._path is None or not self.changed:
            return
        lock = os.open(f"{self._path}.lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            book = _sum(self._read(), self._rows(), self._fresh)
            draft = self._path.with_name(f"{self._path.name}.{os.getpid()}")
            draft.write_bytes(msgspec.json.format(msgspec.json.encode(book), indent=1))
            draft.replace(self._path)
        finally:
            os.close(lock)
        self._fresh, self.changed = Audits(), False
        self.audits = self._of(book)

    def _rows(self) -> Iterator[Row]:
        for (step, tier, intent, tool), count in self._fresh.groups():
            of = self._digests.get(step, "")
            yield Row(of, step, tier, intent, tool, count.audits, count.lost, count.saved)

    def _read(self) -> Book:
        if self._path is None or not self._path.exists():
            return Book(VERSION, [])
        try:
            book = msgspec.json.decode(self._path.read_bytes(), type=Book)
        except (msgspec.DecodeError, OSError) as error:
            raise ConfigError(f"{self._path}: {error}", key="pruning.proofs") from None
        if book.v != VERSION:
            raise ConfigError(
                f"{self._path}: version {book.v}; this is {VERSION}", key="pruning.proofs"
            )
        return book

    def _of(self, book: Book) -> Audits:
        """The audits under the present settings."""
        audits = Audits()
        for row in book.rows:
            if row.of == self._digests.get(row.step):
                count = Count(row.audits, row.lost, row.saved)
                audits.count(row.step, row.tier, row.intent, row.tool, count)
        for tier, places in book.ranks.items():
            for place, times in places.items():
                audits.rank(tier, int(place), times)
        return audits


def digest(config: Pruning, step: Step) -> str:
    """What tells a step's settings from others; its mode is not one of them."""
    settings = config.steps.of(step).model_dump(mode="json", exclude={"mode"})
    return blake2b(msgspec.json.encode(settings, order="sorted"), digest_size=8).hexdigest()


def _sum(book: Book, more: Iterator[Row], fresh: Audits) -> Book:
    """`book` with the rows in `more`, which come last, and the ranks of `fresh` added."""
    rows = {_key(row): row for row in book.rows}
    for row in more:
        old = rows.pop(_key(row), None)
        if old is not None:
            row = Row(*_key(row), old.audits + row.audits, old.lost + row.lost,
                      old.saved + row.saved)  # fmt: skip
        rows[_key(row)] = row
    kept = list(rows.values())[-ROWS:]
    ranks = {tier: Counter(places) for tier, places in book.ranks.items()}
    for tier, seen in fresh.ranks.items():
        own = Counter(str(place) for place in seen.elements())
        ranks[tier] = ranks.get(tier, Counter()) + own
    return Book(VERSION, kept, {tier: dict(places) for tier, places in ranks.items()})


def _key(row: Row) -> tuple[str, str, str, str, str]:
    return row.of, row.step, row.tier, row.intent, row.tool
