"""A Redis stream: one entry for each record, and the oldest go."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, RedisError, TimeoutError
from redis.retry import Retry

from tier_router.config.log import RedisStream
from tier_router.decisionlog.record import Record
from tier_router.decisionlog.sink import Lost

FIELD = "record"
TIMEOUT = 1.0
"""Seconds for one batch; a slower Redis counts as away, and the queue's thread alone waits."""


class Stream:
    """Appends to a stream, one round trip for each batch.

    A batch whose answer was lost is sent again, so that an entry may be there twice.
    """

    name = "redis"
    linger = 0.05

    def __init__(self, settings: RedisStream) -> None:
        self._settings = settings
        self._encoder = msgspec.json.Encoder()
        self._client: Redis | None = None
        self._pid: int | None = None

    def write(self, records: Sequence[Record]) -> None:
        """Adds them; raises Lost."""
        kept, stream = self._settings.keep, self._settings.stream
        try:
            with self._connected().pipeline(transaction=False) as pipe:
                for record in records:
                    entry = {FIELD: self._encoder.encode(record)}
                    pipe.xadd(stream, entry, maxlen=kept, approximate=True)  # type: ignore[arg-type]
                pipe.execute()
        except (ConnectionError, TimeoutError, OSError) as error:
            self.close()
            raise Lost(_told(error), again=True) from None
        except RedisError as error:
            raise Lost(_told(error)) from None

    def close(self) -> None:
        """Closes its connection."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _connected(self) -> Redis:
        if self._client is None or self._pid != os.getpid():
            self._pid = os.getpid()
            self._client = Redis.from_url(
                self._settings.url.get_secret_value(),
                socket_timeout=TIMEOUT,
                socket_connect_timeout=TIMEOUT,
                retry=Retry(NoBackoff(), 0),  # the queue's thread tries again
            )
        return self._client


def _told(error: Exception) -> str:
    return str(error) or type(error).__name__
