"""One replica's answer, held back until it is known to be worth passing on.

That is at the first `data:` of a stream, since vLLM sends its 200 before the request has even been
queued; until then a replica that fails can be replaced and the client notices nothing.  Of a
response (`/v1/responses`) the events that only say that it was taken on count as little.  Comments
by which a host keeps a waiting client's connection alive are held back too, but not for ever.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from tier_router.decide import Decision
from tier_router.dispatch import Failure, failure_of_answer, failure_of_event
from tier_router.ledger import Outcome
from tier_router.prune.answers import is_empty
from tier_router_proxy.http.framing import FramingError, Walker
from tier_router_proxy.http.messages import LENGTH, Head
from tier_router_proxy.http.upstream import Call, Reason, UpstreamFailure

HELD_BYTES = 64 * 1024
"""How much of an answer is held back while it is not clear what it is; vLLM's errors have less
than 1 KB."""

WEIGHED_BYTES = 1024 * 1024
"""How much of a whole answer is held back to see whether it says anything: 250,000 tokens."""

HELD_SECONDS = 10.0
"""How long comments and events without content are held back for the sake of a failover.  Hosts
send such comments every 5 to 30 s so that nobody on the way gives a silent connection up, which
the usual proxies do after 60 s."""

MAYBE_FAILED = frozenset({401, 404, 429, 500, 502, 503, 504})
"""Statuses whose body tells whether another replica should be tried."""

_FIRST_DATA = re.compile(rb"(?:^|[\r\n])data: ?([^\r\n]*)[\r\n]")
_TAKEN_ON = re.compile(
    rb"(?:^|[\r\n])event: ?response\.(?:created|queued|in_progress)\r?\ndata: ?[^\r\n]*\r?\n"
)
"""What a response's stream begins with before anything was computed."""


Reshape = Callable[[int, bytes], bytes | None]
"""Takes the status and the body of an error; gives another body, or None to leave it."""


