"""One connection to an upstream, for one call after the other."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from tier_router_proxy.http.calls import Call, Reason, UpstreamFailure
from tier_router_proxy.http.framing import FramingError, Walker
from tier_router_proxy.http.messages import FramingKind
from tier_router_proxy.http.responses import BadAnswer, HeadReader

if TYPE_CHECKING:
    from tier_router_proxy.http.upstream import Pool


class Link(asyncio.Protocol):
    """One connection to an upstream; exists from the attempt to connect on."""

    __slots__ = (
        "_begun",
        "_endless",
        "_keep",
        "_reader",
        "_reused",
        "_walker",
        "call",
        "pool",
        "since",
        "timer",
        "transport",
    )

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.timer = pool.wheel.timer(self._deadline)
        self.transport: asyncio.Transport | None = None
        self.call: Call | None = None
        # When it became idle.
        self.since = 0.0
        self._reader: HeadReader | None = None
        self._walker: Walker | None = None
        self._reused = False
        # A byte of the current answer has come.
        self._begun = False
        self._keep = False
        # The answer ends with the connection.
        self._endless = False

    def begin(self, call: Call, *, reused: bool) -> None:
        """Send the call's request on this open connection."""
        transport = self.transport
        assert transport is not None
        call.reused = self._reused = reused
        self._reader = HeadReader(self.pool.head_limit, no_body=call.bodiless)
        self._walker = None
        self._begun = False
        self._endless = False
        message = call.message
        if isinstance(message, list):
            transport.writelines(message)
        else:
            transport.write(message)

    def pause(self) -> None:
        """Stop reading."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    def cut(self) -> None:
        """Close at once; what was not sent or read yet is lost."""
        self._keep = False
        if self.transport is not None:
            self.transport.abort()

    @property
    def usable(self) -> bool:
        """Whether a request can be sent on it, as far as is known here."""
        return self.transport is not None and not self.transport.is_closing()

    def not_connected(self, reason: Reason, message: str) -> None:
        """The attempt to connect has failed."""
        if self.call is not None and self.transport is None:
            self.call.connecting = None  # the task that calls this
            self.fail(reason, message)

    def fail(self, reason: Reason, message: str) -> None:
        """Close at once, and tell the listener why."""
        call = self.call
        if call is not None:
            call.over()
        self.cut()
        if call is not None:
            call.listener.on_failure(UpstreamFailure(reason, message, self._begun))

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        call = self.call
        if call is None:  # aborted while connecting
            self.transport.abort()
            return
        call.connecting = None
        self.begin(call, reused=False)
        if call.paused:
            # uvloop begins to read only after this function, whatever was asked for in it.
            self.pool.loop.call_soon(self._pause_again, call)

    def _pause_again(self, call: Call) -> None:
        if self.call is call and call.paused:
            self.pause()

    def data_received(self, data: bytes) -> None:
        call = self.call
        if call is None:  # nobody asked for these bytes
            self.pool.forget(self)
            self.cut()
            return
        try:
            self._take(call, data)
        except BadAnswer as error:
            self.fail(Reason.BAD_ANSWER, f"not a usable answer: {error}")
        except FramingError as error:
            self.fail(Reason.BAD_ANSWER, f"broken answer body: {error}")

    def eof_received(self) -> bool:
        # Left to itself, the transport would first try to send the rest of the request.
        self._lost(None)
        if self.transport is not None:
            self.transport.abort()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost(exc)
        self.timer.cancel()

    # The answer.

    def _take(self, call: Call, data: bytes) -> None:
        walker = self._walker
        if walker is None:
            assert self._reader is not None
            self._begun = True
            found = self._reader.feed(data)
            if found is None:
                return
            head, data = found
            self._keep = head.keep_alive
            self._endless = head.framing.kind is FramingKind.CLOSE
            self._walker = walker = Walker(head.framing)
            call.message = b""
            call.listener.on_head(head)
            if self.call is not call:
                return
        if data:
            end = walker.feed(data)
            if end != len(data):  # bytes behind the answer: whose are they?
                self._keep = False
                data = data[:end]
            if data:
                call.listener.on_data(data)
                if self.call is not call:
                    return
        if walker.done:
            self._complete(call)

    def _complete(self, call: Call) -> None:
        """The answer is whole: this connection is free again before the listener hears of it."""
        paused = call.paused
        call.over()
        transport = self.transport
        assert transport is not None
        # An upstream that answers before it has read everything is not in step with us.
        if not self._keep or transport.is_closing() or transport.get_write_buffer_size():
            self.cut()
        elif self.pool.give_back(self):
            if paused:
                self.resume()
        else:
            self.cut()
        call.listener.on_end()

    def _lost(self, exc: Exception | None) -> None:
        call = self.call
        if call is None:
            self.pool.forget(self)
            return
        if self._endless and exc is None:
            self._keep = False
            self._complete(call)
        elif self._reused and not self._begun:
            # The upstream closed an idle connection while our request was on its way to it.
            self.pool.connect(call)
            self.call = None
        else:
            what = "reset" if isinstance(exc, ConnectionError) else "closed"
            when = "in the middle of the answer" if self._begun else "before an answer"
            self.fail(Reason.CLOSED, f"connection {what} {when}")

    def _deadline(self) -> None:
        what = "answer stalled" if self._begun else "no answer"
        self.fail(Reason.TIMEOUT, f"{what} within the time limit")
