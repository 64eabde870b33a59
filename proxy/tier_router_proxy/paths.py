"""Every path that the sidecar answers, and the methods that each takes."""

from __future__ import annotations

from collections.abc import Mapping

from tier_router_proxy.doors import DOORS

MODELS = b"/v1/models"
RESPONSE = b"/v1/responses/"
OPENAPI = b"/openapi.json"

PATHS: Mapping[bytes, bytes] = {
    **dict.fromkeys(DOORS, b"POST"),
    b"/v1/systemone": b"POST",
    b"/v1/tier/decision": b"POST",
    b"/v1/tier/feedback": b"POST",
    MODELS: b"GET",
    b"/health": b"GET",
    b"/ready": b"GET",
    b"/metrics": b"GET",
    OPENAPI: b"GET",
}
"""Methods by path, `, ` between them; each GET answers HEAD too, and each path OPTIONS."""

OF_RESPONSE: Mapping[str, bytes] = {"": b"GET, DELETE", "cancel": b"POST", "input_items": b"GET"}
"""Methods by what follows `/v1/responses/ID/`."""

TEMPLATES: Mapping[str, bytes] = {
    f"{MODELS.decode()}/{{model}}": b"GET",
    **{
        f"{RESPONSE.decode()}{{response_id}}/{more}".rstrip("/"): methods
        for more, methods in OF_RESPONSE.items()
    },
}
"""Methods by path with a name in it, as OpenAPI spells such paths."""

OPEN = frozenset({b"/health", b"/ready", b"/metrics", OPENAPI})
"""Paths that need no key: whoever probes and scrapes has none, and the document is no secret."""
