"""Notices that a peer hung up although nobody reads from it.

A connection that is not read from looks alive to asyncio whatever its peer does. Linux' epoll can
report the hang-up by itself, and an epoll descriptor can be watched by any loop, so one of them
covers all paused connections of a server. Elsewhere nothing is noticed until reading goes on.
"""

from __future__ import annotations

import asyncio
import select
import sys
from collections.abc import Callable


class HangUps:
    """Calls back, once each, for watched descriptors whose peer has closed its side."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._watched: dict[int, Callable[[], None]] = {}
        self._epoll: select.epoll | None = None

    def __repr__(self) -> str:
        return f"<HangUps {len(self._watched)} watched>"

    def watch(self, fd: int, callback: Callable[[], None]) -> None:
        """Call back when the peer of `fd` hangs up; forget it before it is closed."""
        if sys.platform != "linux":
            return
        if self._epoll is None:
            self._epoll = select.epoll()
            self._loop.add_reader(self._epoll.fileno(), self._ready)
        self.forget(fd)
        # Errors and full hang-ups are always reported; EPOLLRDHUP adds the peer's FIN.
        self._epoll.register(fd, select.EPOLLRDHUP | select.EPOLLONESHOT)
        self._watched[fd] = callback

    def forget(self, fd: int) -> None:
        """Watch `fd` no longer."""
        if self._watched.pop(fd, None) is not None and self._epoll is not None:
            try:
                self._epoll.unregister(fd)
            except OSError:
                pass  # closed already, which takes it out as well

    def close(self) -> None:
        """Watch nothing any more."""
        self._watched.clear()
        if self._epoll is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None

    def _ready(self) -> None:
        if self._epoll is None:
            return
        for fd, _ in self._epoll.poll(0):
            callback = self._watched.get(fd)
            self.forget(fd)
            if callback is not None:
                callback()
