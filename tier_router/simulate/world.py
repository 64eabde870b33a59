"""The simulation itself: arrivals, routers, replicas and accidents on one clock."""

from __future__ import annotations

import random
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tier_router.config import Config
from tier_router.decide import Decision
from tier_router.dispatch import Dispatch, Failure
from tier_router.errors import ConfigError, Overloaded, TierRouterError
from tier_router.exchange.ticking import TICK
from tier_router.ledger import Outcome
from tier_router.pace import Usage
from tier_router.simulate.arrivals import Arrival
from tier_router.simulate.library import simpy
from tier_router.simulate.machine import Machine, fleet_of
from tier_router.simulate.replica import Job, Replica
from tier_router.simulate.result import Ended, Occupancy, Record, Result
from tier_router.simulate.routers import Peers, router_of, view_of

SAMPLED = 997
"""Every so many reports one is measured; a prime, so that it is not always the same router's."""


@dataclass(frozen=True, slots=True)
class Fault:
    """An accident of `replica` from `at` to `until` seconds: it is dead, or where `slowdown` is
    given, its steps last so many times as long."""

    replica: str
    at: float
    until: float
    slowdown: float | None = None


def run(
    config: Config,
    arrivals: Iterable[Arrival],
    fleet: Mapping[str, Machine] | None = None,
    *,
    routers: int = 1,
    seed: int = 0,
    faults: Sequence[Fault] = (),
    tick: float = TICK,
) -> Result:
    """Sends `arrivals`, in the order of their times, through `routers` routers to the replicas.

    `fleet` is the machine of each replica (`fleet_of(config)` where left out), `tick` the seconds
    between two reports of a router to the others.  Difficulties are compared to the policy's
    `threshold`, 0.5 where it gives none.  Which router a request comes to is chance.  The same
    arguments give the same result.  Raises ConfigError for what does not fit the configuration,
    ValueError for arrivals that are out of order.
    """
    fleet = fleet_of(config) if fleet is None else fleet
    names = {replica.name or replica.url for tier in config.tiers for replica in tier.replicas}
    for name in sorted(names - fleet.keys()):
        raise ConfigError(f"`fleet` lacks replica `{name}`")
    for fault in faults:
        if fault.replica not in names:
            raise ConfigError(f"`faults` names a replica that is not configured: {fault.replica}")
    machines = {name: fleet[name] for name in sorted(names)}
    return _World(config, machines, routers, seed, tick).play(arrivals, faults)


class _Visit:
    """One request on its way; told by replicas how it fares."""

    __slots__ = ("_arrival", "_dispatch", "_job", "_record", "_world")

    def __init__(self, world: _World, arrival: Arrival, dispatch: Dispatch, record: Record) -> None:
        self._world, self._arrival = world, arrival
        self._dispatch, self._record = dispatch, record
        self._job: Job | None = None

    def start(self) -> None:
        """Sends it to the first replica that takes it."""
        try:
            decision = self._dispatch.begin(self._world.env.now)
        except TierRouterError as error:
            self._end(Ended.SHED if isinstance(error, Overloaded) else Ended.REFUSED)
            return
        self._send(decision)

    def _send(self, decision: Decision) -> None:
        now, arrival, record = self._world.env.now, self._arrival, self._record
        while True:
            record.attempts += 1
            record.tier, record.replica = decision.tier, decision.replica
            record.reasons = decision.reasons
            self._job = Job(
                arrival.prompt, arrival.output, self,
                arrival.conversation, arrival.prefix, decision.priority,
            )  # fmt: skip
            failure = self._world.replicas[decision.replica].submit(self._job)
            if failure is None:
                self._world.occupancy[decision.replica].change(1, now)
                return
            try:
                decision = self._dispatch.failed(failure, now)
            except TierRouterError:
                self._end(Ended.REFUSED)
                return

    def first_token(self, now: float) -> None:
        """The first token came."""
        self._dispatch.first_token(now)
        self._record.ttft = now - self._record.at

    def finished(self, now: float) -> None:
        """The last token came."""
        self._left(now)
        arrival, record = self._arrival, self._record
        usage = Usage(arrival.prompt, arrival.output, record.cached)
        self._dispatch.closed(Outcome.DONE, now, usage=usage)
        record.latency = now - record.at
        self._end(Ended.DONE)

    def lost(self, now: float) -> None:
        """The replica died: elsewhere again, unless the client has had a token."""
        self._left(now)
        if self._record.ttft is not None:
            self._dispatch.closed(Outcome.FAILED, now)
            self._end(Ended.CUT)
            return
        try:
            decision = self._dispatch.failed(Failure(Outcome.FAILED, "connection reset"), now)
        except TierRouterError:
            self._end(Ended.REFUSED)
            return
        self._send(decision)

    def _left(self, now: float) -> None:
        self._world.occupancy[self._record.replica].change(-1, now)
        if self._job is not None:
            self._record.cached = self._job.cached

    def _end(self, how: Ended) -> None:
        self._record.ended = how
        self._world.ended()


