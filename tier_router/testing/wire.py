"""HTTP/1.1 on one connection, with h11."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Sequence
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, cast

try:
    import h11
except ImportError as error:
    raise ImportError("the fake vLLM needs h11: pip install 'tier-router[proxy]'") from error

from tier_router.testing.exchange import Cut, Exchange
from tier_router.testing.listener import Listener
from tier_router.testing.recorded import Recorded

HEAD_LIMIT = 4 * 1024 * 1024
"""Bytes of a request's head: vLLM's `--h11-max-incomplete-event-size`."""

BREATH = 0.02
"""Seconds between the last bytes and a reset: a client that sees both at once may drop the bytes
(asyncio's streams do), and then it would depend on luck what was seen."""

_PHRASES = {status.value: status.phrase for status in HTTPStatus}
_RST = struct.pack("ii", 1, 0)  # SO_LINGER on, for 0 seconds: close() sends RST


class Connection(asyncio.Protocol):
    """One client's connection: reads requests one after another, and answers each in a task."""

    transport: asyncio.Transport

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_LIMIT)
        self._head: h11.Request | None = None
        self._body = bytearray()
        self._drain: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._dropped = self._gone = self._chunked = False
        self.request: Recorded | None = None
        self.task: asyncio.Task[None] | None = None
        self.limit: int | None = None
        self.idle: tuple[float, bool] | None = None
        self.closed: asyncio.Future[None] = self._loop.create_future()

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._listener.opened(self)

    def data_received(self, data: bytes) -> None:
        self._stop_timer()
        self._http.receive_data(data)
        self._read()

    def eof_received(self) -> None:
        """The client is gone; what it did not read is not worth waiting for."""
        self._left()
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._left()
        self._stop_timer()
        self.resume_writing()
        self._listener.lost(self)
        if not self.closed.done():
            self.closed.set_result(None)

    def pause_writing(self) -> None:
        self._drain = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._drain is not None and not self._drain.done():
            self._drain.set_result(None)
        self._drain = None

    # What an exchange calls

    async def drained(self) -> None:
        """Returns when there is room for more."""
        if self._drain is not None:
            await self._drain

    def send_head(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        """Writes a response's head, with uvicorn's headers first."""
        first = (("date", formatdate(usegmt=True)), ("server", "uvicorn"))
        reason = _PHRASES.get(status, "").encode()
        self._send(h11.Response(status_code=status, headers=[*first, *headers], reason=reason))

    def send_data(self, data: bytes) -> None:
        """Writes a piece of the body."""
        if not data:  # an empty chunk would be the last one
            return
        if self._chunked:  # by hand: h11 would take half the time of a token for it
            self.write(b"%x\r\n%b\r\n" % (len(data), data))
        else:
            self._send(h11.Data(data=data))

    def send_end(self) -> None:
        """Writes the end of the body."""
        self._send(h11.EndOfMessage())

    def write(self, data: bytes) -> None:
        """Writes bytes, and resets the connection where `limit` is reached."""
        if self.limit is not None:
            data, self.limit = data[: self.limit], self.limit - len(data)
        if not self._dropped:
            self.transport.write(data)
        if self.limit is not None and self.limit <= 0:
            self.reset_soon()
            raise Cut

    def drop(self, *, rst: bool, at_once: bool = False) -> None:
        """Ends the connection from this side: with RST, at once, or after what was written."""
        self._dropped = True
        if rst and not self.closed.done():
            sock: socket.socket = self.transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST)
        if rst or at_once:
            self.transport.abort()
        else:
            self.transport.close()

    def reset_soon(self) -> None:
        """Ends the connection with RST a moment from now."""
        self._dropped = True
        self._loop.call_later(BREATH, lambda: self.drop(rst=True))

    # The rest is its own

    def _send(self, event: Any) -> None:
        data = self._http.send(event)
        if isinstance(event, h11.Response):
            self._chunked = b"\r\nTransfer-Encoding: chunked\r\n" in data
            # h11 spells these two in capitals, uvicorn does not
            for name in (b"\r\nTransfer-Encoding:", b"\r\nConnection:"):
                data = data.replace(name, name.lower())
        if data:
            self.write(data)

    def _read(self) -> None:
        """Takes what has come, until a request is whole; that one is answered first."""
        while self.task is None and not self._dropped:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError:
                self._refuse()
                return
            if isinstance(event, h11.Request):
                self._head, self._body = event, bytearray()
                if self._http.they_are_waiting_for_100_continue:
                    self._send(h11.InformationalResponse(status_code=100, headers=[]))
            elif isinstance(event, h11.Data):
                self._body += event.data
            elif isinstance(event, h11.EndOfMessage):
                self._answer()
            else:
                return

    def _refuse(self) -> None:
        """Answers what is not HTTP as uvicorn does."""
        if self._http.our_state is h11.IDLE or self._http.our_state is h11.SEND_RESPONSE:
            body = b"Invalid HTTP request received."
            kind = ("content-type", "text/plain; charset=utf-8")
            self.send_head(400, (kind, ("content-length", str(len(body))), ("connection", "close")))
            self.send_data(body)
            self.send_end()
        self.drop(rst=False)

    def _answer(self) -> None:
        assert self._head is not None
        raw = bytes(self._body)
        self.limit = self.idle = None
        self.request = Recorded(
            method=self._head.method.decode("latin-1"),
            path=self._head.target.decode("latin-1"),
            headers=[(k.decode("latin-1"), v.decode("latin-1")) for k, v in self._head.headers],
            raw=raw,
            body=_decoded(raw),
            started_at=self._loop.time(),
        )
        self.task = self._loop.create_task(self._listener.answer(Exchange(self.request, self)))
        self.task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self.task = self.request = None
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, Cut):
            context = {"message": "the fake vLLM failed to answer", "exception": error}
            self._loop.call_exception_handler(context)
        if task.cancelled() or error is not None:
            if not self._dropped:
                self.transport.abort()
        elif self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            self._rest()
            self._read()
        else:
            self.drop(rst=False)

    def _left(self) -> None:
        """Stops answering a client who is gone."""
        if self.task is None or self._gone:
            return
        self._gone = True
        if self.request is not None and not (self.request.finished or self._dropped):
            self.request.aborted = True
            self.request.aborted_at = self._loop.time()
        self.task.cancel()

    def _rest(self) -> None:
        """Nothing is being asked: the connection may stay open for so long."""
        seconds, rst = self.idle or (self._listener.keep_alive, False)
        self._stop_timer()
        if seconds is not None:
            self._timer = self._loop.call_later(seconds, lambda: self.drop(rst=rst))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _decoded(raw: bytes) -> Any:
    """The JSON value of `raw`; None where it is none."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None
