"""A replica's prefix cache, by conversation."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass


@dataclass(slots=True)
class _Entry:
    tokens: int
    users: int = 0


class PrefixCache:
    """How many tokens of each conversation are cached; the least recently used go first.

    What a running sequence uses is its own and not evicted; `idle` counts the rest.  Two sequences
    of one conversation are not counted as sharing memory.
    """

    def __init__(self) -> None:
        self._held: dict[int, _Entry] = {}
        self._idle: OrderedDict[int, _Entry] = OrderedDict()
        self.idle = 0

    def match(self, conversation: int | None) -> int:
        """Tokens of the conversation that are cached."""
        if conversation is None:
            return 0
        entry = self._held.get(conversation) or self._idle.get(conversation)
        return entry.tokens if entry else 0

    def hold(self, conversation: int | None) -> None:
        """A sequence of the conversation runs from now on."""
        if conversation is None:
            return
        entry = self._idle.pop(conversation, None)
        if entry is not None:
            self.idle -= entry.tokens
            self._held[conversation] = entry
        self._held.setdefault(conversation, _Entry(0)).users += 1

    def computed(self, conversation: int | None, tokens: int) -> None:
        """That many tokens of a running sequence of the conversation are there."""
        if conversation is not None:
            entry = self._held[conversation]
            entry.tokens = max(entry.tokens, tokens)

    def release(self, conversation: int | None, tokens: int) -> None:
        """A sequence of the conversation left, and leaves so many tokens behind."""
        if conversation is None:
            return
        entry = self._held[conversation]
        entry.tokens = max(entry.tokens, tokens)
        entry.users -= 1
        if not entry.users:
            self._idle[conversation] = self._held.pop(conversation)
            self.idle += entry.tokens

    def fit(self, room: int) -> None:
        """Evicts until what no sequence uses fits in `room` tokens."""
        while self.idle > room and self._idle:
            conversation, entry = next(iter(self._idle.items()))
            lost = min(entry.tokens, self.idle - max(room, 0))
            entry.tokens -= lost
            self.idle -= lost
            if not entry.tokens:
                del self._idle[conversation]
