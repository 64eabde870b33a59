"""The head of an upstream's answer out of its bytes; no sockets.

One regular expression validates the whole head and a second takes it apart, both in C. It is
stricter than HTTP allows a recipient to be (no bare LF, no folded lines, no two lengths): whatever
is read here differently from how the client reads it would be a hole, and vLLM's server needs none
of the leniencies.
"""

from __future__ import annotations

import re

from tier_router_proxy.http.messages import (
    CHUNKED,
    CLOSE,
    LENGTH,
    NONE,
    Framing,
    Head,
    Headers,
    connection_tokens,
)

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_TEXT = rb"[\t\x20-\x7e\x80-\xff]*"
_FIELD_LINE = _TOKEN + rb":" + _TEXT + rb"\r\n"
_HEAD = re.compile(
    rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: (" + _TEXT + rb"))?\r\n((?:" + _FIELD_LINE + rb")*)\r\n"
)
_FIELD = re.compile(rb"(" + _TOKEN + rb"):(" + _TEXT + rb")\r\n")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_START = b"HTTP/1."
# Such a head would never end here: better to say so than to wait for the rest.
_BARE_LF = re.compile(rb"(?<!\r)\n")


class BadAnswer(ValueError):
    """What the upstream sent is not an HTTP/1 answer that can be passed on."""


class HeadReader:
    """Finds one answer's head; `begun` says whether any byte of it has come."""

    __slots__ = ("_buffer", "_limit", "_no_body", "begun")

    def __init__(self, limit: int, *, no_body: bool = False) -> None:
        self._limit = limit
        self._no_body = no_body
        self._buffer = b""
        self.begun = False

    def feed(self, data: bytes) -> tuple[Head, bytes] | None:
        """The final head and the raw bytes behind it, or None while it is not complete.

        Interim answers (1xx) are dropped.
        """
        self.begun = True
        seen = 0
        if self._buffer:
            seen = max(0, len(self._buffer) - 3)
            data = self._buffer + data
        while True:
            stop = data.find(b"\r\n\r\n", seen) + 4
            if stop < 4 or stop > self._limit:
                self._wait(data, stop)
                return None
            head = _parse(data[:stop], self._no_body)
            data = data[stop:]
            if head.status >= 200:
                self._buffer = b""
                return head, data
            if head.status == 101:
                raise BadAnswer("switches protocols unasked")
            seen = 0
            if not data:
                self._buffer = b""
                return None

    def _wait(self, data: bytes, stop: int) -> None:
        start = data[: len(_START)]
        if not _START.startswith(start):
            raise BadAnswer("does not begin like HTTP/1")
        if stop > self._limit or len(data) > self._limit:
            raise BadAnswer(f"more than {self._limit} bytes of head")
        if _BARE_LF.search(data):
            raise BadAnswer("malformed head")
        self._buffer = data


def _parse(raw: bytes, no_body: bool) -> Head:
    match = _HEAD.fullmatch(raw)
    if match is None:
        raise BadAnswer("malformed head")
    minor, code, reason, block = match.groups()
    headers = [(name.lower(), value.strip(b" \t")) for name, value in _FIELD.findall(block)]
    status = int(code)
    framing, keep_alive = _framing(status, minor == b"1", headers, no_body)
    return Head(status, reason or b"", headers, framing, keep_alive)


def _framing(status: int, http11: bool, headers: Headers, no_body: bool) -> tuple[Framing, bool]:
    length = coding = None
    connection = False
    for name, value in headers:
        if name == b"content-length":
            if length is not None or _LENGTH.fullmatch(value) is None:
                raise BadAnswer("bad content-length")
            length = int(value)
        elif name == b"transfer-encoding":
            if coding is not None or value.lower() != b"chunked" or not http11:
                raise BadAnswer("transfer coding other than chunked")
            coding = value
        elif name == b"connection":
            connection = True
    if length is not None and coding is not None:
        raise BadAnswer("both a length and chunks")
    keep_alive = http11
    if connection:
        tokens = connection_tokens(headers)
        keep_alive = b"close" not in tokens and (http11 or b"keep-alive" in tokens)
    if no_body or status < 200 or status in (204, 304):
        return NONE, keep_alive
    if coding is not None:
        return CHUNKED, keep_alive
    if length is not None:
        return LENGTH(length), keep_alive
    return CLOSE, False
