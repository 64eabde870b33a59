"""What the sidecar says for itself: JSON answers, and errors in OpenAI's shape or Anthropic's."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from tier_router.errors import (
    BodyTooLarge,
    NoReplica,
    Overloaded,
    RateLimited,
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


ANTHROPIC = b"/v1/messages"
"""The path, and the start of those below it, whose clients know Anthropic's errors."""

_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def json_body(value: Any) -> bytes:
    """`value` as JSON."""
    return msgspec.json.encode(value)


def speaks_anthropic(path: bytes) -> bool:
    """Whether the clients of a path (or target) know Anthropic's errors instead of OpenAI's."""
    return path.startswith(ANTHROPIC) and path[len(ANTHROPIC) : len(ANTHROPIC) + 1] in (
        b"",
        b"/",
        b"?",
    )


def error_body(error: TierRouterError, path: bytes, request_id: str | None = None) -> bytes:
    """An error as the clients of `path` know it."""
    if not speaks_anthropic(path):
        return json_body(error.shape())
    return _anthropic(error.status, error.message, request_id)


def in_anthropics_shape(status: int, body: bytes) -> bytes | None:
    """A replica's error that has OpenAI's shape, in Anthropic's; None for any other body.

    vLLM answers so on `/v1/messages` where its web framework refuses a body.
    """
    try:
        told = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    error = told.get("error") if isinstance(told, dict) and "type" not in told else None
    message = error.get("message") if isinstance(error, dict) else None
    return _anthropic(status, message) if isinstance(message, str) else None


def _anthropic(status: int, message: str, request_id: str | None = None) -> bytes:
    kind = _ANTHROPIC_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    told: dict[str, Any] = {"type": "error", "error": {"type": kind, "message": message}}
    if request_id is not None:
        told["request_id"] = request_id
    return json_body(told)


def error_headers(error: TierRouterError) -> Headers:
    """The headers of an error's answer."""
    headers: Headers = [JSON]
    if isinstance(error, NoReplica | Overloaded | RateLimited):
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(error.retry_after))))
    if isinstance(error, WrongMethod):
        headers.append((b"allow", error.allow))
    if isinstance(error, Unauthorized):
        headers.append((b"www-authenticate", b"Bearer"))
    return headers


def refusal_answer(refusal: Refusal) -> tuple[Headers, bytes]:
    """Headers and body for a request that was refused before it could be read."""
    kind = BodyTooLarge if refusal.status == 413 else RequestError
    error = kind(refusal.message)
    error.code = refusal.code
    return [JSON], error_body(error, refusal.path)
