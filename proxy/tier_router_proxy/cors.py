"""Which pages may call from a browser (the fetch standard's CORS protocol)."""

from __future__ import annotations

from collections.abc import Collection

from tier_router_proxy.http.messages import Headers, Request

ALL = "*"
METHODS = b"GET, HEAD, POST, DELETE, OPTIONS"
LASTS = b"600"
"""Seconds for which a browser may keep a preflight's answer: Chromium's limit is two hours, and
what the configuration allows may change sooner."""
SHOWN = (
    b"x-request-id, x-tier-router-tier, x-tier-router-replica, x-tier-router-reason, "
    b"x-tier-router-difficulty, x-tier-router-pruned, retry-after"
)
"""Headers of an answer that a page may read besides the few that it always may."""


def cors_headers(request: Request, origins: Collection[str]) -> Headers:
    """The headers by which a page of the request's origin may read the answer; none where it may
    not, or where nobody asks."""
    if not origins:
        return []
    varies = (b"vary", b"origin")
    origin = request.header(b"origin")
    if origin is None:
        return [varies]
    if ALL in origins:
        allowed = b"*"
    elif origin.decode("latin-1") in origins:
        allowed = origin
    else:
        return [varies]
    headers = [varies, (b"access-control-allow-origin", allowed)]
    if not is_preflight(request):
        headers.append((b"access-control-expose-headers", SHOWN))
        return headers
    headers += [
        (b"access-control-allow-methods", METHODS),
        (b"access-control-max-age", LASTS),
    ]
    asked = request.header(b"access-control-request-headers")
    if asked:
        headers.append((b"access-control-allow-headers", asked))
    return headers


def is_preflight(request: Request) -> bool:
    """Whether a browser asks what a page may send."""
    return (
        request.method == b"OPTIONS"
        and request.header(b"origin") is not None
        and request.header(b"access-control-request-method") is not None
    )
