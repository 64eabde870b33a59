"""One request to an upstream while it runs, and how it can fail."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING, Protocol

from tier_router_proxy.http.messages import Head

if TYPE_CHECKING:
    from tier_router_proxy.http.links import Link


class Reason(StrEnum):
    """Why an upstream gave no complete answer; fit for a metric's label."""

    # Refused, unreachable, or its name was not found.
    CONNECT = "connect"
    CONNECT_TIMEOUT = "connect_timeout"
    # The deadline that `Call.expect` set has passed.
    TIMEOUT = "timeout"
    # The connection ended before the answer did.
    CLOSED = "closed"
    # Not HTTP, or not to be trusted.
    BAD_ANSWER = "bad_answer"


@dataclass(frozen=True, slots=True)
class UpstreamFailure:
    """What went wrong; `started` tells that at least one byte of an answer had come."""

    reason: Reason
    message: str
    started: bool


class Listener(Protocol):
    """Hears the answer: a head, data, and exactly one of end and failure; nothing after `abort`."""

    def on_head(self, head: Head) -> None:
        """The head of the final answer has come."""

    def on_data(self, data: bytes) -> None:
        """Body bytes, framed as the upstream sent them."""

    def on_end(self) -> None:
        """The answer is complete."""

    def on_failure(self, failure: UpstreamFailure) -> None:
        """There will be no (complete) answer."""


class Call:
    """One request to an upstream; made by `Pool.send`."""

    __slots__ = (
        "_paused",
        "_seconds",
        "bodiless",
        "connecting",
        "link",
        "listener",
        "message",
        "reused",
    )

    def __init__(self, message: bytes | list[bytes], bodiless: bool, listener: Listener) -> None:
        # Kept until the first answer byte, for a second attempt on a fresh connection.
        self.message = message
        self.bodiless = bodiless
        self.listener = listener
        # The connection that works for this call; None once it is over.
        self.link: Link | None = None
        self.connecting: asyncio.Task[None] | None = None
        # The request went out on a connection that had served before.
        self.reused = False
        self._paused = False
        self._seconds = 0.0

    def __repr__(self) -> str:
        state = "over" if self.link is None else "paused" if self._paused else "running"
        return f"<Call {state}{', reused' if self.reused else ''}>"

    @property
    def paused(self) -> bool:
        """Whether the answer is not being read at the moment."""
        return self._paused

    def abort(self) -> None:
        """Cut the upstream off at once; the listener hears nothing more."""
        link = self.link
        if link is not None:
            self.over()
            link.cut()

    def pause(self) -> None:
        """Read no more of the answer for now; the deadline waits as well."""
        link = self.link
        if link is not None and not self._paused:
            self._paused = True
            link.timer.clear()
            link.pause()

    def resume(self) -> None:
        """Read on, with the whole of the deadline's time ahead again."""
        link = self.link
        if link is not None and self._paused:
            self._paused = False
            self._arm(link)
            link.resume()

    def expect(self, seconds: float) -> None:
        """(Re)arm the one deadline, after which the call fails with TIMEOUT; 0 or inf clears it.

        Only the upstream's silence counts: while paused, the deadline does not run.
        """
        link = self.link
        if link is None:
            return
        self._seconds = seconds
        if not self._paused:
            self._arm(link)

    def work_on(self, link: Link) -> None:
        """Use this connection, and take the deadline along to it."""
        old = self.link
        self.link = link
        link.call = self
        if old is not None and old.timer.due != inf:
            link.timer.set(old.timer.left)

    def over(self) -> None:
        """Let go of everything: no callback is due any more."""
        link, self.link = self.link, None
        if link is not None:
            link.call = None
            link.timer.clear()
            link.pool.active -= 1
        connecting, self.connecting = self.connecting, None
        if connecting is not None:
            connecting.cancel()
        self.message = b""

    def _arm(self, link: Link) -> None:
        if 0 < self._seconds < inf:
            link.timer.set(self._seconds)
        else:
            link.timer.clear()
