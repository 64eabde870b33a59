"""What the sidecar counts, in Prometheus's format."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable
from functools import lru_cache

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from tier_router.decide import Decision
from tier_router.exchange.ticking import Ticking
from tier_router.ledger import Outcome
from tier_router.router import TierRouter
from tier_router.scrape.poller import Poller
from tier_router_proxy.siblings import METRICS_FOLDER

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640)
"""Buckets of times to first token and of whole answers: vLLM's own span."""

DECISION_SECONDS = (25e-6, 50e-6, 100e-6, 200e-6, 400e-6, 800e-6, 1.6e-3, 5e-3, 25e-3)
"""Buckets of what reading, judging and deciding took."""

SINKS = ("file", "redis", "otel")
"""Where decisions may be logged; each is counted from the start, so that a first loss is a rise."""

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """The counters of one sidecar, in a registry of their own."""

    def __init__(self, router: TierRouter) -> None:
        self._router = router
        self.registry = registry = CollectorRegistry()
        self._requests = Counter(
            "tier_router_requests",
            "Chat requests by where they went, what decided and how they ended.",
            ("tier", "reason", "status"),
            registry=registry,
        )
        self._attempts = Counter(
            "tier_router_attempts",
            "Attempts on a replica by outcome.",
            ("tier", "replica", "outcome"),
            registry=registry,
        )
        self._errors = Counter(
            "tier_router_errors",
            "Requests answered with an own error.",
            ("code",),
            registry=registry,
        )
        self._failovers = Counter(
            "tier_router_failovers", "Requests that went on to another replica.", registry=registry
        )
        self._hedges = Counter(
            "tier_router_hedges",
            "Requests that were sent to a second replica since their first token was late.",
            registry=registry,
        )
        self._ttft = Histogram(
            "tier_router_time_to_first_token_seconds",
            "From the request's arrival to the first data line of its stream.",
            ("tier",),
            buckets=SECONDS,
            registry=registry,
        )
        self._latency = Histogram(
            "tier_router_request_seconds",
            "From the request's arrival to the end of its answer.",
            ("tier",),
            buckets=SECONDS,
            registry=registry,
        )
        self._decision = Histogram(
            "tier_router_decision_seconds",
            "What reading, judging and deciding took.",
            buckets=DECISION_SECONDS,
            registry=registry,
        )
        self._reloads = Counter(
            "tier_router_config_reloads", "Reloads by result.", ("result",), registry=registry
        )
        self._lost = Counter(
            "tier_router_log_dropped_records",
            "Records of decisions that were lost, by what `log` names.",
            ("sink",),
            registry=registry,
        )
        for sink in SINKS:
            self._lost.labels(sink)
        self.observer: Callable[[float], None] | None = None
        """Is told what each decision took."""
        self.draining = False
        self.shared: Ticking | None = None
        self._live: list[Collector] = []
        self._show(_Loads(router))
        self._show(_States(self))
        # `labels` takes a lock and builds a key each time; the sets are small and closed
        self._request = lru_cache(4096)(self._requests.labels)
        self._attempt = lru_cache(4096)(self._attempts.labels)
        self._whole = lru_cache(256)(self._latency.labels)

    def decided(self, seconds: float) -> None:
        """One request was read, judged and decided."""
        self._decision.observe(seconds)
        if self.observer is not None:
            self.observer(seconds)

    def attempted(self, decision: Decision, outcome: Outcome) -> None:
        """One attempt ended."""
        self._attempt(decision.tier, decision.replica, outcome.value).inc()

    def failed_over(self) -> None:
        """One request went on to another replica."""
        self._failovers.inc()

    def hedged(self) -> None:
        """One request was sent to a second replica since its first token was late."""
        self._hedges.inc()

    def first_token(self, decision: Decision, seconds: float) -> None:
        """The first piece of a streamed answer came `seconds` after the request."""
        self._ttft.labels(decision.tier).observe(seconds)

    def answered(self, decision: Decision, status: str, seconds: float) -> None:
        """One request ended: with the upstream's status, `abandoned` or `cut`."""
        self._request(decision.tier, decision.reasons[0].value, status).inc()
        self._whole(decision.tier).observe(seconds)

    def errored(self, code: str) -> None:
        """One request was answered with an error of ours."""
        self._errors.labels(code).inc()

    def log_dropped(self, sink: str, count: int) -> None:
        """So many records did not reach a sink of the decision log; called from any thread."""
        self._lost.labels(sink).inc(count)

    def reloaded(self, ok: bool) -> None:
        """One reload ended."""
        self._reloads.labels("ok" if ok else "refused").inc()

    def shared_state(self, ticking: Ticking | None) -> None:
        """From now on the gauge says whether `ticking` finds its store."""
        self.shared = ticking

    def polls(self, poller: Poller) -> None:
        """From now on what replicas say of themselves is shown too."""
        self._show(_Reports(self._router, poller))

    def text(self) -> bytes:
        """Everything, as Prometheus scrapes it: of several workers the counters of all together."""
        if METRICS_FOLDER not in os.environ:
            return generate_latest(self.registry)
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        for collector in self._live:
            together.register(collector)
        return generate_latest(together)

    def _show(self, collector: Collector) -> None:
        """Shows what is read when it is scraped."""
        self._live.append(collector)
        self.registry.register(collector)


