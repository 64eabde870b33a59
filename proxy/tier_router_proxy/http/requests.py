"""Requests out of a client's bytes, by llhttp; no sockets, no clock.

`RequestReader.feed` takes bytes as they come; complete requests queue up in `ready`. A request
that must not be served ends the queue as a `Refusal`, and nothing after it is read. llhttp does
the parsing; refused on top of it is what it lets pass but a proxy should not: versions other than
1.0 and 1.1, methods of other protocols, transfer codings other than `chunked`, a missing, second
or malformed Host.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum

import httptools

from tier_router_proxy.http.messages import Headers, Request, path_of

# Of the many methods that llhttp knows (RTSP's and ICE's among them), those with a place here;
# no path takes TRACE or QUERY, which HTTP's own clients may ask for and are answered with a 405.
METHODS = frozenset(
    {b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"TRACE", b"QUERY"}
)
# A chunked body may spend this many bytes of framing per byte of body: `1 CRLF x CRLF` needs 5.
CHUNK_OVERHEAD = 8
# Complete requests that may wait at once: each costs a few hundred bytes of objects for 25 on the
# wire. wrk and h2load pipeline far fewer.
MAX_READY = 512
# Body pieces below this are gathered: two-byte chunks as objects of their own would take twenty
# times their size.
SMALL_PIECE = 4096
# RFC 3986, 3.2.2 and 3.2.3, loosely: what may stand in a host and a port, and nothing else.
_HOST = re.compile(rb"[A-Za-z0-9._~%!$&'()*+,;=:\[\]-]*")


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may ask for; sizes in bytes, times in seconds."""

    head: int = 64 * 1024
    body: int = 32 * 1024 * 1024
    headers: int = 256
    # Bytes that may wait behind an unfinished answer before reading stops.
    pipelined: int = 64 * 1024
    head_timeout: float = 10.0
    # Between two reads of a request body.
    body_timeout: float = 60.0
    idle_timeout: float = 75.0
    # For a client that takes no byte of its answer.
    write_timeout: float = 60.0
    # Buffered answer bytes at which the upstream is asked to pause.
    write_high_water: int = 256 * 1024
    # How long a refused client may still send, so that it can read why (nginx lingers 5 s).
    linger: float = 2.0


class Stage(IntEnum):
    """How far the current request has come."""

    IDLE = 0
    HEAD = 1
    BODY = 2


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that is answered with an error, after which the connection ends."""

    status: int
    code: str
    message: str
    head: bool = False
    # What was asked for, as far as it had come.
    path: bytes = field(default=b"", compare=False)


class _Refused(Exception):
    """Leaves llhttp's callbacks; the refusal is in the queue already."""


