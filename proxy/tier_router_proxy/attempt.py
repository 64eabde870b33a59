"""One replica's answer, held back until it is known to be worth passing on.

That is at the first `data:` of a stream, since vLLM sends its 200 before the request has even been
queued; until then a replica that fails can be replaced and the client notices nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

from tier_router.decide import Decision
from tier_router.dispatch import Failure, failure_of_answer, failure_of_event
from tier_router.ledger import Outcome
from tier_router_proxy.http.framing import FramingError, Walker
from tier_router_proxy.http.messages import Head
from tier_router_proxy.http.upstream import Call, Reason, UpstreamFailure

HELD_BYTES = 64 * 1024
"""How much of an answer is held back while it is not clear what it is; vLLM's errors have less
than 1 KB."""

MAYBE_FAILED = frozenset({404, 429, 500, 502, 503, 504})
"""Statuses whose body tells whether another replica should be tried."""

_FIRST_DATA = re.compile(rb"^data: ?([^\r\n]*)[\r\n]", re.M)


class Owner(Protocol):
    """Whoever sent the request; hears `began` and then the rest of the answer, or `lost`."""

    def first_token(self, attempt: Attempt) -> None:
        """A stream's first `data:` has come; `began` follows."""

    def began(self, attempt: Attempt, head: Head, pieces: list[bytes]) -> None:
        """The answer is worth passing on; `pieces` are the raw bytes that have come."""

    def passed(self, data: bytes) -> None:
        """More raw bytes of the answer that began."""

    def ended(self) -> None:
        """The answer that began is complete."""

    def broke(self, message: str) -> None:
        """The answer that began will not be complete."""

    def lost(self, attempt: Attempt, failure: Failure) -> None:
        """There is no answer that a client should see."""


class Attempt:
    """A request on its way to one replica; the `Listener` of its upstream call."""

    __slots__ = ("_began", "_head", "_held", "_held_bytes", "_owner", "_sink", "_text", "_walker",
                 "call", "decision")  # fmt: skip

    def __init__(self, owner: Owner, decision: Decision) -> None:
        self._owner, self.decision = owner, decision
        self.call: Call | None = None
        self._head: Head | None = None
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._text = b""
        self._began = False

    def abort(self) -> None:
        """Cuts the replica off: it shall not generate for nobody."""
        call, self.call = self.call, None
        if call is not None:
            call.abort()

    # ---- what the upstream call tells

    def on_head(self, head: Head) -> None:
        """Decides by the head how much of the answer has to be seen before it is passed on."""
        self._head = head
        self._walker = Walker(head.framing)
        self._sink: Callable[[bytes], None]
        if head.status in MAYBE_FAILED:
            self._sink = self._collect
        elif head.status == 200 and is_stream(head):
            self._sink = self._peek
        else:
            self._sink = self._begin

    def on_data(self, data: bytes) -> None:
        """The next raw bytes of the answer's body."""
        self._sink(data)

    def on_end(self) -> None:
        """The answer is complete."""
        self.call = None
        if not self._began:
            failure = self._failure_at_end()
            if failure is not None:
                self._owner.lost(self, failure)
                return
            self._begin(b"")
        self._owner.ended()

    def on_failure(self, failure: UpstreamFailure) -> None:
        """The answer will not come, or not to its end."""
        self.call = None
        if self._began:
            self._owner.broke(failure.message)
            return
        timeout = failure.reason in (Reason.TIMEOUT, Reason.CONNECT_TIMEOUT)
        self._owner.lost(self, Failure(Outcome.FAILED, failure.message, timeout=timeout))

    # ---- how much is held

    def _collect(self, data: bytes) -> None:
        """Holds an error's body until it is whole, or too long to be vLLM's."""
        if self._hold(data):
            return
        failure = self._failure_at_end()
        if failure is None:
            self._begin(b"")
        else:
            self.abort()
            self._owner.lost(self, failure)

    def _peek(self, data: bytes) -> None:
        """Holds a stream back until its first `data:` line."""
        room = self._hold(data)
        first = _FIRST_DATA.search(self._text)
        if first is None:
            if not room:
                self._begin(b"")
            return
        failure = failure_of_event(first[1])
        if failure is not None:
            self.abort()
            self._owner.lost(self, failure)
            return
        self._owner.first_token(self)
        self._begin(b"")

    def _hold(self, data: bytes) -> bool:
        """Keeps raw bytes and reads their text; False when no more should be held."""
        self._held.append(data)
        self._held_bytes += len(data)
        try:
            self._text += b"".join(self._walker.payload(data)[0])
        except FramingError:
            return False  # the pool has seen it too, and fails the call
        return self._held_bytes < HELD_BYTES

    def _begin(self, data: bytes) -> None:
        head = self._head
        assert head is not None
        self._began = True
        self._sink = self._owner.passed
        held, self._held = self._held, []
        self._owner.began(self, head, [*held, data])

    def _failure_at_end(self) -> Failure | None:
        """The failure that the answer held so far is, if it is one."""
        head = self._head
        if head is None:
            return Failure(Outcome.FAILED, "ended without an answer")
        if head.status in MAYBE_FAILED:
            retry_after = head.header(b"retry-after")
            text = retry_after.decode("latin-1") if retry_after else None
            return failure_of_answer(head.status, self._text, text)
        if head.status == 200 and not self._text.strip() and is_stream(head):
            return Failure(Outcome.FAILED, "the stream ended without a word")
        return None


def is_stream(head: Head) -> bool:
    """Whether an answer is a stream of server-sent events."""
    kind = head.header(b"content-type")
    return kind is not None and kind.lower().startswith(b"text/event-stream")
