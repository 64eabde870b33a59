"""An open-loop load: requests go out when they are due, whether or not earlier ones came back."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from tier_router_proxy.http.messages import Head
from tier_router_proxy.http.timers import Wheel
from tier_router_proxy.http.upstream import Pool, UpstreamFailure

PATIENCE = 120.0
"""Seconds that a client waits for the next piece of its answer."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request of the load: when (seconds from the start), of which class, and what."""

    at: float
    kind: str
    prompt: str
    max_tokens: int


@dataclass(slots=True)
class Sample:
    """What came of one request; times in seconds from when it was due."""

    kind: str
    tier: str = ""
    reason: str = ""
    ttft: float | None = None
    latency: float | None = None
    error: str | None = None


def poisson(
    rates: dict[str, tuple[float, Sequence[str], int]], seconds: float, seed: int
) -> list[Ask]:
    """Arrivals of {kind: (requests a second, prompts, answer tokens)}, sorted by time."""
    asks = []
    for kind, (rate, prompts, tokens) in rates.items():
        pick = random.Random(f"{seed}/{kind}")
        at = pick.expovariate(rate)
        while at < seconds:
            asks.append(Ask(at, kind, pick.choice(prompts), tokens))
            at += pick.expovariate(rate)
    return sorted(asks, key=lambda ask: ask.at)


async def send(url: str, asks: Sequence[Ask]) -> list[Sample]:
    """Streams every ask from the endpoint at `url` when it is due; returns when all are over."""
    wheel = Wheel()
    pool = Pool(url, wheel)
    start = time.monotonic()
    clients = []
    for ask in asks:
        await asyncio.sleep(max(0.0, start + ask.at - time.monotonic()))
        clients.append(_Client(pool, ask, start + ask.at))
    samples = [await client.over for client in clients]
    await pool.close()
    wheel.close()
    return samples


class _Client:
    """One streaming request; a `Listener`."""

    def __init__(self, pool: Pool, ask: Ask, due: float) -> None:
        self.over: asyncio.Future[Sample] = asyncio.get_running_loop().create_future()
        self._sample, self._due = Sample(ask.kind), due
        body = {
            "model": "auto",
            "messages": [{"role": "user", "content": ask.prompt}],
            "max_tokens": ask.max_tokens,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        headers = [(b"content-type", b"application/json")]
        raw = msgspec.json.encode(body)
        self._call = pool.send(b"POST", b"/v1/chat/completions", headers, raw, self)
        self._call.expect(PATIENCE)

    def on_head(self, head: Head) -> None:
        self._sample.tier = (head.header(b"x-tier-router-tier") or b"").decode()
        self._sample.reason = (head.header(b"x-tier-router-reason") or b"").decode()
        if head.status != 200:
            self._sample.error = f"status {head.status}"

    def on_data(self, data: bytes) -> None:
        self._call.expect(PATIENCE)
        if self._sample.ttft is None:
            self._sample.ttft = time.monotonic() - self._due

    def on_end(self) -> None:
        self._sample.latency = time.monotonic() - self._due
        self._finish()

    def on_failure(self, failure: UpstreamFailure) -> None:
        self._sample.error = failure.message
        self._finish()

    def _finish(self) -> None:
        if not self.over.done():
            self.over.set_result(self._sample)
