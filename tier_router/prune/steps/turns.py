"""Old turns with their tool calls, only where a request would not fit its tier without."""

from __future__ import annotations

from itertools import accumulate

from tier_router.prune.draft import Draft
from tier_router.prune.units import SYSTEM, USER, Message

LAST_GROUPS = 2
"""Turns at the end that always stay: the one in hand and the one before it."""


def groups(draft: Draft) -> list[list[Message]]:
    """The messages by human turn: each turn with all that followed it, system messages apart."""
    out: list[list[Message]] = []
    for message in draft.prompt.messages:
        if message.role == SYSTEM:
            continue
        human = message.role == USER and any(text.role == USER for text in message.texts)
        if human or not out:
            out.append([])
        out[-1].append(message)
    return out


def run(draft: Draft, over: int) -> frozenset[int]:
    """The messages to leave out so that `over` tokens go; none where that cannot be done.

    The first turn stays, the last two do, frozen ones do, and so does any turn that a pointer
    refers to or whose calls and results are not whole."""
    turns = groups(draft)
    referred = {path[1] for path in draft.referred}
    able = []
    for turn in turns[1 : max(1, len(turns) - LAST_GROUPS)]:
        calls = sum(len(message.calls) for message in turn)
        results = sum(len(message.results) for message in turn)
        whole = calls == results and not any(message.orphan for message in turn)
        free = all(message.index >= draft.prompt.frozen for message in turn)
        if whole and free and not any(message.index in referred for message in turn):
            able.append(turn)
    sizes = list(accumulate(sum(message.tokens for message in turn) for turn in able))
    enough = next((at + 1 for at, size in enumerate(sizes) if size >= over), 0)
    return frozenset(message.index for turn in able[:enough] for message in turn)
