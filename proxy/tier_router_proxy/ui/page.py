"""What is answered below `/ui`: the page, which holds nothing secret, and the data that it asks
for with a key."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs

from tier_router.config import Config
from tier_router.errors import RequestError
from tier_router_proxy.answers import JSON, json_body
from tier_router_proxy.http.exchange import Exchange
from tier_router_proxy.http.messages import Headers
from tier_router_proxy.ui.watch import Watch
from tier_router_proxy.upstreams import Upstreams

PATH = b"/ui"
DATA = b"/ui/data"
_FILES: Mapping[bytes, tuple[str, bytes]] = {
    PATH: ("page.html", b"text/html; charset=utf-8"),
    b"/ui/page.css": ("page.css", b"text/css; charset=utf-8"),
    b"/ui/page.js": ("page.js", b"text/javascript; charset=utf-8"),
    b"/ui/charts.js": ("charts.js", b"text/javascript; charset=utf-8"),
    b"/ui/icon.svg": ("icon.svg", b"image/svg+xml"),
}
PAGES = frozenset(_FILES)
"""Paths that need no key, since a page that is opened can send none."""

GUARD: Headers = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),
]
"""Headers by which a browser takes nothing from elsewhere, and shows the page in no other's."""

Answerer = Callable[[Exchange, bytes], None]


class Page:
    """The page of one sidecar; while it is off nothing is watched."""

    def __init__(self, up: Upstreams) -> None:
        self._up = up
        self._watch: Watch | None = None
        self._files: dict[bytes, bytes] = {}
        self.adopt(up.router.config)

    def adopt(self, config: Config) -> None:
        """Goes on or off as `config` says; what was watched before stays."""
        up = self._up
        if not config.server.ui:
            self._watch = up.book.observer = up.metrics.observer = None
            return
        if self._watch is None:
            folder = files("tier_router_proxy.ui")
            self._files = {path: folder.joinpath(f).read_bytes() for path, (f, _) in _FILES.items()}
            self._watch = Watch()
            up.book.observer, up.metrics.observer = self._watch.ended, self._watch.decided

    def at(self, path: bytes) -> tuple[bytes, Answerer] | None:
        """(methods, what answers) at a path; None while the page is off."""
        if self._watch is None:
            return None
        if path == DATA:
            return b"GET", self._data
        return (b"GET", self._file) if path in PAGES else None

    def _file(self, exchange: Exchange, path: bytes) -> None:
        if exchange.request.path.endswith(b"/"):  # links of the page start at its own folder
            exchange.respond(308, [(b"location", b"../" + path.rpartition(b"/")[2])])
            return
        exchange.respond(200, [(b"content-type", _FILES[path][1]), *GUARD], self._files[path])

    def _data(self, exchange: Exchange, path: bytes) -> None:
        """What the page shows; with `?since=SECOND` only what ended from then on."""
        watch = self._watch
        assert watch is not None
        told = watch.since(_since(exchange.request.target)) | self._present()
        exchange.respond(200, [JSON, (b"cache-control", b"no-store")], json_body(told))

    def _present(self) -> dict[str, Any]:
        """The ladder as it is now, and which process says so."""
        router = self._up.router
        loads, ledger, config = router.pressures(), router.ledger, router.config
        tiers = []
        for tier in config.tiers:
            replicas = []
            for replica in tier.replicas:
                name = replica.name or replica.url
                load = loads.get(name, 0.0)
                pressure = round(load, 3) if math.isfinite(load) else None
                told = {"name": name, "pressure": pressure, "in_flight": ledger.open_on(name)}
                replicas.append(told)
            tiers.append({"name": tier.name, "model": tier.model, "replicas": replicas})
        return {
            "worker": {"pid": os.getpid(), "workers": config.server.workers},
            "draining": self._up.metrics.draining,
            "rungs": config.rungs,
            "tiers": tiers,
        }


def _since(target: bytes) -> int:
    query = parse_qs(target.partition(b"?")[2].decode("latin-1"))
    text = query.get("since", ["0"])[-1]
    if not (text.isascii() and text.isdecimal() and len(text) <= 12):
        raise RequestError("`since` is a second in Unix time", param="since")
    return int(text)
