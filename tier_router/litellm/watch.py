"""Notices requests whose task was cancelled: of those LiteLLM tells nothing more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from tier_router.litellm.visits import Visit


class Watch:
    """Which task waits for which requests.  One that ends otherwise than by being cancelled says
    nothing: its stream may still be read, and LiteLLM tells of the end."""

    def __init__(self, abandoned: Callable[[Visit], None]) -> None:
        self._abandoned = abandoned
        self._waiting: WeakKeyDictionary[asyncio.Task[Any], set[Visit]] = WeakKeyDictionary()

    def on(self, visit: Visit) -> None:
        """The present task, where there is one, waits for `visit`."""
        try:
            task = asyncio.current_task()
        except RuntimeError:  # a synchronous call
            return
        if task is None:
            return
        visits = self._waiting.get(task)
        if visits is None:
            self._waiting[task] = visits = set()
            task.add_done_callback(self._done)
        visits.add(visit)
        visit.watched.append(visits)

    def off(self, visit: Visit) -> None:
        """Nobody waits for `visit` any more."""
        for visits in visit.watched:
            visits.discard(visit)
        visit.watched.clear()

    def _done(self, task: asyncio.Task[Any]) -> None:
        visits = self._waiting.pop(task, None)
        if visits and task.cancelled():
            for visit in tuple(visits):
                self._abandoned(visit)
