"""What the sidecar says for itself: JSON answers, and errors in OpenAI's shape."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from tier_router.errors import (
    BodyTooLarge,
    NoReplica,
    Overloaded,
    RequestError,
    TierRouterError,
    Unauthorized,
)
from tier_router_proxy.http.messages import Headers
from tier_router_proxy.http.requests import Refusal

JSON: tuple[bytes, bytes] = (b"content-type", b"application/json")


class UnknownPath(RequestError):
    """No such path here."""

    status = 404
    code = "unknown_path"


class WrongMethod(RequestError):
    """The path takes another method."""

    status = 405
    code = "method_not_allowed"

    def __init__(self, message: str, *, allow: bytes) -> None:
        super().__init__(message)
        self.allow = allow


def json_body(value: Any) -> bytes:
    """`value` as JSON."""
    return msgspec.json.encode(value)


def error_headers(error: TierRouterError) -> Headers:
    """The headers of an error's answer."""
    headers: Headers = [JSON]
    if isinstance(error, NoReplica | Overloaded):
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(error.retry_after))))
    if isinstance(error, WrongMethod):
        headers.append((b"allow", error.allow))
    if isinstance(error, Unauthorized):
        headers.append((b"www-authenticate", b"Bearer"))
    return headers


def refusal_answer(refusal: Refusal) -> tuple[Headers, bytes]:
    """Headers and body for a request that was refused before it could be read."""
    kind = BodyTooLarge if refusal.status == 413 else RequestError
    shape = kind(refusal.message).shape()
    shape["error"]["code"] = refusal.code
    return [JSON], json_body(shape)
