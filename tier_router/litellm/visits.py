"""What is remembered of a request between its attempts.

LiteLLM keeps a request's notes ("metadata") through all of its attempts, but clients may write
into them.  So the notes hold no more than a ticket, under a name that is drawn at start: what
the ticket stands for stays in this process.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from tier_router.decide import Decision, Judged
from tier_router.ledger import Lease
from tier_router.litellm.asked import BUCKETS
from tier_router.pruner import Pruned, Trimming
from tier_router.request import View

MOST = 4_096
"""Requests that are remembered at a time: more than one LiteLLM worker has under way (it serves
about 80 a second, each for some seconds).  One that is forgotten is judged again."""


@dataclass(slots=True, eq=False)
class Visit:
    """One request: what was read and judged once, and what came of it so far."""

    read: tuple[View, Judged] | None = None
    tried: set[str] = field(default_factory=set)
    lease: Lease | None = None
    """The attempt under way."""
    decision: Decision | None = None
    unrouted: str | None = None
    """Why the last attempt was left to LiteLLM."""
    began: float | None = None
    """When its first attempt was opened."""
    noted: bool = False
    """Whether the decision log has it."""
    trimming: Trimming | None = None
    """What pruning makes of it; None where it is left alone."""
    pruned: Pruned | None = None
    """What went out in the last attempt, where pruning looked at it."""
    watched: list[set[Visit]] = field(default_factory=list)
    """The sets of `Watch` that this is in."""


class Visits:
    """The requests under way, by the tickets in their notes."""

    def __init__(self, most: int = MOST) -> None:
        self._key = f"_tier_router_{secrets.token_hex(16)}"
        self._most = most
        self._known: OrderedDict[str, Visit] = OrderedDict()

    def opened(self, bucket: MutableMapping[str, Any] | None) -> Visit:
        """The visit that the notes hold a ticket of, or a new one."""
        if bucket is None:
            return Visit()
        visit = self._known.get(str(bucket.get(self._key)))
        if visit is None:
            visit = Visit()
            bucket[self._key] = ticket = secrets.token_hex(16)
            self._known[ticket] = visit
            if len(self._known) > self._most:
                self._known.popitem(last=False)
        return visit

    def found(self, notes: Mapping[str, Any]) -> Visit | None:
        """The visit of a call's or a log event's parameters, which hold the notes."""
        for name in BUCKETS:
            bucket = notes.get(name)
            if isinstance(bucket, Mapping) and self._key in bucket:
                return self._known.get(str(bucket[self._key]))
        return None

    def __len__(self) -> int:
        return len(self._known)
