"""What is in flight where, and which replicas are up.  Told facts, asked questions; no clock.

`now` is in seconds on any monotonic scale, the same for all calls.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from threading import RLock
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from tier_router.config import Config, Limits
from tier_router.pressure import DOWN, FULL, Reading, pressure

_P = ParamSpec("_P")
_T = TypeVar("_T")

LIFETIME = 3_600.0
"""Seconds after which a lease that nobody closed counts no more."""

FIRST_BREAK, LONGEST_BREAK = 1.0, 30.0
"""Seconds that a failed replica rests: doubled with each failure in a row, up to half a minute."""

BUSY_BREAK = 1.0
"""Seconds that a replica which answered "busy" counts as full, where it gave no Retry-After."""

LOOK = 0.0005
"""Seconds between two looks at what other workers have in flight: a look costs microseconds."""

DRAIN_BREAK = 10.0
"""Seconds that a draining replica is left alone: vLLM exits 7 to 15 s after SIGTERM."""


class Outcome(StrEnum):
    """How a stay on a replica ended."""

    DONE = "done"
    """Answered, with whatever status the caller's own request earned."""
    ABANDONED = "abandoned"
    """The client left."""
    FAILED = "failed"
    """Unreachable, died, timed out, or not HTTP."""
    BUSY = "busy"
    """Refused for load (503, 429)."""
    DRAINING = "draining"
    """Shutting down: takes nothing new."""


@dataclass(slots=True)
class Lease:
    """One request's stay on one replica; held by what finishes the answer."""

    replica: str
    tokens: float
    opened_at: float
    expires_at: float
    alone: bool = False
    """Whether the replica had nothing else of this process or its peers when it was opened."""
    first_at: float | None = None
    open: bool = True

    @property
    def ttft(self) -> float | None:
        """Seconds to the first token, once it has come."""
        return None if self.first_at is None else self.first_at - self.opened_at


_UNSAID = (0.0, -math.inf)


@dataclass(frozen=True, slots=True)
class Report:
    """What one process tells the others: requests and tokens in flight by replica, and for how
    many seconds more it lets a replica rest."""

    requests: dict[str, int]
    tokens: dict[str, float]
    resting: dict[str, float]


def total(reports: Iterable[Report]) -> Report:
    """All reports as one: sums, and the longest rest of each replica."""
    requests: defaultdict[str, int] = defaultdict(int)
    tokens: defaultdict[str, float] = defaultdict(float)
    resting: dict[str, float] = {}
    for report in reports:
        for name, count in report.requests.items():
            requests[name] += count
        for name, size in report.tokens.items():
            tokens[name] += size
        for name, seconds in report.resting.items():
            resting[name] = max(seconds, resting.get(name, 0.0))
    return Report(dict(requests), dict(tokens), resting)


class Neighbours(Protocol):
    """The other workers of this host, in memory that all of them see."""

    def columns(self, names: Iterable[str]) -> Mapping[str, int]:
        """A place for each replica, the same for all workers."""

    def tell(self, column: int, requests: int, tokens: float, resting_until: float) -> None:
        """What this worker has in flight on one replica, and until when it lets it rest."""

    def others(self, column: int) -> tuple[int, float, float]:
        """The same of all the others together."""


class _Account:
    """What is known of one replica; `peer_*` is what other processes said of it, `said_*` what it
    said itself: (value, believed until)."""

    __slots__ = ("busy_until", "down_until", "failed_at", "failures", "limits", "peer_requests",
                 "peer_rest", "peer_tokens", "probe", "requests", "said_foreign", "said_kv",
                 "said_until", "said_waiting", "tokens", "weight")  # fmt: skip

    def __init__(self, limits: Limits, weight: float) -> None:
        self.limits, self.weight = limits, weight
        self.requests = 0
        self.tokens = 0.0
        self.failures, self.failed_at = 0, -math.inf
        self.down_until: float | None = None
        self.busy_until: float | None = None
        self.probe: Lease | None = None
        self.peer_requests, self.peer_tokens, self.peer_rest = 0, 0.0, 0.0
        self.said_foreign = self.said_waiting = self.said_kv = _UNSAID
        self.said_until = -math.inf  # the last of the three ends

    def pressure(self, now: float) -> float:
        if self.down_until is not None and (now < self.down_until or self.probe is not None):
            return DOWN
        if now < self.peer_rest:
            return DOWN
        reading: Reading | None = None
        foreign: float = self.peer_requests
        if now < self.said_until:
            reading = Reading(
                self._believed(self.said_foreign, now),
                self._believed(self.said_waiting, now),
                self._believed(self.said_kv, now),
            )
            foreign = max(foreign, reading.requests or 0.0)
        requests, tokens = self.requests + foreign, self.tokens + self.peer_tokens
        own = pressure(requests, tokens, self.limits, self.weight, reading)
        return max(own, FULL) if self.busy_until is not None and now < self.busy_until else own

    def changes_at(self, now: float) -> float:
        """When the pressure may next change although nobody says anything; infinity for never."""
        ends = [self.down_until or 0.0, self.busy_until or 0.0, self.peer_rest]
        if now < self.said_until:
            ends += [self.said_foreign[1], self.said_waiting[1], self.said_kv[1]]
        return min([end for end in ends if end > now], default=math.inf)

    @staticmethod
    def _believed(said: tuple[float, float], now: float) -> float | None:
        return said[0] if now < said[1] else None


