"""The log of a door whose configuration may change while it serves."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from tier_router.config.log import Log
from tier_router.decide import Decision
from tier_router.decisionlog.queued import Dropped
from tier_router.decisionlog.record import record_of
from tier_router.decisionlog.writer import CLOSING, DecisionLog
from tier_router.errors import ConfigError
from tier_router.request import View

Observer = Callable[[Decision | None, View, Mapping[str, Any]], None]
"""Takes a decision, the request and its fate, as `Logbook.note` does."""

log = logging.getLogger("tier_router")


class Logbook:
    """Writes records where the settings in force say; a log that cannot be opened costs no
    request."""

    def __init__(self, door: str, dropped: Dropped | None = None) -> None:
        """`dropped` is told of records that are lost."""
        self._door, self._tell = door, dropped
        self.observer: Observer | None = None
        """Is told of each request that has ended, logged or not."""
        self._settings: Log | None = None
        self._log: DecisionLog | None = None
        self._ending: list[DecisionLog] = []  # what others replaced, and may still write

    @property
    def dropped(self) -> int:
        """Records that the present log has lost."""
        return 0 if self._log is None else self._log.dropped

    def note(
        self, settings: Log | None, decision: Decision | None, view: View, **fate: Any
    ) -> None:
        """Writes down a request that has just ended; `fate` is what `record_of` takes, without
        time and door.  Nothing is written where `settings` are None."""
        if self.observer is not None:
            self.observer(decision, view, fate)
        self.adopt(settings)
        if self._log is None:
            return
        took = fate.get("latency") or 0.0
        self._log.write(
            record_of(
                decision,
                view,
                at=time.time() - took,
                door=self._door,
                salt=self._log.salt,
                prompts=self._log.prompts,
                **fate,
            )
        )

    def __reduce__(self) -> tuple[type[Logbook], tuple[str]]:
        """A copy opens the log for itself."""
        return Logbook, (self._door,)

    def adopt(self, settings: Log | None) -> None:
        """Writes as `settings` say from now on; waits for nothing that the old ones have begun."""
        if settings is not self._settings and settings != self._settings:
            self._open(settings)

    def close(self) -> None:
        """Writes what waits, for at most CLOSING seconds."""
        self._open(None)
        deadline = time.monotonic() + CLOSING
        for ending in self._ending:
            ending.close(max(0.0, deadline - time.monotonic()))
        self._ending = []

    def _open(self, settings: Log | None) -> None:
        old, self._log, self._settings = self._log, None, settings
        if old is not None:
            old.end()
            self._ending = [each for each in (*self._ending, old) if each.busy]
        if settings is not None:
            try:
                self._log = DecisionLog(settings, self._tell)
            except ConfigError as error:
                log.error("decisions are not logged: %s", error)
