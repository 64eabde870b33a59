"""Old tool results, when the tier has to read the whole prompt anyway or has no room for it.

What is cleared stays cleared while it is cached, and what went out whole stays whole: `walk` sees
to that.  So the choice is made once, at a tier switch or after a pause, and never slides.
"""

from __future__ import annotations

import re
from functools import lru_cache

from tier_router.config.pruning import Step
from tier_router.prune.draft import Draft
from tier_router.prune.plan import Edit
from tier_router.prune.units import TOOL, Path, Text
from tier_router.view import tokens_of

LATEST = 4
"""Messages at the end whose names keep a result."""
SMALL = 100
"""Tokens of a result that is worth clearing, several times its placeholder."""
_RUN = re.compile(r"[\w@.+-]{3,}")
_TELLING = re.compile(r"@|[A-Z]{5}|\d{5}|[A-Za-z].*\d|\d.*[A-Za-z]")
_KEY = re.compile(r"[a-z_]+\d?$")
_ERROR = re.compile(r"^\W*(?:error|exception|traceback|failed|fatal|denied|not found)", re.I)


def clearable(draft: Draft) -> list[Edit]:
    """The edits that would clear each result that may be cleared at all, however new or needed."""
    return [
        _edit(draft, text)
        for text in draft.prompt.texts
        if text.role == TOOL
        and text.call
        and draft.free(text)
        and tokens_of(draft.text(text)) >= SMALL
    ]


def stale(draft: Draft) -> set[Path]:
    """The places of old results that nothing speaks for."""
    settings = draft.config.steps.results
    results = [text for text in draft.prompt.texts if text.role == TOOL and text.call]
    old = results[: -settings.keep_last]
    if not old:
        return set()
    latest = draft.prompt.messages[-LATEST:]
    late = [draft.text(text) for message in latest for text in message.texts]
    late += [call.arguments for message in latest for call in message.calls]
    named = names("\n".join(late))
    return {
        text.path
        for text in old
        if not _ERROR.match(text.text) and named.isdisjoint(names(draft.text(text)))
    }


@lru_cache(1_024)
def names(text: str) -> frozenset[str]:
    """The identifiers and addresses in a text, and no keys: what a later turn refers to."""
    return frozenset(
        run.strip(".-+")
        for run in _RUN.findall(text)
        if _TELLING.search(run) and not _KEY.match(run)
    )


def _edit(draft: Draft, text: Text) -> Edit:
    old = draft.text(text)
    name = text.call.name if text.call else "a tool"
    tokens = tokens_of(old)
    note = f"[Result of {name} left out here to save space: about {tokens} tokens]"
    return Edit(Step.RESULTS, "clear", text.path, note, tokens, tokens_of(note),
                draft.on(Step.RESULTS), text.message, name, ((0, len(old)),), note, (old,)
                )  # fmt: skip
