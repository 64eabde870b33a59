"""What pruning makes: edits, and the plan that holds them; `apply` carries a plan out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tier_router.config.pruning import Mode, Step, Template
from tier_router.prune.units import Path

__all__ = ["Abstained", "Edit", "Known", "Plan", "Template", "apply", "count", "unread"]


@dataclass(frozen=True, slots=True)
class Known:
    """What else is known of a request and of the tier that it goes to.

    `easy` and `intent` are routing's verdict; `header` is the client's wish; `cap` is the learned
    output limit; `proven` are the lossy steps that audits allow; `thinks` whether the tier's model
    thinks unless told not to; `scale` is the real prompt tokens for each estimated one.
    """

    easy: bool = False
    intent: str | None = None
    header: str | None = None
    template: Template = Template.NONE
    thinks: bool = False
    cap: int | None = None
    proven: frozenset[Step] = frozenset()
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Edit:
    """One change: the value that goes to `path`.

    `on` says whether it is sent or only observed.  `cuts` are the places of the old text that are
    left out and `note` what stands for them at its end; `dropped` is what was taken out, for the
    audit alone; `labels` names it; `before` and `after` are tokens.
    """

    step: Step
    action: str
    path: Path
    value: Any
    before: int
    after: int
    on: bool
    message: int = -1
    name: str = ""
    cuts: tuple[tuple[int, int], ...] = ()
    note: str = ""
    dropped: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()

    @property
    def saved(self) -> int:
        """Prompt tokens that it takes out."""
        return self.before - self.after

    def __repr__(self) -> str:
        where = ".".join(map(str, self.path))
        return f"<Edit {self.step} {self.action} {where}: {self.before} -> {self.after} tokens>"


@dataclass(frozen=True, slots=True)
class Abstained:
    """A step that found something and left it alone."""

    step: Step
    reason: str
    message: int = -1


@dataclass(frozen=True, slots=True)
class Plan:
    """What is sent, what is only observed, and what that is worth.

    `uncached_*` are estimates of the prompt tokens that the replica has to prefill; `chain` is what
    `Caches.sent` wants of what is sent, `asked` of what the client sent.  `failed` says why the
    original goes out whatever the steps found.  Where there was not even the time to read that,
    `unread` counts its messages.
    """

    tier: str
    modes: Mapping[Step, Mode] = field(default_factory=dict)
    edits: tuple[Edit, ...] = ()
    turns: frozenset[int] = frozenset()
    abstained: tuple[Abstained, ...] = ()
    tokens_before: int = 0
    tokens_after: int = 0
    uncached_before: int = 0
    uncached_after: int = 0
    chain: tuple[int, ...] = ()
    asked: tuple[int, ...] = ()
    forks: tuple[int, ...] = ()
    unread: int = 0
    cap: int | None = None
    fits: bool = False
    heldout: bool = False
    regressed: bool = False
    seconds: float = 0.0
    net_seconds: float = 0.0
    intent: str | None = None
    failed: str = ""
    ranking: tuple[str, ...] = ()

    @property
    def sent(self) -> tuple[Edit, ...]:
        """The edits that are carried out."""
        return () if self.failed else tuple(edit for edit in self.edits if edit.on)

    @property
    def observed(self) -> tuple[Edit, ...]:
        """The edits that are only measured."""
        return () if self.failed else tuple(edit for edit in self.edits if not edit.on)

    @property
    def changes(self) -> bool:
        """Whether anything is sent otherwise than the client wrote it."""
        return not self.failed and (bool(self.turns) or any(edit.on for edit in self.edits))

    def __repr__(self) -> str:
        steps = ", ".join(sorted({edit.step for edit in self.sent})) or "nothing"
        return f"<Plan {self.tier}: {steps}, {self.tokens_before} -> {self.tokens_after} tokens>"


def count(body: Mapping[str, Any]) -> int:
    """How many messages a body has."""
    messages = body.get("messages")
    return len(messages) if isinstance(messages, list) else 0


def unread(body: Mapping[str, Any], tier: str, failed: str) -> Plan:
    """The plan of a body that could not be looked at, for the reason in `failed`."""
    return Plan(tier, unread=count(body), failed=failed)


def apply(plan: Plan, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The body to send: `body` itself where nothing changes, else a copy of what does change."""
    if not plan.changes:
        return body
    out = dict(body)
    fresh: set[int] = {id(out)}
    for edit in plan.sent:
        _put(out, edit.path, edit.value, fresh)
    if plan.turns:
        messages = out["messages"]
        out["messages"] = [each for at, each in enumerate(messages) if at not in plan.turns]
    return out


def _put(out: dict[str, Any], path: Path, value: Any, fresh: set[int]) -> None:
    """Sets one value; containers on the way are copied once, `fresh` holds those that are ours."""
    at: Any = out
    for key in path[:-1]:
        inner = at.get(key, {}) if isinstance(at, dict) else at[key]
        if id(inner) not in fresh:
            inner = list(inner) if isinstance(inner, list) else dict(inner)
            fresh.add(id(inner))
            at[key] = inner
        at = inner
    at[path[-1]] = value