class RequestReader:
    """The requests of one connection, in order."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.ready: deque[Request | Refusal] = deque()
        self.stage = Stage.IDLE
        # No further request is read: after a refusal, and after `connection: close`.
        self.ended = False
        # The client waits for `100 Continue` before it sends the body.
        self.expecting = False
        self._parser = httptools.HttpRequestParser(self)
        self._fed = 0
        self._upgrade = False
        self._chunked = False
        self._begin()

    def _begin(self) -> None:
        self._target = b""
        self._headers: Headers = []
        self._size = 0
        self._body: list[bytes | bytearray] = []
        self._body_size = 0
        self._expect = False
        self._upgrade = False
        self._codings: list[bytes] = []
        self._length: int | None = None
        self._hosts = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes; what they complete is in `ready` afterwards."""
        if self.ended:
            return
        self._fed += len(data)
        while data:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = self._plain_head() + data[upgrade.args[0] :]
                self._parser = httptools.HttpRequestParser(self)
                continue
            except httptools.HttpParserInvalidMethodError:
                self._refuse(400, "bad_method", "unknown request method")
            except httptools.HttpParserError as error:
                if not self.ended:
                    # A reason of llhttp's, such as "Invalid header token": no client bytes in it.
                    self._refuse(400, "bad_request", f"not an HTTP/1.1 request: {error}")
            break
        if not self.ended:
            self._check_sizes()

    def close(self) -> None:
        """Read nothing more, and let go of the parser, which knows this reader: a cycle."""
        self.ended = True
        self.ready.clear()
        del self._parser

    def time_out(self) -> None:
        """Refuse the request that has not come completely in time."""
        what = "headers" if self.stage is Stage.HEAD else "body"
        self._refuse(408, "request_timeout", f"the request {what} did not arrive in time")

    # What llhttp calls. An exception in here stops it; `feed` sees that `ended` is set.

    def on_message_begin(self) -> None:
        if self.ended:
            raise _Refused
        if len(self.ready) >= MAX_READY:
            self._stop(400, "too_many_requests", f"more than {MAX_READY} requests at once")
        # Not at the first byte: a line break may stray in front of a request (RFC 9112, 2.2), and
        # a connection that got only that is still idle.
        self.stage = Stage.HEAD

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._size += len(name) + len(value) + 4
        if self.stage is not Stage.HEAD:
            return  # a trailer: counted by `_check_sizes`, otherwise of no use
        name = name.lower()
        value = value.rstrip(b" \t")
        headers = self._headers
        headers.append((name, value))
        if len(headers) > self.limits.headers:
            self._stop(431, "headers_too_large", f"more than {self.limits.headers} header fields")
        if name in _WATCHED:
            self._watch(name, value)

    def _watch(self, name: bytes, value: bytes) -> None:
        if name == b"host":
            self._hosts += 1
            if _HOST.fullmatch(value) is None:
                self._stop(400, "bad_host", "the Host header is no host")
        elif name == b"content-length":
            if self._length is not None or not value.isdigit() or len(value) > 20:
                self._stop(400, "bad_framing", "no usable Content-Length")
            self._length = int(value)
        elif name == b"transfer-encoding":
            self._codings.append(value.lower())
        elif name == b"expect":
            self._expect = value.lower() == b"100-continue"
        else:
            self._upgrade = True

    def on_headers_complete(self) -> None:
        parser = self._parser
        version = parser.get_http_version()
        if self._size + len(self._target) > self.limits.head:
            self._stop(431, "headers_too_large", f"more than {self.limits.head} bytes of headers")
        if version not in ("1.1", "1.0"):
            self._stop(400, "bad_version", "only HTTP/1.0 and HTTP/1.1 are spoken here")
        if parser.get_method() not in METHODS:
            self._stop(400, "bad_method", "method not supported")
        if self._hosts != 1 and (version == "1.1" or self._hosts):
            self._stop(400, "bad_host", "exactly one Host header is needed")
        if self._codings and (self._codings != [b"chunked"] or version == "1.0"):
            self._stop(400, "bad_framing", "no transfer coding but chunked, and that in HTTP/1.1")
        if self._codings and self._length is not None:
            self._stop(400, "bad_framing", "both a length and a transfer coding")
        if self._length is not None and self._length > self.limits.body:
            self._stop(413, "body_too_large", f"the body is over {self.limits.body} bytes")
        if self._upgrade and parser.should_upgrade():
            return  # comes again without the upgrade, see `_plain_head`
        self.stage = Stage.BODY
        self._chunked = bool(self._codings)
        self._fed = 0
        self._size = 0
        self.expecting = self._expect and version == "1.1" and (self._chunked or bool(self._length))

    def on_body(self, body: bytes) -> None:
        self._body_size += len(body)
        if self._body_size > self.limits.body:
            self._stop(413, "body_too_large", f"the body is over {self.limits.body} bytes")
        pieces = self._body
        if not pieces or len(body) >= SMALL_PIECE:
            pieces.append(body)
            return
        last = pieces[-1]
        if type(last) is bytearray:
            last += body
        else:
            pieces.append(bytearray(body))

    def on_message_complete(self) -> None:
        if self.stage is not Stage.BODY:
            return  # the upgrade case: llhttp calls the message over at its head
        body = self._body
        target = self._target
        parser = self._parser
        keep_alive = parser.should_keep_alive()
        self.ready.append(
            Request(
                parser.get_method(),
                target,
                path_of(target),
                self._headers,
                b"".join(body),
                keep_alive,
                parser.get_http_version() == "1.0",
            )
        )
        self.ended = not keep_alive
        self.expecting = False
        self.stage = Stage.IDLE
        self._fed = 0
        self._begin()

    def _plain_head(self) -> bytes:
        """The current head without its Upgrade headers, for a parser that then reads the body.

        RFC 9110, 7.8: an upgrade may be ignored, and llhttp stops at the head when it sees one.
        """
        lines = [b"%s: %s\r\n" % field for field in self._headers if field[0] != b"upgrade"]
        parser = self._parser
        version = parser.get_http_version().encode("ascii")
        start = b"%s %s HTTP/%s\r\n" % (parser.get_method(), self._target, version)
        self._begin()
        return start + b"".join(lines) + b"\r\n"

    def _check_sizes(self) -> None:
        if self.stage is not Stage.BODY:
            if self._fed > self.limits.head:
                self._refuse(
                    431, "headers_too_large", f"more than {self.limits.head} bytes of headers"
                )
        elif self._chunked:
            framing = self._fed - self._body_size
            if framing > self.limits.head + CHUNK_OVERHEAD * self._body_size:
                self._refuse(400, "bad_framing", "the chunks are mostly framing")

    def _refuse(self, status: int, code: str, message: str) -> None:
        # Without a target there is no method yet but that of the request before.
        head = bool(self._target) and self._parser.get_method() == b"HEAD"
        self.ready.append(Refusal(status, code, message, head, path_of(self._target)))
        self.ended = True
        self.expecting = False
        self.stage = Stage.IDLE
        self._body = []

    def _stop(self, status: int, code: str, message: str) -> None:
        self._refuse(status, code, message)
        raise _Refused


_WATCHED = frozenset({b"host", b"content-length", b"transfer-encoding", b"expect", b"upgrade"})
