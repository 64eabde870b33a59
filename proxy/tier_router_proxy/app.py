"""What the sidecar answers: the paths that are relayed, and the few around them.

Everything is answered on the data plane's one port.  Models, health, readiness and metrics are a
few bytes each; a web framework on a second port would be one more thing to deploy.
"""

from __future__ import annotations

import asyncio
import hmac
import math
import re
import time
import uuid
from collections.abc import Callable, Mapping

from tier_router.config.model import AUTO
from tier_router.errors import RequestError, TierRouterError, Unauthorized, UnknownTier
from tier_router.explain import record
from tier_router.questions import messages_of
from tier_router_proxy import body
from tier_router_proxy.answers import JSON, UnknownPath, WrongMethod, error_headers, json_body
from tier_router_proxy.http.messages import Request
from tier_router_proxy.http.server import Exchange
from tier_router_proxy.metrics import CONTENT_TYPE
from tier_router_proxy.relay import Incoming, Relay, Upstreams, tags_of

DOORS = {b"/v1/chat/completions": "messages", b"/v1/completions": "prompt"}
"""Paths that are routed and relayed, with the field that each body must have."""

MODELS = b"/v1/models"
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")


class App:
    """Answers requests; what it holds may be replaced while it serves."""

    def __init__(self, up: Upstreams) -> None:
        self.up = up
        self.draining = False
        self._started = int(time.time())
        self._waiting: set[asyncio.Task[None]] = set()
        self._paths: Mapping[bytes, tuple[bytes, Callable[[Exchange], None]]] = {
            **dict.fromkeys(DOORS, (b"POST", self._relayed)),
            b"/v1/systemone": (b"POST", self._systemone),
            b"/v1/tier/decision": (b"POST", self._decision),
            MODELS: (b"GET", self._models),
            b"/health": (b"GET", self._health),
            b"/ready": (b"GET", self._ready),
            b"/metrics": (b"GET", self._metrics),
        }

    def __call__(self, exchange: Exchange) -> None:
        """Answers one request, at once or through a relay."""
        try:
            self._answerer(exchange.request)(exchange)
        except TierRouterError as error:
            self._refuse(exchange, error)

    def _refuse(self, exchange: Exchange, error: TierRouterError) -> None:
        self.up.metrics.errored(error.code)
        headers = error_headers(error)
        headers.append((b"x-request-id", _id_of(exchange.request).encode()))
        exchange.respond(error.status, headers, json_body(error.shape()))

    def _answerer(self, request: Request) -> Callable[[Exchange], None]:
        path = request.path
        known = self._paths.get(path)
        if known is None and path.startswith(MODELS + b"/"):
            known = (b"GET", self._model)
        if known is None:
            raise UnknownPath(f"nothing is served at `{path.decode('latin-1')[:100]}`")
        method, answerer = known
        asked = b"GET" if request.method == b"HEAD" else request.method
        if asked != method:
            raise WrongMethod(f"`{path.decode('latin-1')}` takes {method.decode()}", allow=method)
        if path.startswith(b"/v1/"):
            self._authorise(request)
        return answerer

    def _authorise(self, request: Request) -> None:
        keys = self.up.router.config.server.api_keys
        if not keys:
            return
        scheme, _, given = (request.header(b"authorization") or b"").partition(b" ")
        known = False
        for key in keys:  # all of them, in constant time each
            known |= hmac.compare_digest(given.strip(), key.get_secret_value().encode())
        if not known or scheme.lower() != b"bearer":
            raise Unauthorized(
                "wrong API key" if given else "send an API key as `Authorization: Bearer KEY`"
            )

    # ---- what is routed and relayed

    def _relayed(self, exchange: Exchange) -> None:
        arrived = self.up.now()
        request = exchange.request
        fields = body.read(request.body)
        wanted = DOORS[request.path]
        if wanted not in fields:
            raise RequestError(f"the request must have `{wanted}`", param=wanted)
        view = self.up.router.view(fields, _plain(request))
        incoming = Incoming(_id_of(request), request.body, fields, view, arrived)
        if self.up.router.waits:
            task = asyncio.get_running_loop().create_task(self._relayed_later(exchange, incoming))
            self._waiting.add(task)
            task.add_done_callback(self._waiting.discard)
        else:
            Relay(self.up, exchange, incoming).begin()

    async def _relayed_later(self, exchange: Exchange, incoming: Incoming) -> None:
        """Relays when the classifier has asked whom it asks; other requests go on meanwhile."""
        await self.up.router.ahead(incoming.view)
        if exchange.closed:
            return
        try:
            Relay(self.up, exchange, incoming).begin()
        except TierRouterError as error:
            self._refuse(exchange, error)

    # ---- the decision by itself

    def _decision(self, exchange: Exchange) -> None:
        """Where a body would go now, and why; nothing is sent."""
        request = exchange.request
        router = self.up.router
        decision = router.decide(router.view(body.read(request.body), _plain(request)))
        headers = [JSON, (b"x-request-id", _id_of(request).encode()), *tags_of(decision)]
        exchange.respond(200, headers, json_body(record(decision)))

    def _systemone(self, exchange: Exchange) -> None:
        """Typed questions about a text, in the shape of vLLM's endpoint of this name."""
        request = exchange.request
        fields = body.read(request.body)
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
            "request_id": _id_of(request),
        }
        exchange.respond(200, [JSON], json_body(told))

    # ---- around it

    def _models(self, exchange: Exchange) -> None:
        data = [self._entry(name) for name in self._names()]
        exchange.respond(200, [JSON], json_body({"object": "list", "data": data}))

    def _model(self, exchange: Exchange) -> None:
        name = exchange.request.path[len(MODELS) + 1 :].decode("latin-1")
        if name not in self._names():
            raise UnknownTier(f"no model named `{name[:100]}`", param="model")
        exchange.respond(200, [JSON], json_body(self._entry(name)))

    def _names(self) -> list[str]:
        """What a client may name: `auto`, the ladder, and the aliases."""
        config = self.up.router.config
        return [*dict.fromkeys([AUTO, *config.ladder, *config.aliases])]

    def _entry(self, name: str) -> dict[str, object]:
        config = self.up.router.config
        tier = config.ladder.get(config.pins[name])
        contexts = [t.context for t in (config.tiers if tier is None else [config.tiers[tier]])]
        known = [context for context in contexts if context is not None]
        entry: dict[str, object] = {
            "id": name,
            "object": "model",
            "created": self._started,
            "owned_by": "tier-router",
        }
        if known and len(known) == len(contexts):
            entry["max_model_len"] = max(known)
        return entry

    def _health(self, exchange: Exchange) -> None:
        exchange.respond(200, [JSON], b'{"status":"ok"}')

    def _ready(self, exchange: Exchange) -> None:
        """200 while something can be answered; the pressures say how full it is."""
        loads = self.up.router.pressures()
        tiers = {
            tier.name: min(loads.get(replica.name or replica.url, 0.0) for replica in tier.replicas)
            for tier in self.up.router.config.tiers
        }
        up = any(math.isfinite(load) for load in tiers.values())
        status = "draining" if self.draining else "ok" if up else "no replica is up"
        shown = {name: round(p, 3) if math.isfinite(p) else "down" for name, p in tiers.items()}
        exchange.respond(
            200 if status == "ok" else 503, [JSON], json_body({"status": status, "tiers": shown})
        )

    def _metrics(self, exchange: Exchange) -> None:
        exchange.respond(200, [(b"content-type", CONTENT_TYPE)], self.up.metrics.text())


def _plain(request: Request) -> dict[str, str]:
    """The headers as text; of repeated ones the first counts."""
    return {n.decode("latin-1"): v.decode("latin-1") for n, v in reversed(request.headers)}


def _id_of(request: Request) -> str:
    """The client's request id where it is a plain one, else a new one."""
    given = request.header(b"x-request-id")
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given.decode()
    return uuid.uuid4().hex
