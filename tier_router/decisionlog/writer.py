"""Writes records to a file from a thread of its own, so that no request waits for a disk."""

from __future__ import annotations

import atexit
import fcntl
import logging
import os
import queue
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from tier_router.config.log import Log
from tier_router.decisionlog.record import Record
from tier_router.errors import ConfigError

log = logging.getLogger("tier_router")

WAITING = 8_192
"""Records that may wait for the disk; further ones are dropped and counted.  About 8 MB."""

BATCH = 512
"""Records of one write."""

COMPLAIN = 60.0
"""Seconds between two complaints of the log about its own file."""


class DecisionLog:
    """The log that `settings` describe; safe to call from any thread, and after a fork.

    Each batch is one append, so that the lines of several processes do not mix.
    Raises ConfigError where the folder cannot be written to.
    """

    def __init__(self, settings: Log) -> None:
        self.prompts = settings.prompts
        self.dropped = 0
        """Records that came too fast for the disk, or that it refused."""
        self._path = Path(settings.path)
        self._rotate = settings.rotate
        try:
            self.salt = _salt(self._path.with_name(f"{self._path.name}.salt"))
            os.close(self._open())
        except OSError as error:
            raise ConfigError(
                f"cannot write {error.filename or self._path}: {error.strerror}", key="log.path"
            ) from None
        self._encoder = msgspec.json.Encoder()
        self._file: int | None = None
        self._complained = 0.0
        self._lock = threading.Lock()
        self._pid: int | None = None
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def write(self, record: Record) -> None:
        """Takes `record` over; returns at once."""
        if self._pid != os.getpid():
            self._start()
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            self.dropped += 1

    def close(self, timeout: float = 5.0) -> None:
        """Writes what waits, for at most `timeout` seconds; later records begin anew."""
        with self._lock:
            if self._pid != os.getpid():
                return
            self._pid = None
        atexit.unregister(self.close)
        deadline = time.monotonic() + timeout
        try:
            self._queue.put(None, timeout=timeout)
        except queue.Full:
            return
        self._thread.join(max(0.0, deadline - time.monotonic()))

    def _start(self) -> None:
        """Begins the thread, once in each process."""
        with self._lock:
            if self._pid == os.getpid():
                return
            self._queue: queue.Queue[Record | None] = queue.Queue(WAITING)
            self._thread = threading.Thread(
                target=self._run, args=(self._queue,), name="decision-log", daemon=True
            )
            self._file = None
            self._pid = os.getpid()
            self._thread.start()
            atexit.register(self.close)  # a script may end right after its last answer

    # ---- the thread

    def _run(self, waiting: queue.Queue[Record | None]) -> None:
        going = True
        while going:
            batch = [waiting.get()]
            while len(batch) < BATCH and batch[-1] is not None:
                try:
                    batch.append(waiting.get_nowait())
                except queue.Empty:
                    break
            records = [record for record in batch if record is not None]
            going = len(records) == len(batch)
            if records:
                self._append(records)
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _append(self, records: list[Record]) -> None:
        data = b"".join(self._encoder.encode(record) + b"\n" for record in records)
        try:
            file = self._current()
            written = os.write(file, data)
            if written < len(data):  # a full disk: the rest would be half a line
                os.write(file, b"\n")
                raise OSError(28, os.strerror(28), str(self._path))
        except OSError as error:
            self.dropped += len(records)
            self._complain(error)

    def _current(self) -> int:
        """The file to append to: begun anew where it is too large or was put aside."""
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

    def _complain(self, error: OSError) -> None:
        now = time.monotonic()
        if not self._complained or now - self._complained >= COMPLAIN:
            self._complained = now
            log.error("the decision log loses records (%d so far): %s", self.dropped, error)


def _is(path: Path, own: os.stat_result) -> bool:
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    return (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)


def _salt(path: Path) -> bytes:
    """The installation's secret, made where there is none; of several makers the first wins."""
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
