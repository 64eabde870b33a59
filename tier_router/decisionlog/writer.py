"""The log that a configuration describes: each of its sinks, behind a queue of its own."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from tier_router.config.log import Log
from tier_router.decisionlog.file import File, salt_beside
from tier_router.decisionlog.queued import Dropped, Queued
from tier_router.decisionlog.record import Record
from tier_router.decisionlog.sink import Sink
from tier_router.errors import ConfigError

CLOSING = 5.0
"""Seconds for which a door that closes waits for its log."""


class DecisionLog:
    """Writes records wherever `settings` say; safe to call from any thread, and after a fork.

    Raises ConfigError where the file's folder cannot be written to, or an extra is missing; a
    Redis or a collector that is away is waited for.
    """

    def __init__(self, settings: Log, dropped: Dropped | None = None) -> None:
        self.prompts = settings.prompts
        sinks = list(_sinks(settings))  # all of them, before the first thread begins
        self.salt = _salt(settings)
        self._queues = [Queued(sink, dropped) for sink in sinks]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def dropped(self) -> int:
        """Records that a sink has lost, each counted for each sink."""
        return sum(queue.dropped for queue in self._queues)

    def write(self, record: Record) -> None:
        """Takes `record` over; returns at once."""
        for queue in self._queues:
            queue.write(record)

    @property
    def busy(self) -> bool:
        """Whether something of it still writes, or may."""
        return any(queue.busy for queue in self._queues)

    def end(self) -> None:
        """Lets what waits be written, and returns at once; later records begin anew."""
        for queue in self._queues:
            queue.end()

    def close(self, timeout: float = CLOSING) -> None:
        """Ends, and waits for that for at most `timeout` seconds."""
        deadline = time.monotonic() + timeout
        self.end()
        for queue in self._queues:
            queue.join(max(0.0, deadline - time.monotonic()))


def _sinks(settings: Log) -> Iterator[Sink]:
    if settings.path is not None:
        try:
            yield File(Path(settings.path), settings.rotate)
        except OSError as error:
            raise _unwritable(settings.path, error) from None
    if settings.redis is not None:
        try:
            from tier_router.decisionlog.stream import Stream
        except ImportError:
            raise _missing("redis", "a Redis stream") from None
        yield Stream(settings.redis)
    if settings.otel is not None and settings.otel.endpoint:
        try:
            from tier_router.decisionlog.otlp import Otlp
        except ImportError:
            raise _missing("otel", "a collector") from None
        yield Otlp(settings.otel)


def _salt(settings: Log) -> bytes:
    if settings.salt is not None:
        return settings.salt.get_secret_value().encode()
    if settings.path is None:
        return os.urandom(32)
    try:
        return salt_beside(Path(settings.path))
    except OSError as error:
        raise _unwritable(settings.path, error) from None


def _unwritable(path: str, error: OSError) -> ConfigError:
    return ConfigError(f"cannot write {error.filename or path}: {error.strerror}", key="log.path")


def _missing(extra: str, what: str) -> ConfigError:
    return ConfigError(
        f"{what} needs an extra: pip install 'tier-router[{extra}]'", key=f"log.{extra}"
    )