class _States(Collector):
    """What the sidecar is about."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        metrics = self._metrics
        up = metrics.shared is None or metrics.shared.up
        return (
            GaugeMetricFamily(
                "tier_router_draining", "1 while the sidecar drains.", float(metrics.draining)
            ),
            GaugeMetricFamily(
                "tier_router_shared_state_up",
                "0 while the store that `state` names does not answer; local counts go on.",
                float(up),
            ),
        )


class _Loads(Collector):
    """Reads the ledger when it is scraped."""

    def __init__(self, router: TierRouter) -> None:
        self._router = router

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        labels = ("tier", "replica")
        flight = GaugeMetricFamily(
            "tier_router_in_flight_requests", "Requests that are open on a replica.", labels=labels
        )
        pressure = GaugeMetricFamily(
            "tier_router_replica_pressure",
            "Load of a replica; 1 is full, +Inf is down.",
            labels=labels,
        )
        up = GaugeMetricFamily("tier_router_replica_up", "0 while a replica rests.", labels=labels)
        loads = self._router.pressures()
        for tier in self._router.config.tiers:
            for replica in tier.replicas:
                name = replica.name or replica.url
                load = loads.get(name, 0.0)
                flight.add_metric((tier.name, name), self._router.ledger.open_on(name))
                pressure.add_metric((tier.name, name), load)
                up.add_metric((tier.name, name), float(math.isfinite(load)))
        return (flight, pressure, up)


class _Reports(Collector):
    """What each replica said last of itself, and how long ago."""

    def __init__(self, router: TierRouter, poller: Poller) -> None:
        self._router, self._poller = router, poller

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        labels = ("tier", "replica")
        requests = GaugeMetricFamily(
            "tier_router_replica_server_requests",
            "Requests of all clients that a replica says it has open (`/load`).",
            labels=labels,
        )
        waiting = GaugeMetricFamily(
            "tier_router_replica_waiting_requests",
            "Requests of all clients that a replica says it has queued (`/metrics`).",
            labels=labels,
        )
        kv = GaugeMetricFamily(
            "tier_router_replica_kv_usage",
            "Share of its KV cache that a replica says is in use (`/metrics`).",
            labels=labels,
        )
        age = GaugeMetricFamily(
            "tier_router_replica_report_age_seconds",
            "How long ago a replica last said something.",
            labels=(*labels, "page"),
        )
        said, now = self._poller.said(), time.monotonic()
        for tier in self._router.config.tiers:
            for replica in tier.replicas:
                key = (tier.name, replica.name or replica.url)
                told = said.get(key[1])
                if told is None:
                    continue
                values = ((requests, told.requests), (waiting, told.waiting), (kv, told.kv))
                for family, value in values:
                    if value is not None:
                        family.add_metric(key, value)
                for page, at in (("load", told.load_at), ("metrics", told.metrics_at)):
                    if at is not None:
                        age.add_metric((*key, page), now - at)
        return (requests, waiting, kv, age)
