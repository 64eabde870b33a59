"""What is probably in each replica's prefix cache: chains of hashes of the pieces that were sent.

vLLM's cache is keyed the same way: each block's hash holds all before it.  Told facts, asked
questions; no clock.  `now` is in seconds on any monotonic scale, the same for all calls.  A process
knows only what it sent itself: what it does not know counts as cold where that is the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from tier_router.prune.plan import Plan

ENTRIES = 200_000
"""Pieces remembered for each replica: 25 million tokens of prompts, 20 MB."""


@dataclass(frozen=True, slots=True)
class Cached:
    """What one replica has, at one moment: ask it about the chain of a prompt."""

    here: dict[int, float]
    asked: dict[int, float]
    forks: dict[int, int]
    since: float
    unread: Mapping[int, tuple[int, float]] = field(default_factory=dict)

    def hidden(self, key: int) -> int:
        """How many messages of this conversation may be cached here in a form that nobody read."""
        count, at = self.unread.get(key, (0, -math.inf))
        return count if at >= self.since else 0

    def has(self, link: int) -> bool:
        """Whether the prompt up to this piece was sent here of late."""
        return self.here.get(link, -math.inf) >= self.since

    def seen(self, link: int) -> bool:
        """Whether a client of any replica asked with a prompt that begins so, however long ago."""
        return link in self.asked

    def lately(self, link: int) -> bool:
        """As `seen`, within the time that a prefix is cached."""
        return self.asked.get(link, -math.inf) >= self.since

    def forked(self, link: int) -> int:
        """How many prompts that began so were pruned in different ways after it."""
        return self.forks.get(link, 0)


COLD = Cached({}, {}, {}, 0.0)
"""A replica of which nothing is known."""


class Caches:
    """Remembers what was sent where; doors tell it from event loops and from threads."""

    def __init__(self, entries: int = ENTRIES) -> None:
        self._entries = entries
        self._here: dict[str, dict[int, float]] = {}
        self._asked: dict[int, float] = {}
        self._forks: dict[int, int] = {}
        self._unread: dict[str, dict[int, tuple[int, float]]] = {}
        self._lock = Lock()

    def __repr__(self) -> str:
        kept = ", ".join(f"{place}: {len(links)}" for place, links in self._here.items())
        return f"<Caches {kept or 'empty'}>"

    def at(self, place: str, now: float, ttl: float) -> Cached:
        """What the replica `place` has, if prefixes stay for `ttl` seconds."""
        here = self._here.setdefault(place, {})
        unread = self._unread.setdefault(place, {})
        return Cached(here, self._asked, self._forks, now - ttl, unread)

    def planned(self, place: str, key: int, plan: Plan, now: float) -> None:
        """What `plan` says is sent went to `place`, in the conversation `key`; nothing, where
        pruning is off for all."""
        if plan.unread:
            with self._lock:
                unread = self._unread.setdefault(place, {})
                unread.pop(key, None)
                unread[key] = plan.unread, now
                _bound(unread, self._entries // 100)
        elif plan.chain:
            self.sent(place, plan.chain, plan.asked, now, plan.forks)

    def sent(
        self,
        place: str,
        chain: Sequence[int],
        asked: Sequence[int],
        now: float,
        forks: Sequence[int] = (),
    ) -> None:
        """A prompt with this chain went to `place`; `asked` is the chain of the client's own."""
        with self._lock:
            _note(self._here.setdefault(place, {}), chain, now, self._entries)
            _note(self._asked, asked, now, self._entries)
            for link in forks:
                self._forks[link] = self._forks.pop(link, 0) + 1
            _bound(self._forks, self._entries // 10)

    def heard(self, place: str, chain: Sequence[int], believed: int, cached: int) -> None:
        """`usage` said how many tokens were cached; `believed` is what was thought.

        Where far fewer were, the replica has dropped the prefix: what follows it is forgotten."""
        if believed > 0 and cached < believed / 2:
            with self._lock:
                here = self._here.get(place, {})
                for link in chain[int(len(chain) * cached / believed) :]:
                    here.pop(link, None)

    def lost(self, place: str) -> None:
        """A replica came up anew: its cache is empty."""
        with self._lock:
            self._here.pop(place, None)
            self._unread.pop(place, None)


def _note(kept: dict[int, float], links: Sequence[int], now: float, most: int) -> None:
    for link in links:
        kept.pop(link, None)  # to the end: the oldest stay in front
        kept[link] = now
    _bound(kept, most)


def _bound(kept: dict[int, Any], most: int) -> None:
    while len(kept) > most:
        kept.pop(next(iter(kept)))
