"""The log of a door whose configuration may change while it serves."""

from __future__ import annotations

import logging
import time
from typing import Any

from tier_router.config.log import Log
from tier_router.decide import Decision
from tier_router.decisionlog.record import record_of
from tier_router.decisionlog.writer import DecisionLog
from tier_router.errors import ConfigError
from tier_router.request import View

log = logging.getLogger("tier_router")


class Logbook:
    """Writes records where the settings in force say; a log that cannot be opened costs no
    request."""

    def __init__(self, door: str) -> None:
        self._door = door
        self._settings: Log | None = None
        self._log: DecisionLog | None = None

    @property
    def dropped(self) -> int:
        """Records that the present log has lost."""
        return 0 if self._log is None else self._log.dropped

    def note(
        self, settings: Log | None, decision: Decision | None, view: View, **fate: Any
    ) -> None:
        """Writes down a request that has just ended; `fate` is what `record_of` takes, without
        time and door.  Does nothing where `settings` are None."""
        if settings != self._settings:
            self._open(settings)
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
        """A copy opens the file for itself."""
        return Logbook, (self._door,)

    def close(self) -> None:
        """Writes what waits."""
        self._open(None)

    def _open(self, settings: Log | None) -> None:
        old, self._log, self._settings = self._log, None, settings
        if old is not None:
            old.close()
        if settings is not None:
            try:
                self._log = DecisionLog(settings)
            except ConfigError as error:
                log.error("decisions are not logged: %s", error)
