"""One request and the answer to it, as a handler sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tier_router_proxy.http.answers import REASONS, answer_head, bodiless
from tier_router_proxy.http.framing import FramingError, Walker
from tier_router_proxy.http.messages import (
    CHUNKED,
    LENGTH,
    NONE,
    Framing,
    FramingKind,
    Headers,
    Request,
)

if TYPE_CHECKING:
    from tier_router_proxy.http.connection import Connection

Handler = Callable[["Exchange"], None]

# Up to here one copy is cheaper than a second buffer in the write (one page of memory, four times).
JOIN_LIMIT = 16 * 1024


class Exchange:
    """One request and the answer to it; every call after the client is gone does nothing."""

    __slots__ = (
        "_connection",
        "_head",
        "_keep",
        "_left",
        "_silent",
        "_transport",
        "_walker",
        "client",
        "closed",
        "extra",
        "on_disconnect",
        "on_over",
        "on_pause",
        "on_resume",
        "request",
        "started",
    )

    def __init__(self, request: Request, connection: Connection) -> None:
        self.request = request
        self.client = connection.client
        # Headers that the answer carries besides its own, whoever gives it.
        self.extra: Headers = []
        # The client went away before `finish`: called once, at once, in every state.
        self.on_disconnect: Callable[[], None] | None = None
        # It is over, whatever way: called once.
        self.on_over: Callable[[], None] | None = None
        # The client reads slowly, and then no longer: stop feeding, and go on.
        self.on_pause: Callable[[], None] | None = None
        self.on_resume: Callable[[], None] | None = None
        # A head was written.
        self.started = False
        # Finished, aborted, or the client is gone.
        self.closed = False
        self._connection = connection
        self._transport = connection.transport
        self._keep = False
        # A head that waits for the first body bytes, so that one system call takes both.
        self._head = b""
        # No body byte may follow the head.
        self._silent = False
        # Bytes still owed of a counted body.
        self._left: int | None = None
        # Takes the chunks apart for an HTTP/1.0 client.
        self._walker: Walker | None = None

    def __repr__(self) -> str:
        state = "closed" if self.closed else "started" if self.started else "waiting"
        return f"<Exchange {self.request.method!r} {self.request.path!r} {state}>"

    def respond(self, status: int, headers: Headers, body: bytes = b"") -> None:
        """Write a whole answer with its length; to HEAD, the same head without the body."""
        if self.closed:
            return
        self._begin()
        request = self.request
        self._keep = request.keep_alive and not self._connection.draining
        # A 304 may name the length of what it stands for, but an empty body here is none of that.
        framing = NONE if status == 304 else LENGTH(len(body))
        head = answer_head(
            status,
            REASONS.get(status, b""),
            headers + self.extra,
            framing,
            keep_alive=self._keep,
            http10=request.http10,
        )
        self.started = True
        if bodiless(request.method, status):
            self._transport.write(head)
        elif len(body) <= JOIN_LIMIT:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))
        self._over()

    def start(self, status: int, reason: bytes, headers: Headers, framing: Framing) -> None:
        """Begin a relayed answer; the framing headers and what `write` does follow `framing`.

        An HTTP/1.0 client gets no chunks but their data, ended by the connection's end.
        """
        if self.closed:
            return
        self._begin()
        request = self.request
        keep = request.keep_alive and not self._connection.draining
        shown: Framing | None = framing
        kind = framing.kind
        if bodiless(request.method, status):
            self._silent = True
            if request.http10 and kind is FramingKind.CHUNKED:
                shown = None
        elif kind is FramingKind.LENGTH:
            self._left = framing.length
        elif kind is FramingKind.CLOSE:
            keep = False
        elif kind is FramingKind.NONE:
            self._left = 0
            shown = LENGTH(0)
        elif request.http10:
            keep = False
            shown = None
            self._walker = Walker(CHUNKED)
        self._head = answer_head(
            status, reason, headers + self.extra, shown, keep_alive=keep, http10=request.http10
        )
        self._keep = keep
        self.started = True
        # Sent with the first body bytes if those come in this turn of the loop, else by itself.
        self._connection.loop.call_soon(self._flush)

    def write(self, data: bytes) -> None:
        """Pass on body bytes, framed as `start` was told; never more than fit a counted body."""
        if self.closed or self._silent:
            return
        if self._left is not None:
            self._left -= len(data)
            if self._left < 0:
                self.abort()
                return
        if self._walker is not None:
            self._write_payload(self._walker, data)
        elif self._head:
            head, self._head = self._head, b""
            self._transport.write(head + data)
        else:
            self._transport.write(data)

    def finish(self) -> None:
        """End the answer; the connection goes on with the next request, if it may.

        An answer that does not have the length it announced is cut instead.
        """
        if self.closed:
            return
        if not self.started or self._left:
            self.abort()
            return
        self._flush()
        self._over()

    def abort(self) -> None:
        """Cut the connection: the only honest end of a truncated answer."""
        if not self.closed:
            self._close()
            self._connection.cut()

    def gone(self) -> None:
        """The client went away: what the connection calls, once."""
        callback = self.on_disconnect
        self._close()
        if callback is not None:
            callback()

    def _begin(self) -> None:
        if self.started:
            raise RuntimeError("the answer has begun already")

    def _flush(self) -> None:
        if self._head and not self.closed:
            head, self._head = self._head, b""
            self._transport.write(head)

    def _write_payload(self, walker: Walker, data: bytes) -> None:
        self._flush()
        try:
            pieces, _ = walker.payload(data)
        except FramingError:
            self.abort()
            return
        if pieces and not self.closed:
            self._transport.writelines(pieces)

    def _over(self) -> None:
        keep = self._keep
        self._close()
        self._connection.finished(self.request, keep)

    def _close(self) -> None:
        # The callbacks go, too: they usually close a cycle through the handler's own objects.
        self.closed = True
        self._head = b""
        over, self.on_over = self.on_over, None
        self.on_disconnect = self.on_pause = self.on_resume = None
        if over is not None:
            over()
