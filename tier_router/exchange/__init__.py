"""What processes tell each other: how much each has in flight, and what it found down.

One method carries it: `swap` hands over this process's report and gives back the others'.  It is
called ten times a second, off the request path; a request never waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from urllib.parse import urlsplit

from tier_router.errors import ConfigError
from tier_router.ledger import Report

EXPIRY = 1.0
"""Seconds after which the report of a process that has stopped telling counts no more: ten ticks,
so that one slow answer of the store does not make a living process vanish."""


class ExchangeError(Exception):
    """The store did not answer; local counts go on, and the next tick tries again."""


class Exchange(Protocol):
    """A place where processes leave their reports."""

    async def swap(self, mine: Report) -> Sequence[Report]:
        """The other processes' reports, fresh ones only; raises ExchangeError."""
        ...

    async def close(self) -> None:
        """Takes this process's report back and lets go of the store."""
        ...


def exchange_of(state: str) -> Exchange:
    """The exchange that a configuration's `state` names; raises ConfigError."""
    scheme = urlsplit(state).scheme
    if scheme == "memory":
        from tier_router.exchange.memory import Alone

        return Alone()
    try:
        from tier_router.exchange.redis import RedisExchange
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "redis":
            raise
        raise ConfigError(
            "`state` names a Redis: pip install 'tier-router[redis]'", key="state"
        ) from None
    return RedisExchange(state)
