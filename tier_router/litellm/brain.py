"""Narrows a model group of LiteLLM to the deployment that `decide` chooses.

One lock guards it all: LiteLLM calls from its event loop, and its synchronous calls and events
come from threads.  What is done under it takes microseconds.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any

from tier_router.decide import EXPECTED_OUTPUT, Decision, Judged, decide, nothing
from tier_router.decisionlog import Logbook
from tier_router.dispatch import Failure
from tier_router.errors import ConfigError, NoReplica, TierRouterError
from tier_router.ledger import Outcome
from tier_router.litellm import asked, shown
from tier_router.litellm.groups import (
    Deployment,
    Group,
    Member,
    Servers,
    fleet_of,
    group_of,
    is_tiered,
    mismatch,
    strangers,
)
from tier_router.litellm.metrics import Metrics
from tier_router.litellm.notes import Notes
from tier_router.litellm.outcomes import failure_before
from tier_router.litellm.pruned import put, trimming_of
from tier_router.litellm.visits import Visit, Visits
from tier_router.litellm.watch import Watch
from tier_router.pace import Usage
from tier_router.pressure import DOWN
from tier_router.prune.audit import Answer
from tier_router.request import View
from tier_router.router import TierRouter

log = logging.getLogger("tier_router.litellm")

EMBEDDING = "embedding"
"""Why embeddings are left alone: there is no answer to be hard, and vectors of two models do not
mix."""

FOREIGN = "other_group"
"""Why a fallback to a group without tiers is left alone."""


class Brain:
    """A `TierRouter` behind LiteLLM's doors; they share its ledger and its memory of requests."""

    def __init__(self, router: TierRouter, clock: Callable[[], float] = time.monotonic) -> None:
        self.router = router
        self.visits = Visits()
        self.book = Logbook("litellm")
        self._watch = Watch(self._abandoned)
        self._clock, self._lock, self._metrics = clock, Lock(), Metrics()
        self.servers = Servers(router.config)
        self._notes = Notes(router, self.book, clock, self._lock)
        router.pruner.tally.listener = self._metrics.pruned
        self._members: dict[str, Member] = {}
        self._groups: dict[str, Group] = {}
        self._told: set[str] = set()

    def learn(self, name: str, deployments: Iterable[Deployment]) -> Group | None:
        """The group with these deployments added to those it is known to have; None where none of
        them is of a configured tier."""
        known = self._groups.get(name)
        found = {m.id: m for m in map(self.servers.member, filter(is_tiered, deployments))}
        if known is not None and self._has(known, found):
            return known
        members = found if known is None else {**known.members, **found}
        config, thresholds = self.router.config, self.router.thresholds
        group = group_of(members.values(), config, thresholds)
        if group is None:
            self._tell(mismatch(config, members.values(), name))
            return None
        self._tell(strangers(config, members.values(), name))
        self._groups[name] = group
        self._members.update(group.members)
        self.router.ledger.adopt(fleet_of(config, self._members.values()))
        return group

    def learn_all(self, deployments: Sequence[Deployment]) -> None:
        """Learns all groups, so that what is down from the first is known to be there.

        Raises ConfigError, which names both sides, where no deployment is of a configured tier.
        """
        groups: dict[str, list[Deployment]] = {}
        for deployment in deployments:
            groups.setdefault(str(deployment.get("model_name")), []).append(deployment)
        tiered = {name: those for name, those in groups.items() if any(map(is_tiered, those))}
        with self._lock:
            found = [self.learn(name, those) for name, those in tiered.items()]
        if not any(found):
            members = map(self.servers.member, filter(is_tiered, deployments))
            raise ConfigError(mismatch(self.router.config, members, ", ".join(groups)))

    async def ahead(self, messages: Any, kwargs: Mapping[str, Any]) -> None:
        """Lets the event loop go on while the classifier asks others, before the lock is taken."""
        if self.router.waits and not asked.is_embedding(messages, kwargs):
            body, headers = asked.body_of(messages, kwargs), asked.headers_of(kwargs)
            await self.router.ahead(self.router.view(body, headers))

    def narrow(
        self,
        group: str,
        healthy: Sequence[Deployment],
        messages: Any,
        kwargs: Mapping[str, Any],
        called: str | None = None,
    ) -> list[Deployment]:
        """The deployments of the replica that is to answer, or all of `healthy` where the choice
        is LiteLLM's.  Opens a lease for what it chose.  `called` is the name that the client used,
        where that is known."""
        self.router.share()
        with self._lock:
            bucket = asked.bucket_of(kwargs)
            before = self.visits.found(kwargs)
            self._settle(before, failure_before(bucket))
            if not any(map(is_tiered, healthy)):
                return list(healthy) if before is None else self._left(before, FOREIGN, healthy)
            visit = self.visits.opened(bucket)
            if bucket is not None:
                shown.untag(bucket)
            if asked.is_embedding(messages, kwargs):
                return self._left(visit, EMBEDDING, healthy)
            ladder = self.learn(group, healthy)
            if ladder is None:
                return self._left(visit, "no_tier", healthy)
            try:
                view, judged = self._read(visit, messages, kwargs)
                called = called or asked.named(group, bucket)
                view = replace(view, model=called if called in ladder.config.pins else None)
                replicas = [_replica(each, ladder.members) for each in healthy]
                if visit.trimming is None:
                    visit.trimming = trimming_of(self.router, ladder, view, messages, kwargs)
                decision = self._decide(visit, ladder, view, judged, replicas)
            except TierRouterError as error:
                return self._left(visit, error.code, healthy)
            if bucket is not None:
                shown.note(bucket, group, decision)
            chosen = decision.replica
            return [each for each, name in zip(healthy, replicas, strict=True) if name == chosen]

    def decision(self, notes: Mapping[str, Any]) -> Decision | None:
        """The decision on a request, from the parameters that LiteLLM made of it."""
        visit = self.visits.found(notes)
        return None if visit is None or visit.unrouted is not None else visit.decision

    def prune(self, kwargs: MutableMapping[str, Any]) -> None:
        """Takes out of a call's parameters what its replica need not read."""
        with self._lock:
            visit = self.visits.found(kwargs)
        if visit is None or visit.unrouted is not None:
            return
        if visit.trimming is not None and visit.decision is not None:
            visit.pruned = visit.trimming.to(visit.decision)
            put(kwargs, visit.pruned)

    def ended(
        self,
        notes: Mapping[str, Any],
        deployment: str,
        failure: Failure | None,
        usage: Usage | None = None,
        told: Callable[[], Answer | None] | None = None,
    ) -> None:
        """An attempt on `deployment` ended: closes its lease, if that is still open, and learns
        from the answer's usage; `told` reads the answer."""
        done: Callable[[], None] | None = None
        with self._lock:
            visit, member = self.visits.found(notes), self._members.get(deployment)
            lease = None if visit is None else visit.lease
            if lease is not None and member is not None and member.replica == lease.replica:
                if visit is not None and visit.read is not None and failure is None:
                    pace = self.router.paces.of(member.tier)
                    pace.answered(visit.read[0], lease, usage, self._clock())
                    note = self._notes.of(visit, Outcome.DONE, lease, usage)
                    done = partial(self._notes.answered, visit, usage, told, note)
                self._settle(visit, failure)
        if done is not None:
            done()

    def finished(self, notes: Mapping[str, Any], failure: Failure | None) -> None:
        """A request ended, with this failure: closes what it has open."""
        with self._lock:
            visit = self.visits.found(notes)
            if visit is not None and failure is not None:
                self._notes.of(visit, failure.outcome, visit.lease)(None)
            self._settle(visit, failure)

    def left(self, notes: Mapping[str, Any], code: str) -> None:
        """Notes that a request was left to LiteLLM for a reason of the caller's."""
        with self._lock:
            visit = self.visits.opened(asked.bucket_of(notes))
            self._left(visit, code, ())

    def wanted(self, messages: Any) -> tuple[int, int] | None:
        """(the tier's place, the number of tiers) for bare messages; None where they cannot be
        read or nothing is up."""
        with self._lock:
            try:
                decision = self.router.decide(self.router.view({"messages": messages}))
            except TierRouterError:
                return None
        ladder = self.router.config.ladder
        return ladder[decision.tier], len(ladder)

    # ---- under the lock

    def _has(self, known: Group, found: Mapping[str, Member]) -> bool:
        """Whether a group knows all of these that are of a configured tier."""
        ladder = self.router.config.ladder
        return all(known.members.get(id) == m for id, m in found.items() if m.tier in ladder)

    def _tell(self, message: str | None) -> None:
        """Logs a fault of the configuration, once."""
        if message is not None and message not in self._told:
            self._told.add(message)
            log.error(message)

    def _left(self, visit: Visit, code: str, healthy: Sequence[Deployment]) -> list[Deployment]:
        visit.unrouted = code
        self._metrics.unrouted(code)
        return list(healthy)

    def _read(self, visit: Visit, messages: Any, kwargs: Mapping[str, Any]) -> tuple[View, Judged]:
        """The request's view and verdicts, once for all of its attempts."""
        if visit.read is None:
            view = self.router.view(asked.body_of(messages, kwargs), asked.headers_of(kwargs))
            visit.read = view, self.router.judge(view)
        return visit.read

    def _decide(
        self, visit: Visit, group: Group, view: View, judged: Judged, up: Collection[str]
    ) -> Decision:
        """The next decision of a request whose replicas in `up` are healthy; opens its lease."""
        pressures = dict(self.router.pressures())
        pressures.update((m.replica, DOWN) for m in group.members.values() if m.replica not in up)
        choose = partial(
            decide, view, judged, group.config, group.thresholds, pressures,
            scales=self.router.paces.scales(view),
            spare=nothing if visit.trimming is None else visit.trimming.spare,
        )  # fmt: skip
        try:
            decision = choose(visit.tried)
        except NoReplica:
            if not visit.tried:
                raise
            visit.tried.clear()  # everything has had its turn and LiteLLM goes on: once more
            decision = choose()
        visit.tried.add(decision.replica)
        visit.decision, visit.unrouted = decision, None
        self._open(visit, decision, view)
        self._metrics.decided(decision)
        return decision

    def _open(self, visit: Visit, decision: Decision, view: View) -> None:
        """Opens a lease, which ends by itself when LiteLLM tells nothing of the attempt's end."""
        tokens = view.tokens + (view.max_tokens or EXPECTED_OUTPUT) * view.n
        lifetime = self.router.config.server.timeouts.answer
        ledger, replica = self.router.ledger, decision.replica
        visit.began = self._clock() if visit.began is None else visit.began
        visit.lease = ledger.opened(replica, tokens, self._clock(), lifetime)
        self._metrics.in_flight(decision.tier, replica, ledger.in_flight(replica))
        self._watch.on(visit)

    def _abandoned(self, visit: Visit) -> None:
        """Closes what a cancelled request has open."""
        with self._lock:
            self._notes.of(visit, Outcome.ABANDONED, visit.lease)(None)
            self._settle(visit, Failure(Outcome.ABANDONED, "cancelled"))

    def _settle(self, visit: Visit | None, failure: Failure | None) -> None:
        """Closes the lease of a visit, where one is open."""
        if visit is None or visit.lease is None:
            return
        lease, ledger = visit.lease, self.router.ledger
        visit.lease = None
        self._watch.off(visit)
        outcome = Outcome.DONE if failure is None else failure.outcome
        wait = None if failure is None else failure.retry_after
        ledger.closed(lease, outcome, self._clock(), wait)
        tier = "" if visit.decision is None else visit.decision.tier
        self._metrics.attempted(tier, lease.replica, outcome)
        self._metrics.in_flight(tier, lease.replica, ledger.in_flight(lease.replica))


def _replica(deployment: Deployment, members: Mapping[str, Member]) -> str:
    """The replica that a deployment is; an empty name for one that is of no tier."""
    member = members.get(str((deployment.get("model_info") or {}).get("id")))
    return "" if member is None else member.replica
