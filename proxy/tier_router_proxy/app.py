"""What the sidecar answers: the paths that are relayed, and the few around them.

Everything is answered on the data plane's one port.  Models, health, readiness and metrics are a
few bytes each; a web framework on a second port would be one more thing to deploy.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tier_router.errors import RequestError, TierRouterError
from tier_router.explain import record
from tier_router.questions import messages_of
from tier_router_proxy import body
from tier_router_proxy.answers import (
    JSON,
    UnknownPath,
    WrongMethod,
    error_body,
    error_headers,
    json_body,
)
from tier_router_proxy.cors import cors_headers, is_preflight
from tier_router_proxy.doors import DOORS
from tier_router_proxy.feedback import UnknownAnswer
from tier_router_proxy.http.messages import Request
from tier_router_proxy.http.server import Exchange
from tier_router_proxy.keepers import ID
from tier_router_proxy.keys import Keys
from tier_router_proxy.outgoing import tags_of
from tier_router_proxy.own import Own
from tier_router_proxy.paths import MODELS, OF_RESPONSE, OPEN, OPENAPI, PATHS, RESPONSE
from tier_router_proxy.routed import Routed, plain_headers, request_id, within
from tier_router_proxy.siblings import Siblings
from tier_router_proxy.ui.page import PAGES, PATH, Page
from tier_router_proxy.upstreams import Upstreams

log = logging.getLogger("tier_router_proxy")

Answerer = Callable[[Exchange, bytes], None]
"""Answers a request to a path, which is given without a slash at its end."""


class App:
    """Answers requests; what it holds may be replaced while it serves."""

    def __init__(self, up: Upstreams) -> None:
        self.up = up
        self.own = own = Own(up)
        self.keys = Keys(up.router.config.server.api_keys)
        self.ui = Page(up)
        self.siblings: Siblings | None = None
        self._routed = routed = Routed(up, self.keys, self._refuse)
        answerers: dict[bytes, Answerer] = {
            **{path: partial(routed.relayed, door) for path, door in DOORS.items()},
            b"/v1/systemone": self._systemone,
            b"/v1/tier/decision": self._decision,
            b"/v1/tier/feedback": self._feedback,
            MODELS: own.models,
            b"/health": own.health,
            b"/ready": own.ready,
            b"/metrics": own.metrics,
            OPENAPI: own.openapi,
        }
        self._paths: Mapping[bytes, tuple[bytes, Answerer]] = {
            path: (PATHS[path], answerer) for path, answerer in answerers.items()
        }

    @property
    def draining(self) -> bool:
        """Whether nothing new shall come."""
        return self.own.draining

    @draining.setter
    def draining(self, draining: bool) -> None:
        self.own.draining = draining

    def __call__(self, exchange: Exchange) -> None:
        """Answers one request, at once or through a relay."""
        request = exchange.request
        origins = self.up.router.config.server.cors
        if origins:
            exchange.extra = cors_headers(request, origins)
        path = request.path
        if path.endswith(b"/"):
            path = path.rstrip(b"/") or b"/"
        try:
            self._answerer(request, path)(exchange, path)
        except TierRouterError as error:
            self._refuse(exchange, error)
        except Exception as error:  # noqa: BLE001  a fault of ours: it goes to the log
            self._routed.failed(exchange, error)

    def _refuse(self, exchange: Exchange, error: TierRouterError, name: str | None = None) -> None:
        self.up.metrics.errored(error.code)
        headers, name = error_headers(error), name or request_id(exchange.request)
        headers.append((b"x-request-id", name.encode()))
        body = error_body(error, exchange.request.path, name)
        exchange.respond(error.status, headers, body)

    def _answerer(self, request: Request, path: bytes) -> Answerer:
        known = self._paths.get(path) or self._below(path)
        if known is None:
            raise UnknownPath(f"nothing is served at `{path.decode('latin-1')[:100]}`")
        methods, answerer = known
        asked = b"GET" if request.method == b"HEAD" else request.method
        if asked == b"OPTIONS":
            return partial(_options, methods)
        if asked not in methods.split(b", "):
            named = methods.decode().replace(", ", " and ")
            raise WrongMethod(f"`{path.decode('latin-1')}` takes {named}", allow=methods)
        if path not in OPEN and path not in PAGES:
            self.keys.holder(request)
        return answerer

    def _below(self, path: bytes) -> tuple[bytes, Answerer] | None:
        """What answers at a path that has a name in it."""
        if path.startswith(MODELS + b"/"):
            return b"GET", self.own.model
        if path.startswith(PATH):
            return self.ui.at(path)
        if path.startswith(RESPONSE):
            name, _, more = path[len(RESPONSE) :].decode("latin-1").partition("/")
            methods = OF_RESPONSE.get(more)
            if methods is not None and ID.fullmatch(name):
                return methods, partial(self._routed.stored, name)
        return None

    # ---- verdicts on answers

    def _feedback(self, exchange: Exchange, path: bytes) -> None:
        """Keeps a verdict on an earlier answer, of this worker or of another."""
        raw = self._routed.body(exchange.request)
        told = body.read(raw)

        async def take() -> None:
            try:
                name = await self._taken(told, raw)
            except TierRouterError as error:
                self._refuse(exchange, error)
            else:
                exchange.respond(200, [JSON], json_body({"request_id": name, "kept": True}))

        self._routed.run(exchange, take())

    async def _taken(self, told: Mapping[str, Any], raw: bytes) -> str:
        try:
            return await self.up.feedback.take(told, self.up.router.config)
        except UnknownAnswer:
            if self.siblings is None or not await self.siblings.ask(raw):
                raise
        return str(told["request_id"])

    async def asked(self, raw: bytes) -> bytes:
        """What another worker is answered that was given a verdict: nothing where the verdict is
        on none of this worker's answers."""
        try:
            return (await self.up.feedback.take(body.read(raw), self.up.router.config)).encode()
        except TierRouterError:
            return b""

    # ---- the decision by itself

    def _decision(self, exchange: Exchange, path: bytes) -> None:
        """Where a body would go now, and why; nothing is sent."""
        request = exchange.request
        router = self.up.router
        view = router.view(body.read(self._routed.body(request)), plain_headers(request))
        decision = router.decide(within(view, self.keys.holder(request)))
        headers = [JSON, (b"x-request-id", request_id(request).encode()), *tags_of(decision)]
        exchange.respond(200, headers, json_body(record(decision)))

    def _systemone(self, exchange: Exchange, path: bytes) -> None:
        """Typed questions about a text, in the shape of vLLM's endpoint of this name."""
        request = exchange.request
        fields = body.read(self._routed.body(request))
        questions = fields.get("questions")
        if not isinstance(questions, dict) or not questions:
            raise RequestError("`questions` must be an object that is not empty", param="questions")
        if "state" not in fields:
            raise RequestError("you must give a `state`", param="state")
        view = self.up.router.view({"messages": messages_of(fields["state"])})
        told = {
            "model": "tier-router",
            "answers": self.up.router.answers(view, questions),
            "usage": {"input_tokens": view.tokens, "output_tokens": 0, "total_tokens": view.tokens},
            "request_id": request_id(request),
        }
        exchange.respond(200, [JSON], json_body(told))


def _options(methods: bytes, exchange: Exchange, path: bytes) -> None:
    """What a path takes; to a browser's preflight, what `Exchange.extra` says."""
    if is_preflight(exchange.request):
        exchange.respond(204, [])
    else:
        allowed = methods.replace(b"GET", b"GET, HEAD") + b", OPTIONS"
        exchange.respond(204, [(b"allow", allowed)])
