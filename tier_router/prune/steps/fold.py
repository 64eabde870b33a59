"""Lossless folding of tool results: white space between JSON's values, blanks at line ends, and
where it is asked for the keys that a list's objects repeat.

Numbers, escapes, the order and the doubling of keys stay as they were written.
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from tier_router.config.pruning import Step
from tier_router.prune.draft import Draft
from tier_router.prune.plan import Edit
from tier_router.prune.recognise import LONGEST, is_code
from tier_router.prune.tables import tabled
from tier_router.prune.units import TOOL
from tier_router.view import tokens_of

_ENDS = re.compile(r"[ \t]+(?=\n)|[ \t]+\Z")
_GAPS = re.compile(r"\n{4,}")
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def run(draft: Draft) -> None:
    """Adds an edit for each tool result that has something to fold."""
    settings = draft.config.steps.fold
    for text in draft.prompt.texts:
        if text.role != TOOL or not draft.free(text):
            continue
        draft.in_time()
        old = draft.text(text)
        new = folded(old, settings.json_, settings.blanks, settings.json_ and settings.tables)
        if len(new) < len(old):
            draft.add(Edit(Step.FOLD, "fold", text.path, new, tokens_of(old), tokens_of(new),
                           draft.on(Step.FOLD), text.message, text.call.name if text.call else "")
                      )  # fmt: skip


@lru_cache(512)
def folded(text: str, json: bool = True, blanks: bool = True, tables: bool = False) -> str:
    """`text` without what carries nothing, its JSON lists of like objects as `tables`; the same
    text where there is nothing, or where it is code, a diff or too long to look at."""
    if len(text) > LONGEST:
        return text
    if text.lstrip()[:1] in ("{", "["):
        compact = _compact(text) if json else None
        if compact is not None:
            return (tabled(compact) if tables else None) or compact
    if not blanks or is_code(text):
        return text
    return _GAPS.sub("\n\n\n", _ENDS.sub("", _ANSI.sub("", text)))


def _compact(text: str) -> str | None:
    """JSON without the white space between its values; None where it is no JSON."""
    try:
        return msgspec.json.format(text, indent=-1)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None
