"""Whether a request fits its tier's context by pruning; the turns that go where it would not."""

from __future__ import annotations

from dataclasses import replace

from tier_router.config.pruning import Step
from tier_router.prune.draft import Draft
from tier_router.prune.steps import turns
from tier_router.prune.walk import Walked, walk
from tier_router.prune.warm import Cached


def fitting(
    draft: Draft, walked: Walked, room: int | None, need: int
) -> tuple[frozenset[int], bool]:
    """(the messages to leave out, whether the request fits its tier only by pruning).

    `room` is the tier's context in its own tokens, `need` the tokens that the answer takes of it.
    """
    if room is None:
        return frozenset(), False
    room = int(room / draft.known.scale)
    over = walked.tokens + need - room
    gone: frozenset[int] = frozenset()
    if over > 0 and draft.on(Step.TURNS):
        gone = turns.run(draft, over)
        over = 0 if gone else over
    prompt = draft.prompt
    return gone, over <= 0 and prompt.tokens + len(prompt.tools) // 4 + need > room


def shortened(
    draft: Draft, walked: Walked, gone: frozenset[int], head: tuple[int, int], cached: Cached
) -> Walked:
    """The way of the prompt without the turns in `gone`; what it pruned stays pruned."""
    messages = tuple(m for m in draft.prompt.messages if m.index not in gone)
    draft.edits = [edit for edit in draft.edits if edit.message not in gone]
    picked = {message: [way] for message, way in walked.picked.items()}
    return walk(replace(draft.prompt, messages=messages), [head], picked, cached, {})
