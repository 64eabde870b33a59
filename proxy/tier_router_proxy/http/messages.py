"""HTTP messages as plain values, and which of their headers may travel on.

Header names are lower case everywhere; values are the sender's bytes without surrounding blanks.
`Request` and `Head` are built on the hot path, so they are slotted but not frozen (a frozen
dataclass costs a microsecond more to build); treat them as read-only.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum

Headers = list[tuple[bytes, bytes]]

# RFC 9110, 7.6.1, and what older agents send in the same spirit.
HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
# What the proxy says for itself towards an upstream. `accept-encoding` goes because a compressing
# upstream would hold events back; `expect` is answered by the proxy; `http2-settings` belongs to
# an h2c upgrade that the proxy declines.
OWN_TOWARDS_UPSTREAM = frozenset(
    {b"host", b"content-length", b"accept-encoding", b"expect", b"http2-settings"}
)
_NEVER_UPSTREAM = HOP_BY_HOP | OWN_TOWARDS_UPSTREAM
_NEVER_CLIENT = HOP_BY_HOP | {b"content-length"}
_NEVER_CLIENT_BODILESS = HOP_BY_HOP
# Connection tokens that name no header.
_PLAIN_CONNECTION = frozenset({b"keep-alive", b"close"})
_BAD_FIELD = re.compile(rb"[\r\n\0]")


class FramingKind(Enum):
    """How the end of a message body is known."""

    LENGTH = "length"
    CHUNKED = "chunked"
    CLOSE = "close"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Framing:
    """One body's framing; `length` counts only for `LENGTH`."""

    kind: FramingKind
    length: int = 0


CHUNKED = Framing(FramingKind.CHUNKED)
CLOSE = Framing(FramingKind.CLOSE)
NONE = Framing(FramingKind.NONE)


def LENGTH(length: int) -> Framing:  # noqa: N802 - reads like its three sisters
    """The framing of a body of `length` bytes."""
    return Framing(FramingKind.LENGTH, length)


@dataclass(slots=True, eq=False)
class Request:
    """One complete request of a client, its body de-chunked and whole."""

    method: bytes
    target: bytes
    path: bytes
    headers: Headers
    body: bytes
    keep_alive: bool
    http10: bool

    def header(self, name: bytes) -> bytes | None:
        """The first value of the header with this lower-case name."""
        for key, value in self.headers:
            if key == name:
                return value
        return None


@dataclass(slots=True, eq=False)
class Head:
    """The head of an upstream's answer, and how its body ends."""

    status: int
    reason: bytes
    headers: Headers
    framing: Framing
    keep_alive: bool

    def header(self, name: bytes) -> bytes | None:
        """The first value of the header with this lower-case name."""
        for key, value in self.headers:
            if key == name:
                return value
        return None


def origin_form(target: bytes) -> bytes:
    """Path and query of an origin-form or absolute-form request target; any other unchanged."""
    if target.startswith(b"/"):
        return target
    scheme, colon, rest = target.partition(b"://")
    if not colon or b"/" in scheme or b"?" in scheme:
        return target
    location, question, query = rest.partition(b"?")
    slash = location.find(b"/")
    path = location[slash:] if slash >= 0 else b"/"
    return path + question + query


def path_of(target: bytes) -> bytes:
    """The path of an origin-form or absolute-form request target, without the query."""
    return origin_form(target).partition(b"?")[0]


def connection_tokens(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Everything that the Connection headers list, in lower case."""
    return frozenset(
        token.strip()
        for name, value in headers
        if name == b"connection"
        for token in value.lower().split(b",")
        if token.strip()
    )


def _passing(
    headers: Headers, never: frozenset[bytes], drop: Collection[bytes], keep: bytes | None
) -> Headers:
    named = connection_tokens(headers) - _PLAIN_CONNECTION
    if keep is not None:
        named -= {keep}
    if named or drop:
        never = never.union(named, drop)
    return [field for field in headers if field[0] not in never]


def upstream_headers(headers: Headers, drop: Collection[bytes] = ()) -> Headers:
    """The client's headers that may go to an upstream.

    Gone are hop-by-hop headers, those that Connection names, those that the proxy sets itself
    (`OWN_TOWARDS_UPSTREAM`) and those in `drop`.
    """
    return _passing(headers, _NEVER_UPSTREAM, drop, None)


def client_headers(head: Head, drop: Collection[bytes] = ()) -> Headers:
    """The upstream's headers that may go to the client; `Exchange.start` adds the framing.

    A `content-length` stays only on an answer without a body (HEAD, 304), where it informs
    instead of framing.
    """
    bodiless = head.framing.kind is FramingKind.NONE
    never = _NEVER_CLIENT_BODILESS if bodiless else _NEVER_CLIENT
    return _passing(head.headers, never, drop, b"content-length" if bodiless else None)


def encode_headers(fields: Headers) -> bytes:
    """The header lines, each with its line break; ValueError if a field would break out of them."""
    lines = b"".join([b"%s: %s\r\n" % field for field in fields])
    # Three scans of the whole instead of three per field: each field owns one CRLF and no more.
    if not len(fields) == lines.count(b"\r\n") == lines.count(b"\n") == lines.count(b"\r"):
        raise ValueError("header field with a line break in it")
    return lines


def request_head(
    method: bytes, target: bytes, host: bytes, headers: Headers, length: int | None
) -> bytes:
    """A complete request head towards an upstream, blank line included.

    `length` is the body's, or None for a request without one (GET, HEAD).
    """
    if _BAD_FIELD.search(target) or b" " in target or _BAD_FIELD.search(host):
        raise ValueError("request target or host with a blank or a line break in it")
    tail = b"\r\n" if length is None else b"content-length: %d\r\n\r\n" % length
    return b"%s %s HTTP/1.1\r\nhost: %s\r\n%s%s" % (
        method,
        target,
        host,
        encode_headers(headers),
        tail,
    )