class Owner(Protocol):
    """Whoever sent the request; hears `began` and then the rest of the answer, or `lost`."""

    def came_back_empty(self, attempt: Attempt) -> None:
        """A whole answer came, and all of its words are thoughts."""

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

    __slots__ = ("_began", "_head", "_held", "_held_bytes", "_owner", "_reads", "_reshape", "_sink",
                 "_timer", "_trusted", "_walker", "_weighs", "call", "decision",
                 "text")  # fmt: skip

    def __init__(
        self,
        owner: Owner,
        decision: Decision,
        *,
        reads: bool = False,
        trusted: bool = True,
        weighs: bool = False,
        reshape: Reshape | None = None,
    ) -> None:
        """`reads` keeps the first bytes of any answer in `text`; not `trusted` takes a 401 for the
        tier's own key, which is no business of the client's; `weighs` holds an answer that is no
        stream back until it is whole, to see whether it says anything; `reshape` makes of a 4xx
        what the client understands."""
        self._owner, self.decision = owner, decision
        self._reads, self._trusted, self._weighs = reads, trusted, weighs
        self._reshape = reshape
        self._timer: asyncio.TimerHandle | None = None
        self._sink: Callable[[bytes], None] = _nobody
        self.call: Call | None = None
        self._head: Head | None = None
        self._held: list[bytes] = []
        self._held_bytes = 0
        self.text = b""
        self._began = False

    def abort(self) -> None:
        """Cuts the replica off: it shall not generate for nobody."""
        self._hold_no_longer()
        self._sink = _nobody  # what it was knows this attempt: a cycle
        call, self.call = self.call, None
        if call is not None:
            call.abort()

    # ---- what the upstream call tells

    def on_head(self, head: Head) -> None:
        """Decides by the head how much of the answer has to be seen before it is passed on."""
        self._head = head
        self._walker = Walker(head.framing)
        if head.status in MAYBE_FAILED:
            self._sink = self._collect
        elif is_encoded(head):
            self._sink = self._begin
        elif self._reshape is not None and 400 <= head.status < 500:
            self._sink = self._collect
        elif head.status == 200 and is_stream(head):
            self._sink = self._peek
        elif self._weighs and head.status == 200:
            self._sink = self._weigh
        elif self._reads:
            self._sink = self._read
        else:
            self._sink = self._begin

    def on_data(self, data: bytes) -> None:
        """The next raw bytes of the answer's body."""
        self._sink(data)

    def on_end(self) -> None:
        """The answer is complete."""
        self.call = None
        self._hold_no_longer()
        if not self._began:
            if self._sink == self._weigh and is_empty(self.text, stream=False):
                self._owner.came_back_empty(self)
                return
            failure = self._failure_at_end()
            if failure is not None:
                self._owner.lost(self, failure)
                return
            self._in_shape()
            self._begin(b"")
        self._owner.ended()

    def on_failure(self, failure: UpstreamFailure) -> None:
        """The answer will not come, or not to its end."""
        self.call = None
        self._hold_no_longer()
        if self._began:
            self._owner.broke(failure.message)
            return
        timeout = failure.reason in (Reason.TIMEOUT, Reason.CONNECT_TIMEOUT)
        suspect = failure.reason is Reason.CLOSED
        told = Failure(Outcome.FAILED, failure.message, timeout=timeout, suspect=suspect)
        self._owner.lost(self, told)

    def _in_shape(self) -> None:
        """Puts an error that the client would not understand into another shape."""
        head = self._head
        if self._reshape is None or head is None or is_encoded(head):
            return
        body = self._reshape(head.status, self.text) if 400 <= head.status < 500 else None
        if body is not None:
            self._head = replace(head, framing=LENGTH(len(body)))
            self._held = [body]

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
        first = self._first_data()
        if first is None:
            if not room:
                self._begin(b"")
            elif self._timer is None and self.text:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(HELD_SECONDS, self._begin, b"")
            return
        failure = failure_of_event(first[1])
        if failure is not None:
            self.abort()
            self._owner.lost(self, failure)
            return
        self._owner.first_token(self)
        self._begin(b"")

    def _first_data(self) -> re.Match[bytes] | None:
        """The first `data:` that carries something of the answer."""
        first = _FIRST_DATA.search(self.text)
        if first is None or b"event:" not in self.text:
            return first
        start = 0
        for taken_on in _TAKEN_ON.finditer(self.text):
            start = taken_on.end() - 1  # the line's end is the next one's beginning
        return _FIRST_DATA.search(self.text, start)

    def _read(self, data: bytes) -> None:
        """Keeps the first bytes of an answer to read, and passes them on."""
        self._hold(data)
        self._begin(b"")

    def _weigh(self, data: bytes) -> None:
        """Holds an answer until it is whole, or too long to be empty."""
        self._hold(data)
        if self._held_bytes > WEIGHED_BYTES:
            self._begin(b"")

    def _hold_no_longer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _hold(self, data: bytes) -> bool:
        """Keeps raw bytes and reads their text; False when no more should be held."""
        self._held.append(data)
        self._held_bytes += len(data)
        try:
            self.text += b"".join(self._walker.payload(data)[0])
        except FramingError:
            return False  # the pool has seen it too, and fails the call
        return self._held_bytes < HELD_BYTES

    def _begin(self, data: bytes) -> None:
        head = self._head
        assert head is not None
        self._hold_no_longer()
        self._began = True
        self._sink = self._owner.passed
        held, self._held = self._held, []
        self._owner.began(self, head, [*held, data])

    def _failure_at_end(self) -> Failure | None:
        """The failure that the answer held so far is, if it is one."""
        head = self._head
        if head is None:
            return Failure(Outcome.FAILED, "ended without an answer")
        if head.status == 401:
            return None if self._trusted else Failure(Outcome.FAILED, "401 refuses the tier's key")
        if head.status in MAYBE_FAILED:
            retry_after = head.header(b"retry-after")
            text = retry_after.decode("latin-1") if retry_after else None
            seen = b"" if is_encoded(head) else self.text
            return failure_of_answer(head.status, seen, text)
        if head.status == 200 and not self.text.strip() and is_stream(head):
            return Failure(Outcome.FAILED, "the stream ended without a word")
        return None


def _nobody(_: bytes) -> None:
    """Takes what nobody waits for."""


def is_encoded(head: Head) -> bool:
    """Whether the answer's text is not to be read here, since it is compressed."""
    coding = head.header(b"content-encoding")
    return coding is not None and coding.lower() != b"identity"


def is_stream(head: Head) -> bool:
    """Whether an answer is a stream of server-sent events."""
    kind = head.header(b"content-type")
    return kind is not None and kind.lower().startswith(b"text/event-stream")
