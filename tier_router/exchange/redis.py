"""Reports in Redis: one key for each process, which expires by itself.

Two round trips a tick, whatever the number of processes and replicas: leave the report and ask who
else is there, then read what they left.  Where they are many, only one of them reads all reports
and leaves their sum; the others read that, so that the traffic grows with their number and not
with its square.  All keys share one hash tag, so a cluster keeps them in one slot.
"""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec
import redis.asyncio as aioredis
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from tier_router.exchange import EXPIRY, ExchangeError
from tier_router.ledger import Report, total

PREFIX = "{tier-router}"
MANY = 16
"""Processes from which on one of them sums up for the others: below it each reads fresh reports,
0.1 s younger, and the traffic is 0.4 MB/s at most."""

READER_EXPIRY = 500
"""Milliseconds after which another process sums up where the one that did has gone."""

TIMEOUT = 0.5
"""Seconds for one round trip; a slower Redis counts as away, and nobody waits for it."""


class RedisExchange:
    """The exchange over a Redis server, a Sentinel's master, or a cluster.

    `url` is one that redis-py reads (`redis://`, `rediss://`, `unix://`),
    `redis+sentinel://host:26379,other:26379/MASTER/DB` or `redis+cluster://host:6379`; the query's
    `name` sets deployments apart that share a server.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        name = (parse_qs(parts.query).get("name") or ["default"])[0]
        self._base = f"{PREFIX}:{name}"
        self._own = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._url = url.replace(f"name={name}", "").rstrip("?&")
        self._told = Report({}, {}, {})  # the tick before
        self._reads = True
        self._summed: bytes | None = None  # told with the next tick
        self._client: Any = None
        self._others: list[Any] = []  # clients of the Sentinels that the client asks

    def __repr__(self) -> str:
        return f"<RedisExchange {urlsplit(self._url).hostname} as {self._own}>"

    async def swap(self, mine: Report) -> Sequence[Report]:
        """The other processes' reports; raises ExchangeError."""
        try:
            async with asyncio.timeout(2 * TIMEOUT):
                return await self._swap(mine)
        except (RedisError, OSError, TimeoutError, msgspec.MsgspecError) as error:
            await self._drop()
            _raise(error)

    async def _swap(self, mine: Report) -> Sequence[Report]:
        client = self._connected()
        members, reader, crowd_sum = (
            f"{self._base}:{name}" for name in ("members", "reader", "total")
        )
        asks = self._reads  # a crowd's names are asked for by the one that reads them
        summed, self._summed = self._summed, None
        async with client.pipeline(transaction=False) as pipe:
            pipe.set(self._key(self._own), msgspec.json.encode(mine), px=int(EXPIRY * 1000))
            pipe.sadd(members, self._own)
            if summed is not None:
                pipe.set(crowd_sum, summed, px=int(EXPIRY * 1000))
                pipe.pexpire(reader, READER_EXPIRY)
            pipe.set(reader, self._own, nx=True, px=READER_EXPIRY)
            pipe.scard(members)
            pipe.get(reader)
            pipe.get(crowd_sum)
            if asks:
                pipe.smembers(members)
            told = await pipe.execute()
        names = told.pop() if asks else ()
        count, who, sum_of_all = told[-3:]
        crowd = count > MANY
        before, self._told = self._told, mine
        self._reads = not crowd or who is None or who.decode() == self._own
        if crowd and not self._reads and sum_of_all is not None:
            return [_others(_DECODER.decode(sum_of_all), before)]
        reports = await self._read_all(client, members, names)
        if crowd and asks and self._reads:
            self._summed = msgspec.json.encode(total((mine, *reports)))
        return reports

    async def _read_all(self, client: Any, members: str, names: Iterable[bytes]) -> list[Report]:
        """The reports of all that are there."""
        others = sorted(name.decode() for name in names if name.decode() != self._own)
        if not others:
            return []
        told = await client.mget([self._key(other) for other in others])
        gone = [other for other, report in zip(others, told, strict=True) if report is None]
        if gone:  # a process that has died: its key expired, its name is taken off the list
            await client.srem(members, *gone)
        return [_DECODER.decode(report) for report in told if report is not None]

    async def close(self) -> None:
        """Takes this process's report back, where Redis still answers."""
        if self._client is None:
            return
        try:
            async with asyncio.timeout(TIMEOUT):
                await self._client.delete(self._key(self._own))
                await self._client.srem(f"{self._base}:members", self._own)
        except (RedisError, OSError, TimeoutError):
            pass  # it expires
        await self._drop()

    def _key(self, process: str) -> str:
        return f"{self._base}:{process}"

    def _connected(self) -> Any:
        if self._client is None:
            self._client, self._others = _client(self._url)
        return self._client

    async def _drop(self) -> None:
        clients = [client for client in (self._client, *self._others) if client is not None]
        self._client, self._others = None, []
        for client in clients:
            try:
                await client.aclose()
            except (RedisError, OSError):
                pass  # it is given up anyway


_DECODER = msgspec.json.Decoder(Report)


def _others(whole: Report, mine: Report) -> Report:
    """What is left of a sum without one's own part of it, which is what one told a tick ago."""
    return Report(
        {name: max(0, n - mine.requests.get(name, 0)) for name, n in whole.requests.items()},
        {name: max(0.0, n - mine.tokens.get(name, 0.0)) for name, n in whole.tokens.items()},
        whole.resting,
    )


def _client(url: str) -> tuple[Any, list[Any]]:
    """The client for a URL, and those of the Sentinels that it asks; they connect at their first
    command."""
    parts = urlsplit(url)
    options: dict[str, Any] = {
        "socket_timeout": TIMEOUT,
        "socket_connect_timeout": TIMEOUT,
        # the next tick tries again; and a Sentinel that is down must not keep from the others
        "retry": Retry(NoBackoff(), 0),
    }
    if parts.scheme == "redis+cluster":
        url = url.replace("redis+cluster", "redis", 1)
        return aioredis.RedisCluster.from_url(url, **options), []
    if parts.scheme != "redis+sentinel":
        return aioredis.Redis.from_url(url, **options), []
    given, _, hosts = parts.netloc.rpartition("@")
    user, _, password = given.partition(":")
    places = [_host(host) for host in hosts.split(",")]
    master, _, database = parts.path.strip("/").partition("/")
    sentinel = Sentinel(places, sentinel_kwargs=options, **options)  # type: ignore[no-untyped-call]
    client = sentinel.master_for(
        master or "mymaster",
        db=int(database or 0),
        username=unquote(user) or None,
        password=unquote(password) or None,
        **options,
    )
    return client, sentinel.sentinels


def _host(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return (host, int(port)) if host else (text, 26379)


def _raise(error: Exception) -> NoReturn:
    raise ExchangeError(str(error) or type(error).__name__) from error
