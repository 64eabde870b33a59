"""What pruning takes out of one relayed request, and what is kept of its answer for the audit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tier_router.decide import Decision
from tier_router.pace import Usage
from tier_router.prune.answers import answer_in
from tier_router.prune.audit import Answer
from tier_router.prune.report import HEADER
from tier_router.pruner import Pruned, Trimming
from tier_router.router import TierRouter
from tier_router_proxy.attempt import is_encoded, is_stream
from tier_router_proxy.http.framing import FramingError, Walker
from tier_router_proxy.http.messages import Head, Headers
from tier_router_proxy.upstreams import Incoming

MOST = 2 * 1024 * 1024
"""Bytes of an answer that are kept for its audit: some 8,000 tokens as vLLM streams them.  No more
than the audited answers are kept, five a second."""

Note = Callable[[Mapping[str, Any] | None], None]
"""Writes a request down with its pruning record; runs on the event loop."""


class Cuts:
    """The pruning of one request, for each replica that it is sent to."""

    __slots__ = ("_kept", "_pruner", "_sent", "_stream", "_walker", "_whole", "trimming")

    def __init__(self, router: TierRouter, trimming: Trimming) -> None:
        self._pruner, self.trimming = router.pruner, trimming
        self._sent: dict[str, Pruned] = {}
        self._whole = False
        self._kept: bytearray | None = None
        self._walker: Walker | None = None
        self._stream = False

    @classmethod
    def of(cls, router: TierRouter, incoming: Incoming) -> Cuts | None:
        """None where pruning is off, or does not understand what comes to this path."""
        if not incoming.door.prunes:
            return None
        trimming = router.trimming(incoming.view, incoming.fields)
        return None if trimming is None else cls(router, trimming)

    def to(self, decision: Decision) -> Pruned:
        """What goes to the decision's replica."""
        pruned = self.trimming.to(decision, whole=self._whole)
        self._sent[decision.replica] = pruned
        return pruned

    def came_back_empty(self, decision: Decision) -> None:
        """With thinking off nothing was answered: what goes out from here on is the original."""
        self._whole = True
        self._pruner.misfired(decision.tier)

    def began(self, decision: Decision, head: Head) -> Headers:
        """The header that tells the client; from here on the answer is kept where it is audited."""
        pruned = self._sent[decision.replica]
        if pruned.audited and head.status == 200 and not is_encoded(head):
            self._walker, self._kept, self._stream = Walker(head.framing), bytearray(), False
            self._stream = is_stream(head)
        told = pruned.header
        return [(HEADER.encode(), told.encode())] if told else []

    def passed(self, data: bytes) -> None:
        """More raw bytes of the answer."""
        if self._kept is None or self._walker is None:
            return
        try:
            for piece in self._walker.payload(data)[0]:
                self._kept += piece
        except FramingError:
            self._kept = None
            return
        if len(self._kept) > MOST:
            self._kept = None

    def closed(self, decision: Decision, usage: Usage | None, *, done: bool, note: Note) -> None:
        """The answer is over; `done` where it came whole and well.  `note` is called once, maybe
        after this."""
        pruned = self._sent[decision.replica]
        if not done:
            note(self._pruner.unanswered(pruned))
            return
        told: Callable[[], Answer | None] | None = None
        if self._kept is not None:
            told = partial(answer_in, bytes(self._kept), stream=self._stream)
        loop = asyncio.get_running_loop()
        self._pruner.answered(pruned, usage, told, partial(_on, loop, note))


def _on(loop: asyncio.AbstractEventLoop, note: Note, record: Mapping[str, Any] | None) -> None:
    """Calls `note` on its loop, from that or from another thread."""
    try:
        here = asyncio.get_running_loop() is loop
    except RuntimeError:
        here = False
    if here:
        note(record)
    elif not loop.is_closed():
        loop.call_soon_threadsafe(note, record)
