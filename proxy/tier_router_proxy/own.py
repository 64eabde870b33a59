"""What the sidecar says of itself: its models, whether it lives, what it has counted."""

from __future__ import annotations

import math
import time
from urllib.parse import unquote_to_bytes

from tier_router.config.model import AUTO
from tier_router.errors import UnknownTier
from tier_router_proxy.answers import JSON, json_body
from tier_router_proxy.http.server import Exchange
from tier_router_proxy.metrics import CONTENT_TYPE
from tier_router_proxy.openapi import encoded
from tier_router_proxy.paths import MODELS
from tier_router_proxy.upstreams import Upstreams


class Own:
    """Answers about one sidecar."""

    def __init__(self, up: Upstreams) -> None:
        self.up = up
        self.draining = False
        self._started = int(time.time())

    def models(self, exchange: Exchange, path: bytes) -> None:
        """What a client may name as model."""
        data = [self._entry(name) for name in self._names()]
        exchange.respond(200, [JSON], json_body({"object": "list", "data": data}))

    def model(self, exchange: Exchange, path: bytes) -> None:
        """One of them."""
        name = unquote_to_bytes(path[len(MODELS) + 1 :]).decode("utf-8", "replace")
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
        ladder = config.tiers[: config.rungs]
        contexts = [t.context for t in (ladder if tier is None else [config.tiers[tier]])]
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

    def health(self, exchange: Exchange, path: bytes) -> None:
        """200: the process lives."""
        exchange.respond(200, [JSON], b'{"status":"ok"}')

    def ready(self, exchange: Exchange, path: bytes) -> None:
        """200 while something can be answered; the pressures say how full it is."""
        config, loads = self.up.router.config, self.up.router.pressures()
        tiers = {
            tier.name: min(loads.get(replica.name or replica.url, 0.0) for replica in tier.replicas)
            for tier in config.tiers
        }
        up = any(math.isfinite(tiers[tier.name]) for tier in config.tiers[: config.rungs])
        status = "draining" if self.draining else "ok" if up else "no replica is up"
        shown = {name: round(p, 3) if math.isfinite(p) else "down" for name, p in tiers.items()}
        exchange.respond(
            200 if status == "ok" else 503, [JSON], json_body({"status": status, "tiers": shown})
        )

    def metrics(self, exchange: Exchange, path: bytes) -> None:
        """What was counted, for Prometheus."""
        exchange.respond(200, [(b"content-type", CONTENT_TYPE)], self.up.metrics.text())

    def openapi(self, exchange: Exchange, path: bytes) -> None:
        """What is answered here, as an OpenAPI document."""
        exchange.respond(200, [JSON], encoded())
