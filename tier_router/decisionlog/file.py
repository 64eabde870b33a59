"""A log file: appended to by several processes, put aside when it is full."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tier_router.config.log import Rotate
from tier_router.decisionlog.record import Record
from tier_router.decisionlog.sink import Lost


class File:
    """One JSON line for each record; each batch is one append, so that the lines of several
    processes do not mix."""

    name = "file"
    linger = 0.0

    def __init__(self, path: Path, rotate: Rotate) -> None:
        """Raises OSError where it cannot be opened."""
        self._path, self._rotate = path, rotate
        self._encoder = msgspec.json.Encoder()
        self._file: int | None = None
        self._pid: int | None = None
        os.close(self._open())

    def write(self, records: Sequence[Record]) -> None:
        """Appends them; raises Lost."""
        data = b"".join(self._encoder.encode(record) + b"\n" for record in records)
        try:
            file = self._current()
            written = os.write(file, data)
            if written < len(data):  # a full disk: the rest would be half a line
                os.write(file, b"\n")
                raise OSError(28, os.strerror(28), str(self._path))
        except OSError as error:
            raise Lost(str(error)) from None

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _current(self) -> int:
        """The file to append to: begun anew where it is too large or was put aside, and by each
        process."""
        if self._pid != os.getpid():
            self._pid, self._file = os.getpid(), None
        if self._file is None:
            self._file = self._open()
        own = os.fstat(self._file)
        if own.st_size >= self._rotate.bytes:
            self._put_aside()
        if not _is(self._path, own):
            os.close(self._file)
            self._file = None
            self._file = self._open()
        return self._file

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        return os.open(self._path, flags, 0o640)

    def _put_aside(self) -> None:
        """Renames the file, unless another process has done it meanwhile."""
        lock = os.open(f"{self._path}.lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self._path.stat().st_size < self._rotate.bytes:
                return
            keep = self._rotate.keep
            if not keep:
                self._path.unlink()
                return
            for number in range(keep - 1, 0, -1):
                old = Path(f"{self._path}.{number}")
                if old.exists():
                    old.replace(f"{self._path}.{number + 1}")
            self._path.replace(f"{self._path}.1")
        except FileNotFoundError:
            return
        finally:
            os.close(lock)


def _is(path: Path, own: os.stat_result) -> bool:
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    return (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)


def salt_beside(path: Path) -> bytes:
    """The secret in `PATH.salt`, made where there is none; of several makers the first wins.
    Raises OSError."""
    path = path.with_name(f"{path.name}.salt")
    if not path.exists():
        made = path.with_name(f"{path.name}.{os.getpid()}")
        file = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.write(file, os.urandom(32))
        os.close(file)
        try:
            os.link(made, path)  # whole or not at all
        except FileExistsError:
            pass
        finally:
            made.unlink()
    return path.read_bytes()
