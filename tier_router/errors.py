"""What can go wrong, as one small tree.

    TierRouterError
      ConfigError             a file people wrote; names file, line and key
      RequestError      400   not a body we can read; names the field
        UnknownTier     404   no tier, alias or model of that name
        PromptTooLong   400   no tier has the context (`context_length_exceeded`)
        NotCapable      400   no tier can do what the request needs
        BodyTooLarge    413
      Unauthorized      401
      NotAllowed        403   the API key does not open a tier that could answer
      RateLimited       429   the API key has reached its limit; has `retry_after`
      NoReplica         503   nothing is up that may answer; has `retry_after`
      Overloaded        503   everything that may answer is over its limit; has `retry_after`
      UpstreamError     502   the replica failed, and nobody else could take over
        UpstreamTimeout 504

Each class carries the HTTP `status`, the OpenAI error `type` and a short `code` that is fit for a
metric label.  `shape` is OpenAI's; other doors have one table each.
"""

from __future__ import annotations

from typing import Any


class TierRouterError(Exception):
    """The root of everything that this package raises on purpose."""

    status = 500
    type = "server_error"
    code = "internal_error"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param

    def shape(self) -> dict[str, Any]:
        """The error as OpenAI's API spells it: `{"error": {message, type, param, code}}`."""
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "param": self.param,
                "code": self.code,
            }
        }


class ConfigError(TierRouterError):
    """A configuration that cannot be used; the message starts with `file:line key:`."""

    code = "config_error"

    def __init__(
        self, message: str, *, file: str = "", line: int | None = None, key: str = ""
    ) -> None:
        place = f"{file}:{line}" if file and line else file
        where = " ".join(part for part in (place, key) if part)
        super().__init__(f"{where}: {message}" if where else message, param=key or None)
        self.file, self.line, self.key = file, line, key


class RequestError(TierRouterError):
    """A request that cannot be read; `param` names the field."""

    status = 400
    type = "invalid_request_error"
    code = "invalid_request"


class UnknownTier(RequestError):
    """The request names a tier or model that the ladder does not have."""

    status = 404
    code = "model_not_found"


class PromptTooLong(RequestError):
    """No tier that may answer has the context for this prompt."""

    code = "context_length_exceeded"


class NotCapable(RequestError):
    """No tier can do what the request needs (images, tools, ...)."""

    code = "no_capable_tier"


class BodyTooLarge(RequestError):
    """The body is over the configured limit."""

    status = 413
    code = "body_too_large"


class Unauthorized(TierRouterError):
    """A missing or wrong API key."""

    status = 401
    type = "authentication_error"
    code = "invalid_api_key"


class NotAllowed(TierRouterError):
    """The client's API key does not open a tier that could answer."""

    status = 403
    type = "permission_error"
    code = "tier_not_allowed"


class RateLimited(TierRouterError):
    """The client's API key has as much under way, or a second, as it may; has `retry_after`."""

    status = 429
    type = "rate_limit_error"
    code = "rate_limit_exceeded"

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class NoReplica(TierRouterError):
    """No replica that may answer is up; worth another try after `retry_after` seconds."""

    status = 503
    type = "service_unavailable"
    code = "no_replica"

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Overloaded(TierRouterError):
    """Every replica that may answer has more to do than `load.shed` lets it have.

    `tier` is the least loaded of their tiers; `excess` (0..1) is the share of what it has in
    flight that must end before there is room.
    """

    status = 503
    type = "service_unavailable"
    code = "overloaded"

    def __init__(
        self, message: str, *, tier: str = "", excess: float = 0.0, retry_after: float = 1.0
    ) -> None:
        super().__init__(message)
        self.tier, self.excess, self.retry_after = tier, excess, retry_after


class UpstreamError(TierRouterError):
    """The replica failed before its answer began, and no other could take over."""

    status = 502
    type = "upstream_error"
    code = "upstream_error"

    def __init__(self, message: str, *, replica: str = "") -> None:
        super().__init__(message)
        self.replica = replica


class UpstreamTimeout(UpstreamError):
    """The replica did not answer within its deadline."""

    status = 504
    code = "upstream_timeout"
