"""One client connection: its requests in order, its timeouts, its end."""

from __future__ import annotations

import asyncio
import logging
from typing import cast

from tier_router_proxy.http.answers import CONTINUE, REASONS, answer_head, plain_refusal
from tier_router_proxy.http.ending import Ending, Phase
from tier_router_proxy.http.exchange import Exchange
from tier_router_proxy.http.holding import Held
from tier_router_proxy.http.messages import LENGTH, Headers, Request
from tier_router_proxy.http.requests import Refusal, RequestReader, Stage
from tier_router_proxy.http.shared import Shared

log = logging.getLogger("tier_router_proxy")

# A draining server waits this long for the first request of a new connection: several round trips.
FIRST_REQUEST = 1.0


class Connection(Ending):
    """One client connection."""

    __slots__ = (
        "_exchange",
        "_head_timed",
        "_held",
        "_reader",
        "_served",
        "_serving",
        "_shared",
        "_write_paused",
        "client",
        "loop",
    )

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared.limits, shared.wheel)
        self.loop = shared.loop
        self.client = ""
        self._shared = shared
        self._reader = RequestReader(shared.limits)
        self._exchange: Exchange | None = None
        # Inside `_serve`: an answer given at once must not begin the next request by recursion.
        self._serving = False
        # A request was answered or refused.
        self._served = False
        self._head_timed = False
        self._write_paused = False

    @property
    def draining(self) -> bool:
        """The server takes no further requests on this connection."""
        return self._shared.draining

    @property
    def unfinished(self) -> bool:
        """A request is on its way in, or its answer on its way out."""
        return (
            self._exchange is not None
            or (self._phase is Phase.SERVING and self._reader.stage is not Stage.IDLE)
            or self.transport.get_write_buffer_size() > 0
        )

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self.transport.set_write_buffer_limits(high=self._limits.write_high_water)
        self._held = Held(self.transport, self._shared.hangups)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.client = f"[{peer[0]}]:{peer[1]}" if ":" in peer[0] else f"{peer[0]}:{peer[1]}"
        self._shared.open.add(self)
        self._timer.set(FIRST_REQUEST if self._shared.draining else self._limits.idle_timeout)

    def data_received(self, data: bytes) -> None:
        if self._phase is not Phase.SERVING:
            return
        if self._exchange is not None or self._write_paused:
            self._held.add(data, self._limits.pipelined, self._hung_up)
        else:
            self._reader.feed(data)
            self._serve()

    def eof_received(self) -> bool:
        # A client that closes only its sending side cannot be told from one that went away, and
        # of the latter there are many more.
        if self._exchange is not None:
            self._hung_up()
        elif self._phase is Phase.SERVING:
            self._close()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        shared = self._shared
        self._phase = Phase.CLOSED
        self._timer.cancel()
        self._held.forget()
        shared.open.discard(self)
        if not shared.open:
            shared.emptied.set()
        self._client_gone()
        self._reader.close()

    def pause_writing(self) -> None:
        self._write_paused = True
        self._wait_for_progress()
        exchange = self._exchange
        if exchange is not None and exchange.on_pause is not None:
            exchange.on_pause()

    def resume_writing(self) -> None:
        self._write_paused = False
        if self._phase is not Phase.SERVING:
            return  # the timer sees to the rest
        self._timer.clear()
        exchange = self._exchange
        if exchange is None:
            self._serve()
        elif exchange.on_resume is not None:
            exchange.on_resume()

    # What the exchange and the server call.

    def finished(self, request: Request, keep: bool) -> None:
        """The answer is complete: on with the next request, or to the end."""
        self._exchange = None
        self._shared.active -= 1
        if not keep:
            # Only of a client that asked for the end it is known that nothing more comes from it.
            self._end(linger=request.keep_alive or self._held.size > 0)
        elif not self._serving:
            self._serve()

    def cut(self) -> None:
        """Close at once, in a way that cannot pass for an answer's proper end."""
        if self._phase is Phase.CLOSED:
            return
        exchange = self._exchange
        if self.transport.get_write_buffer_size() or (exchange is not None and exchange.started):
            self._reset()
        else:
            self._abort()
        if exchange is not None and exchange.closed:  # it asked for this itself
            self._exchange = None
            self._shared.active -= 1
        self._client_gone()

    def wind_up(self) -> None:
        """The server drains: close if idle, and give a new connection time for one request."""
        if self._phase is not Phase.SERVING or self.unfinished or self._write_paused:
            return
        if self._served:
            self._close()
        else:
            self._timer.set(FIRST_REQUEST)

    # Requests, in order.

    def _serve(self) -> None:
        if self._serving:
            return
        self._serving = True
        try:
            while self._exchange is None and self._phase is Phase.SERVING:
                if self._write_paused:
                    return
                if self._reader.ready:
                    self._begin(self._reader.ready.popleft())
                elif self._held.size:
                    self._reader.feed(self._held.take())
                else:
                    self._wait()
                    return
        finally:
            self._serving = False

    def _begin(self, item: Request | Refusal) -> None:
        self._served = True
        self._head_timed = False
        if isinstance(item, Refusal):
            self._refuse(item)
            return
        self._timer.clear()
        exchange = Exchange(item, self)
        self._exchange = exchange
        self._shared.active += 1
        try:
            self._shared.handler(exchange)
        except Exception:  # whatever a handler raises, the other requests go on
            log.exception("handler failed: %r", exchange)
            if exchange.started:
                exchange.abort()
            else:
                exchange.respond(500, *self._refusal(_INTERNAL))

    def _wait(self) -> None:
        """Set the timeout for what is missing."""
        reader = self._reader
        if reader.stage is Stage.BODY:
            if reader.expecting:
                reader.expecting = False
                self.transport.write(CONTINUE)
            self._timer.set(self._limits.body_timeout)
        elif reader.stage is Stage.HEAD:
            # One deadline for the whole head, however many reads it takes.
            if not self._head_timed:
                self._head_timed = True
                self._timer.set(self._limits.head_timeout)
        elif self._served:
            self._rest()

    def _rest(self) -> None:
        """Idle between two requests."""
        limits = self._shared.limits
        if limits is not self._limits:
            self._limits = self._reader.limits = limits
            self.transport.set_write_buffer_limits(high=limits.write_high_water)
        if self._shared.draining:
            self._end(linger=True)
        else:
            self._timer.set(limits.idle_timeout)

    # Refusals and ends.

    def _refuse(self, refusal: Refusal) -> None:
        headers, body = self._refusal(refusal)
        reason = REASONS.get(refusal.status, b"")
        head = answer_head(refusal.status, reason, headers, LENGTH(len(body)), keep_alive=False)
        self.transport.write(head if refusal.head else head + body)
        self._end(linger=True)

    def _refusal(self, refusal: Refusal) -> tuple[Headers, bytes]:
        try:
            return self._shared.refuse(refusal)
        except Exception:  # the caller's function; the client is answered all the same
            log.exception("no error answer for %r", refusal)
            return plain_refusal(refusal)

    def _end(self, *, linger: bool) -> None:
        """Close, after the client had time to read if it may still be sending."""
        if linger:
            self._held.take()
            self._linger()
        else:
            self._close()

    def _client_gone(self) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        self._shared.active -= 1
        try:
            exchange.gone()
        except Exception:  # the handler's callback; the loop and the other connections go on
            log.exception("on_disconnect failed: %r", exchange)

    def _hung_up(self) -> None:
        self._client_gone()
        self._abort()

    def _on_timer(self) -> None:
        if self._phase is Phase.LINGERING:
            self._on_linger_timer()
        elif self._phase is Phase.CLOSING or self._write_paused:
            self._check_progress()
            if self._phase is Phase.CLOSED:
                self._client_gone()
        elif self._exchange is not None or self._phase is Phase.CLOSED:
            return
        elif self._reader.stage is not Stage.IDLE:
            self._reader.time_out()
            self._serve()
        else:
            self._close()


_INTERNAL = Refusal(500, "internal_error", "the router failed on this request")
