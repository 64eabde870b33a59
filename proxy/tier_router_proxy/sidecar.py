"""A running sidecar: the router, its pools, its server, and how they are replaced while serving."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from tier_router.classify import Classifier
from tier_router.config import Config
from tier_router.decisionlog import Logbook
from tier_router.exchange import exchange_of
from tier_router.exchange.ticking import Ticking
from tier_router.ledger import Neighbours
from tier_router.router import TierRouter
from tier_router.scrape.poller import Poller
from tier_router.testing.sim import SimHost
from tier_router_proxy.answers import refusal_answer
from tier_router_proxy.app import App
from tier_router_proxy.fetch import PoolFetch
from tier_router_proxy.http.requests import Limits
from tier_router_proxy.http.server import Server
from tier_router_proxy.http.timers import Wheel
from tier_router_proxy.metrics import Metrics
from tier_router_proxy.pools import Pools
from tier_router_proxy.pruning_metrics import PruningMetrics
from tier_router_proxy.siblings import METRICS_FOLDER, Siblings
from tier_router_proxy.templates import Templates
from tier_router_proxy.tls import client_context, renew, server_context
from tier_router_proxy.tracing import Tracing
from tier_router_proxy.upstreams import Upstreams


class Sidecar:
    """Serves one configuration from `start` to `stop`; an async context manager.

    `neighbours` are the other workers of this host, which listen on the same port.
    """

    def __init__(
        self,
        config: Config,
        classifier: Callable[[Config], Classifier] | None = None,
        neighbours: Neighbours | None = None,
    ) -> None:
        self.router = TierRouter(config, classifier)
        self._reuse_port = neighbours is not None
        if neighbours is not None and config.state == "memory://":
            self.router.ledger.join(neighbours)
        self.metrics = Metrics(self.router)
        PruningMetrics(self.metrics.registry, self.router.pruner.tally)
        self.url = ""
        self._sims = SimHost()
        otel = config.server.otel
        self._tracing = Tracing(otel) if otel is not None and otel.endpoint else None
        self._state = config.state
        self._ticking: Ticking | None = None

    async def start(self) -> str:
        """Binds the port and serves; returns the URL.  Raises OSError where the port is taken."""
        config = self.router.config
        tls = config.server.tls
        self._tls = None if tls is None else server_context(tls)
        self._wheel = Wheel()
        self._pools = Pools(self._wheel)
        self._fetch = PoolFetch(self._pools)
        self._poller = Poller(self._fetch, self.router.ledger, self.router.found)
        self._templates = Templates(self._fetch, self.router)
        up = Upstreams(
            self.router,
            self._pools,
            self.metrics,
            time.monotonic,
            book=Logbook("sidecar", self.metrics.log_dropped),
            tracing=self._tracing,
        )
        up.book.adopt(config.log)  # which may import a client: not with the first request
        self._app = App(up)
        self._server = Server(self._app, _limits(config), self._wheel, refusal_answer)
        dialled = await self._dialled(config)
        self._pools.adopt(dialled, config.server.timeouts.connect, _upstream_tls(config))
        self._fetch.adopt(dialled)
        host, port = config.server.host, config.server.port
        try:
            host, port = await self._server.listen(
                host, port, tls=self._tls, reuse_port=self._reuse_port
            )
        except OSError as error:
            await self.stop(0.0)
            raise OSError(error.errno, error.strerror, f"{host}:{port}") from None
        scheme = "http" if self._tls is None else "https"
        self.url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
        folder = os.environ.get(METRICS_FOLDER)
        if self._reuse_port and folder is not None:
            self._app.siblings = Siblings(Path(folder), self._app.asked)
            await self._app.siblings.start()
        self._share(config.state)
        self._poller.adopt(config, dialled)
        self._templates.adopt(config, dialled)
        self.metrics.polls(self._poller)
        return self.url

    async def reload(self, config: Config) -> None:
        """Serves `config` from now on; no request is dropped, those under way end as they began.

        The host, the port, and whether and whom TLS lets in, stay what they are; a certificate is
        read anew.
        """
        prepared = await asyncio.to_thread(self.router.prepare, config)
        dialled, upstream = await self._dialled(config), _upstream_tls(config)
        if self._tls is not None and config.server.tls is not None:
            renew(self._tls, config.server.tls)
        # in one go, so that no request meets the new router with the old pools
        gone = self._pools.adopt(dialled, config.server.timeouts.connect, upstream)
        self._fetch.adopt(dialled)
        self.router.adopt(prepared)
        self._poller.adopt(config, dialled)
        self._templates.adopt(config, dialled)
        self._app.keys.adopt(config.server.api_keys)
        self._app.ui.adopt(config)
        self._server.limits = _limits(config)
        for pool in gone:
            await pool.close()
        if config.state != self._state:
            await self._unshare()
            self._share(config.state)

    async def stop(self, drain: float | None = None) -> bool:
        """Takes nothing new, lets running answers end for `drain` seconds (the configured ones
        where left out), and says whether all of them did."""
        self._app.draining = True
        self.metrics.draining = True
        seconds = self.router.config.server.drain if drain is None else drain
        ended = await self._server.drain(seconds)
        if self._app.siblings is not None:
            await self._app.siblings.stop()
        await self._unshare()
        await self._poller.stop()
        await self._templates.stop()
        await self._pools.close()
        await asyncio.to_thread(self.router.pruner.close)
        await asyncio.sleep(0)  # what was audited last is noted first
        await asyncio.to_thread(self._app.up.book.close)
        if self._tracing is not None:
            await asyncio.to_thread(self._tracing.close)
        await self._sims.aclose()
        self._wheel.close()
        return ended

    def _share(self, state: str) -> None:
        """Begins to tell other processes what is in flight here, where `state` names a store."""
        self._state = state
        if state != "memory://":
            self._ticking = Ticking(exchange_of(state), lambda: self.router.ledger)
            self._ticking.start()
        self.metrics.shared_state(self._ticking)

    async def _unshare(self) -> None:
        ticking, self._ticking = self._ticking, None
        if ticking is not None:
            await ticking.stop()

    async def _dialled(self, config: Config) -> dict[str, str]:
        """{URL: URL to dial} of all replicas; starts the simulated ones that are new."""
        replicas = {r.url: tier.model for tier in config.tiers for r in tier.replicas}
        simulated = {url: model for url, model in replicas.items() if url.startswith("sim://")}
        return {url: url for url in replicas} | await self._sims.resolve(simulated)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop(0.0 if error else None)


def _upstream_tls(config: Config) -> dict[str, ssl.SSLContext]:
    """{URL: TLS of one's own} of the replicas whose tier has some."""
    contexts = {t.name: client_context(t.tls, t.name) for t in config.tiers if t.tls is not None}
    return {
        replica.url: contexts[tier.name]
        for tier in config.tiers
        for replica in tier.replicas
        if tier.name in contexts
    }


def _limits(config: Config) -> Limits:
    """The wire's limits as the configuration gives them."""
    server = config.server
    return Limits(head=int(server.header_limit), body=int(server.body_limit))