def _alone(
    method: Callable[Concatenate[Ledger, _P], _T],
) -> Callable[Concatenate[Ledger, _P], _T]:
    """Runs a method while no other one runs: doors call from event loops and from threads."""

    @wraps(method)
    def locked(self: Ledger, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        with self._lock:
            return method(self, *args, **kwargs)

    return locked


class Ledger:
    """Counts leases per replica and rests those that fail.

    A replica that failed is down for a while; then one request probes it, and the others come
    back only when that one was answered.
    """

    def __init__(self, config: Config) -> None:
        self._lock = RLock()
        self._accounts: dict[str, _Account] = {}
        self._pressures: dict[str, float] = {}
        self._stale_at = -math.inf  # from when on the table has to be made anew
        self._expiries: list[tuple[float, int, Lease]] = []
        self._serial = 0
        self._neighbours: Neighbours | None = None
        self._columns: Mapping[str, int] = {}
        self._looked_at = -math.inf
        self.adopt(config)

    @_alone
    def adopt(self, config: Config) -> None:
        """Takes over a new configuration; what is known of replicas that stay is kept."""
        accounts: dict[str, _Account] = {}
        for tier in config.tiers:
            for replica in tier.replicas:
                name = replica.name or replica.url
                account = self._accounts.get(name) or _Account(tier.limits, replica.weight)
                account.limits, account.weight = tier.limits, replica.weight
                accounts[name] = account
        self._accounts = accounts
        self._pressures = dict.fromkeys(accounts, 0.0)
        self._stale_at = -math.inf
        if self._neighbours is not None:
            self._columns = self._neighbours.columns(accounts)

    @_alone
    def join(self, neighbours: Neighbours) -> None:
        """Tells and hears the other workers of this host from now on, in place of reports."""
        self._neighbours = neighbours
        self._columns = neighbours.columns(self._accounts)
        self._stale_at = -math.inf

    @_alone
    def opened(self, replica: str, tokens: float, now: float, lifetime: float = LIFETIME) -> Lease:
        """The lease of a request that is sent to `replica` with `tokens` of prompt and answer."""
        lease = Lease(replica, tokens, now, now + lifetime)
        account = self._accounts.get(replica)
        if account is not None:
            lease.alone = not account.requests and not account.peer_requests
            account.requests += 1
            account.tokens += tokens
            if account.down_until is not None and account.probe is None:
                account.probe = lease
            self._serial += 1
            heapq.heappush(self._expiries, (lease.expires_at, self._serial, lease))
            self._refresh(replica, account, now)
        return lease

    @_alone
    def first_token(self, lease: Lease, now: float) -> None:
        """Notes the first token of the answer; the replica is alive."""
        if lease.first_at is None:
            lease.first_at = now
            account = self._accounts.get(lease.replica)
            if account is not None:
                self._alive(account, lease)
                self._refresh(lease.replica, account, now)

    @_alone
    def closed(
        self, lease: Lease, outcome: Outcome, now: float, retry_after: float | None = None
    ) -> None:
        """Ends the lease; a second call changes nothing."""
        if not lease.open:
            return
        lease.open = False
        account = self._accounts.get(lease.replica)
        if account is None:
            return
        account.requests = max(0, account.requests - 1)
        account.tokens = max(0.0, account.tokens - lease.tokens) if account.requests else 0.0
        if outcome is Outcome.DONE:
            self._alive(account, lease)
        elif outcome is Outcome.FAILED and lease.opened_at < account.failed_at:
            pass  # what took the others down took this one too: it is the same failure
        elif outcome is Outcome.FAILED:
            account.failures += 1
            account.failed_at = now
            rest = min(FIRST_BREAK * 2 ** (account.failures - 1), LONGEST_BREAK)
            account.down_until = now + rest
        elif outcome is Outcome.DRAINING:
            account.down_until = now + DRAIN_BREAK
        elif outcome is Outcome.BUSY:
            account.busy_until = now + (retry_after or BUSY_BREAK)
        if account.probe is lease:
            account.probe = None
        self._refresh(lease.replica, account, now)

    @_alone
    def pressures(self, now: float) -> Mapping[str, float]:
        """Pressure by replica; a view of the ledger's own table, valid until it is told more."""
        while self._expiries and (self._expiries[0][0] <= now or not self._expiries[0][2].open):
            lease = heapq.heappop(self._expiries)[2]
            self.closed(lease, Outcome.ABANDONED, now)
        if self._neighbours is not None and now - self._looked_at >= LOOK:
            self._looked_at = now
            self._look(self._neighbours, now)
        if now >= self._stale_at:
            self._stale_at = math.inf
            for name, account in self._accounts.items():
                self._refresh(name, account, now)
        return self._pressures

    @_alone
    def report(self, now: float) -> Report:
        """What other processes should know: this process's own leases and findings."""
        accounts = self._accounts.items()
        return Report(
            {name: each.requests for name, each in accounts if each.requests},
            {name: each.tokens for name, each in accounts if each.tokens},
            {
                name: each.down_until - now
                for name, each in accounts
                if each.down_until is not None and each.down_until > now
            },
        )

    @_alone
    def heard(self, reports: Sequence[Report], now: float) -> None:
        """Takes over what the other processes say, in place of what they said before."""
        peers = total(reports)
        for name, account in self._accounts.items():
            account.peer_requests = peers.requests.get(name, 0)
            account.peer_tokens = peers.tokens.get(name, 0.0)
            rest = peers.resting.get(name, 0.0)
            account.peer_rest = now + rest if rest > 0 else 0.0
            self._refresh(name, account, now)

    @_alone
    def read(self, replica: str, reading: Reading, now: float, lasts: float) -> None:
        """Takes over what `replica` says of itself, to be believed for `lasts` seconds.

        Of the requests that it has open, those that are not this process's own are counted: its
        own are known better here.
        """
        account = self._accounts.get(replica)
        if account is None:
            return
        until = now + lasts
        if reading.requests is not None:
            account.said_foreign = (max(0.0, reading.requests - account.requests), until)
        if reading.waiting is not None:
            account.said_waiting = (reading.waiting, until)
        if reading.kv is not None:
            account.said_kv = (reading.kv, until)
        account.said_until = max(account.said_until, until)
        self._refresh(replica, account, now)

    def in_flight(self, replica: str) -> int:
        """Requests that are open on `replica`."""
        account = self._accounts.get(replica)
        return account.requests if account else 0

    def open_on(self, replica: str) -> int:
        """Requests that this process and the other workers of its host have open on `replica`."""
        account = self._accounts.get(replica)
        if account is None:
            return 0
        return account.requests + (account.peer_requests if self._neighbours is not None else 0)

    def _alive(self, account: _Account, lease: Lease) -> None:
        """A replica that rests comes back by its probe only: other answers began before."""
        if account.down_until is None:
            account.failures = 0
        elif account.probe is lease:
            account.failures, account.down_until, account.probe = 0, None, None

    def _look(self, neighbours: Neighbours, now: float) -> None:
        """Takes over what the other workers have in flight."""
        for name, account in self._accounts.items():
            told = neighbours.others(self._columns[name])
            if told != (account.peer_requests, account.peer_tokens, account.peer_rest):
                account.peer_requests, account.peer_tokens, account.peer_rest = told
                self._refresh(name, account, now)

    def _refresh(self, replica: str, account: _Account, now: float) -> None:
        self._pressures[replica] = account.pressure(now)
        self._stale_at = min(self._stale_at, account.changes_at(now))
        if self._neighbours is not None:
            column, rest = self._columns[replica], account.down_until or 0.0
            self._neighbours.tell(column, account.requests, account.tokens, rest)

    def __repr__(self) -> str:
        parts = (f"{name}: {a.requests} open" for name, a in self._accounts.items())
        return f"<Ledger {', '.join(parts)}>"