class _World:
    """Everything on one clock."""

    def __init__(
        self, config: Config, machines: Mapping[str, Machine], routers: int, seed: int, tick: float
    ) -> None:
        self.env = env = simpy.Environment()
        self.replicas = {name: Replica(env, name, machine) for name, machine in machines.items()}
        self.occupancy = {name: Occupancy() for name in machines}
        self._pick = random.Random(seed)
        self._routers = [router_of(config, lambda: env.now) for _ in range(routers)]
        self._peers = Peers()
        self._records: list[Record] = []
        self._sizes: list[int] = []
        self._ticks = 0
        self._open = 0
        self._coming = True
        self._over = env.event()
        if routers > 1:
            for number in range(routers):
                env.process(self._ticking(number, self._pick.random() * tick, tick))

    def play(self, arrivals: Iterable[Arrival], faults: Sequence[Fault]) -> Result:
        """Runs until every request has ended."""
        for fault in faults:
            self.env.process(self._accident(fault))
        self.env.process(self._arriving(arrivals))
        self.env.run(until=self._over)
        for each in self.occupancy.values():
            each.settle(self.env.now)
        preempted = sum(replica.preempted for replica in self.replicas.values())
        return Result(self._records, self.occupancy, preempted, self.env.now, self._sizes)

    def ended(self) -> None:
        """One request has ended."""
        self._open -= 1
        self._check()

    def _check(self) -> None:
        if not self._coming and not self._open and not self._over.triggered:
            self._over.succeed()

    def _arriving(self, arrivals: Iterable[Arrival]) -> Generator[simpy.Event, Any, None]:
        env, pick, count = self.env, self._pick, len(self._routers)
        last = 0.0
        for place, arrival in enumerate(arrivals):
            if arrival.at < last:
                raise ValueError(f"arrivals[{place}].at: {arrival.at} is before {last}")
            last = arrival.at
            if arrival.at > env.now:
                yield env.timeout(arrival.at - env.now)
            number = pick.randrange(count)
            record = Record(
                arrival.kind, arrival.at, arrival.prompt, arrival.output, arrival.conversation,
                number,
            )  # fmt: skip
            self._records.append(record)
            self._open += 1
            dispatch = self._routers[number].dispatch(view_of(arrival, place))
            _Visit(self, arrival, dispatch, record).start()
        self._coming = False
        self._check()

    def _ticking(
        self, number: int, offset: float, tick: float
    ) -> Generator[simpy.Event, Any, None]:
        env, ledger = self.env, self._routers[number].ledger
        yield env.timeout(offset)
        while True:
            mine = ledger.report(env.now)
            self._ticks += 1
            if self._ticks % SAMPLED == 0:
                self._sizes.append(len(msgspec.json.encode(mine)))
            ledger.heard((self._peers.swap(number, mine),), env.now)
            yield env.timeout(tick)

    def _accident(self, fault: Fault) -> Generator[simpy.Event, Any, None]:
        replica = self.replicas[fault.replica]
        yield self.env.timeout(fault.at)
        if fault.slowdown is None:
            replica.fail()
        else:
            replica.slow(fault.slowdown)
        yield self.env.timeout(fault.until - fault.at)
        if fault.slowdown is None:
            replica.revive()
        else:
            replica.slow(1.0)
