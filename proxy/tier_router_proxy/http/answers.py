"""The heads of answers to clients, and the error answers of the server itself; no sockets."""

from __future__ import annotations

import json
from http import HTTPStatus

from tier_router_proxy.http.messages import Framing, FramingKind, Headers, encode_headers
from tier_router_proxy.http.requests import Refusal

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
REASONS = {status.value: status.phrase.encode("ascii") for status in HTTPStatus}
# The server alone says how a body ends and whether the connection lives on.
_OWN = frozenset({b"content-length", b"transfer-encoding", b"connection", b"keep-alive"})
_OWN_BODILESS = _OWN - {b"content-length"}


def bodiless(method: bytes, status: int) -> bool:
    """Whether an answer has no body whatever its headers say (RFC 9112, 6.3)."""
    return method == b"HEAD" or status in (204, 304)


def answer_head(
    status: int,
    reason: bytes,
    headers: Headers,
    framing: Framing | None,
    *,
    keep_alive: bool,
    http10: bool = False,
) -> bytes:
    """A complete answer head, blank line included.

    `framing` None stands for no framing header at all; `NONE` keeps a `content-length` that
    informs (HEAD, 304). Raises ValueError for a field or a reason with a line break in it.
    """
    if not 200 <= status <= 999:
        raise ValueError(f"no final status: {status}")
    if b"\r" in reason or b"\n" in reason:
        raise ValueError("reason with a line break in it")
    kind = framing.kind if framing is not None else None
    never = _OWN_BODILESS if kind is FramingKind.NONE and status != 204 else _OWN
    lines = encode_headers([field for field in headers if field[0] not in never])
    tail = b"\r\n"
    if status == 204:
        pass  # RFC 9110, 8.6: neither a length nor a coding
    elif kind is FramingKind.LENGTH and framing is not None:
        tail = b"content-length: %d\r\n\r\n" % framing.length
    elif kind is FramingKind.CHUNKED:
        tail = b"transfer-encoding: chunked\r\n\r\n"
    if not keep_alive:
        tail = b"connection: close\r\n" + tail
    elif http10:
        tail = b"connection: keep-alive\r\n" + tail
    return b"HTTP/1.1 %d %s\r\n%s%s" % (status, reason, lines, tail)


def plain_refusal(refusal: Refusal) -> tuple[Headers, bytes]:
    """The headers and the body of an error answer, in the shape of OpenAI's API."""
    kind = "invalid_request_error" if refusal.status < 500 else "server_error"
    error = {"message": refusal.message, "type": kind, "param": None, "code": refusal.code}
    body = json.dumps({"error": error}, separators=(",", ":")).encode()
    return [(b"content-type", b"application/json")], body
