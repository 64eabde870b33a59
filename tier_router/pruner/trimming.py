"""One request and what is taken out of it: for each replica that it is sent to, anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tier_router.config import Tier
from tier_router.config.pruning import LOSSY, Mode, Step
from tier_router.decide import Decision
from tier_router.prune.plan import Plan, apply, unread
from tier_router.prune.report import header
from tier_router.prune.units import read
from tier_router.request import View


@dataclass(frozen=True, slots=True)
class Pruned:
    """A plan that is carried out on one replica.

    `changes` are the top-level fields of the body to send that differ from what it was made of;
    `texts` is the prompt as it is sent, for the audit, where there will be one.
    """

    plan: Plan
    replica: str
    changes: Mapping[str, Any]
    texts: tuple[str, ...] = ()
    audited: bool = False
    """Whether the answer is to be kept and read."""

    @property
    def header(self) -> str:
        """What the client is told was taken out; "" for nothing."""
        return header(self.plan)

    @property
    def quiet(self) -> bool:
        """Whether thinking was switched off, so that an answer may come back empty."""
        return any(e.step is Step.REASONING and e.value is False for e in self.plan.sent)


class Planner(Protocol):
    """Who makes the plans; `Pruner` does."""

    def planned(
        self,
        body: Mapping[str, Any],
        view: View,
        tier: Tier,
        decision: Decision | None,
        header: str | None = None,
    ) -> Plan:
        """The plan for a body on its way to the decision's replica; to a cold one without it."""

    def sent(self, plan: Plan, replica: str, view: View) -> bool:
        """`plan` is being carried out; whether its answer is to be audited."""


class Trimming:
    """The pruning of one request.  `body` is what the client sent, and is not changed."""

    __slots__ = ("_body", "_cold", "_defaults", "_planner", "_tier", "_view")

    def __init__(
        self,
        planner: Planner,
        body: Mapping[str, Any],
        view: View,
        tier: Callable[[str], Tier],
        defaults: Callable[[Decision, Mapping[str, Any]], Mapping[str, Any]],
    ) -> None:
        """`tier` gives a tier by name, `defaults` what a decision sets in a body."""
        self._planner, self._body, self._view = planner, body, view
        self._tier, self._defaults = tier, defaults
        self._cold: dict[str, Plan] = {}

    def spare(self, tier: Tier) -> int:
        """The estimated tokens that the prompt loses for sure on its way to `tier`."""
        plan = self._cold.get(tier.name)
        if plan is None:
            try:
                plan = self._planner.planned(self._body, self._view, tier, None)
            except Exception as error:  # noqa: BLE001  pruning never fails a request
                plan = self._failed(tier.name, error)
            self._cold[tier.name] = plan
        return plan.tokens_before - plan.tokens_after if plan.changes else 0

    def to(self, decision: Decision, *, whole: bool = False) -> Pruned:
        """What goes to the decision's replica; `whole` sends all of it after all."""
        try:
            return self._to(decision, whole)
        except Exception as error:  # noqa: BLE001  pruning never fails a request
            plan = self._failed(decision.tier, error)
            self._planner.sent(plan, decision.replica, self._view)
            return Pruned(plan, decision.replica, {})

    def _failed(self, tier: str, error: Exception) -> Plan:
        return unread(self._body, tier, f"error: {type(error).__name__}")

    def _to(self, decision: Decision, whole: bool) -> Pruned:
        body = {**self._body, **self._defaults(decision, self._body)}
        tier = self._tier(decision.tier)
        header = Mode.OFF.value if whole else None
        plan = self._planner.planned(body, self._view, tier, decision, header)
        cold = None if whole else self._cold.get(decision.tier)
        if cold is not None and cold.changes:
            plan = _fitting(plan, cold)
        audited = self._planner.sent(plan, decision.replica, self._view)
        sent = apply(plan, body)
        changes = {name: value for name, value in sent.items() if value is not body.get(name)}
        texts = _texts(plan, sent) if audited else ()
        return Pruned(plan, decision.replica, changes, texts, audited)


def _fitting(plan: Plan, cold: Plan) -> Plan:
    """`plan`, or `cold` where `plan` leaves more: the request is here since `cold` makes it fit."""
    if not plan.failed and plan.tokens_after <= cold.tokens_after:
        return replace(plan, fits=True)
    before = cold.uncached_before if plan.failed else plan.uncached_before
    return replace(cold, fits=True, uncached_before=before, seconds=plan.seconds)


def _texts(plan: Plan, sent: Mapping[str, Any]) -> tuple[str, ...]:
    """The texts of a prompt, where an audit will want them; they are taken now, since callers may
    go on to change their messages."""
    if not any(edit.step in LOSSY for edit in plan.observed):
        return ()
    prompt = read(sent, "\0")
    if prompt is None:
        return ()
    calls = [call.arguments for message in prompt.messages for call in message.calls]
    return (*(text.text for text in prompt.texts), *calls)
