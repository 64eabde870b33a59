"""What the workers of one host have in flight, in memory that they share.

Each worker writes its own row and reads the others': no lock, no message, and no delay but that
between two looks.  A number is eight aligned bytes, which a processor writes in one piece.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterable, Mapping
from hashlib import blake2b

COLUMNS = 4_096
"""Replicas that have a place of their own."""

_FIELDS = 3
_ROW = COLUMNS * _FIELDS * 8


class Table:
    """The shared memory of `rows` workers: a file without a name, which children inherit as
    `fd`."""

    def __init__(self, rows: int, fd: int | None = None) -> None:
        if fd is None:
            with tempfile.TemporaryFile() as file:
                file.truncate(rows * _ROW)
                fd = os.dup(file.fileno())
        self.fd, self.rows = fd, rows
        self._memory = mmap.mmap(fd, rows * _ROW)
        self._cells = memoryview(self._memory).cast("d")

    @classmethod
    def of(cls, fd: int) -> Table:
        """The table that another process made."""
        return cls(os.fstat(fd).st_size // _ROW, fd)

    def row(self, number: int) -> Row:
        """The row of one worker, to write to; and the others, to read."""
        return Row(self._cells, number, self.rows)

    def clear(self, number: int) -> None:
        """Forgets what a worker that has died had in flight."""
        self._memory[number * _ROW : (number + 1) * _ROW] = bytes(_ROW)


class Row:
    """One worker's place in the table."""

    def __init__(self, cells: memoryview[float], number: int, rows: int) -> None:
        self._cells = cells
        size = COLUMNS * _FIELDS
        self._own = number * size
        self._others = [row * size for row in range(rows) if row != number]

    def columns(self, names: Iterable[str]) -> Mapping[str, int]:
        """A column for each replica; the same in each worker that has the same replicas.

        Raises ValueError where there are more than the table has columns.
        """
        taken: dict[int, str] = {}
        for name in sorted(names):
            if len(taken) == COLUMNS:
                raise ValueError(f"more than {COLUMNS} replicas")
            column = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big") % COLUMNS
            while column in taken:
                column = (column + 1) % COLUMNS
            taken[column] = name
        return {name: column for column, name in taken.items()}

    def tell(self, column: int, requests: int, tokens: float, resting_until: float) -> None:
        """Writes what this worker has in flight on one replica, and until when it lets it rest."""
        at, cells = self._own + column * _FIELDS, self._cells
        cells[at], cells[at + 1], cells[at + 2] = requests, tokens, resting_until

    def others(self, column: int) -> tuple[int, float, float]:
        """(requests, tokens, resting until) of the other workers; times are of the monotonic clock,
        which the processes of one host share."""
        cells, requests, tokens, resting = self._cells, 0.0, 0.0, 0.0
        for row in self._others:
            at = row + column * _FIELDS
            requests += cells[at]
            tokens += cells[at + 1]
            resting = max(resting, cells[at + 2])
        return int(requests), tokens, resting
