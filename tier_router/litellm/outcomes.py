"""How an attempt of LiteLLM ended, in the ledger's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tier_router.dispatch import Failure, failure_of_answer
from tier_router.ledger import Outcome

STATUS = {
    "RateLimitError": 429,
    "InternalServerError": 500,
    "BadGatewayError": 502,
    "ServiceUnavailableError": 503,
}
"""The status behind those of LiteLLM's exceptions that can be a replica's fault."""

_UNREACHABLE = ("connection error", "cannot connect", "connect call failed", "connection refused",
                "server disconnected", "connection reset", "name or service not known")  # fmt: skip
"""What LiteLLM's own 500 says where no server answered (lower case)."""


def failure_of(error: object) -> Failure | None:
    """The failure that an exception of LiteLLM is, or None where the request earned it."""
    status = getattr(error, "status_code", None)
    return _failure(type(error).__name__, status, str(error), _retry_after(error))


def failure_before(bucket: Mapping[str, Any] | None) -> Failure | None:
    """The failure of the attempt before this one, from LiteLLM's list of attempts: its proxy tells
    callbacks of a request's first failure only."""
    attempts = None if bucket is None else bucket.get("previous_models")
    if not isinstance(attempts, list | tuple) or not attempts:
        return None
    last = attempts[-1]
    if not isinstance(last, Mapping):
        return None
    name = str(last.get("exception_type"))
    return _failure(name, STATUS.get(name), str(last.get("exception_string")), None)


def _failure(name: str, status: object, text: str, retry_after: str | None) -> Failure | None:
    if name in ("Timeout", "APITimeoutError"):
        return Failure(Outcome.FAILED, text, timeout=True)
    if name == "APIConnectionError":
        return Failure(Outcome.FAILED, text)
    if not isinstance(status, int):
        return None
    if status >= 500 and any(words in text.lower() for words in _UNREACHABLE):
        return Failure(Outcome.FAILED, text)
    return failure_of_answer(status, text.encode("utf-8", "replace"), retry_after)


def _retry_after(error: Any) -> str | None:
    headers = getattr(error, "litellm_response_headers", None)
    if headers is None:
        headers = getattr(getattr(error, "response", None), "headers", None)
    value = headers.get("retry-after") if isinstance(headers, Mapping) else None
    return None if value is None else str(value)
