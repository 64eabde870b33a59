"""The verifier: what every plan must keep, looked at in the bodies before and after.

    I1  system and developer messages stay byte for byte
    I2  human turns lose nothing but recognised passages
    I3  every tool call keeps its result; ids, order and roles stay
    I4  only whole units go: the text after is the text before without its cuts, plus a note
    I5  fences, media, output formats and the shape of contents stay
    I7  no more tokens to prefill than without pruning (turns go only where nothing else fits)
    I8  something of each kind stays
    I11 what is taken out leaves a note of its size
    I12 nothing before a cache mark or a protect marker changes

I6 (same message, same bytes), I9 (an error sends the original) and I10 (twice is once) are no facts
of one plan; the property tests hold them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tier_router.config.pruning import Step
from tier_router.prune.plan import Edit, Plan
from tier_router.prune.steps.fold import folded
from tier_router.prune.steps.rag import without
from tier_router.prune.tables import untabled
from tier_router.prune.units import SYSTEM, TOOL, USER, Message, Prompt
from tier_router.prune.walk import BLOCK

_BODY_STEPS = {
    Step.REASONING: frozenset({"chat_template_kwargs", "thinking_token_budget"}),
    Step.CAPS: frozenset({"max_completion_tokens"}),
    Step.SCHEMA: frozenset({"tools"}),
    Step.TOOLS: frozenset({"tools"}),
}
"""Body fields that a step may set; all others are I5."""


def violated(
    plan: Plan, before: Prompt, body: Mapping[str, Any], after: Prompt | None,
    sent: Mapping[str, Any],
) -> str:  # fmt: skip
    """The first invariant that a plan breaks, or "" where it keeps them all."""
    fields: set[Any] = set()
    for edit in plan.sent:
        if edit.path[0] == "messages":
            continue
        fields.add(edit.path[0])
        if edit.path[0] not in _BODY_STEPS.get(edit.step, frozenset()):
            return "I5"
    for key in body.keys() | sent.keys():
        if key not in fields and key != "messages" and sent.get(key) is not body.get(key):
            return "I5"
    if "tools" in fields and not sent["tools"]:
        return "I8"
    if after is None:
        return "I5"
    if not plan.turns and plan.uncached_after > plan.uncached_before + BLOCK:
        return "I7"
    return _messages(plan, before, after)


def _messages(plan: Plan, before: Prompt, after: Prompt) -> str:
    kept = [message for message in before.messages if message.index not in plan.turns]
    if not kept or len(kept) != len(after.messages):
        return "I8" if not kept else "I3"
    if any(message.role == SYSTEM for message in before.messages if message.index in plan.turns):
        return "I1"
    edits: dict[Any, list[Edit]] = {}
    for edit in plan.sent:
        edits.setdefault(edit.path, []).append(edit)
    for old, new in zip(kept, after.messages, strict=True):
        broken = _message(old, new, edits, before.frozen)
        if broken:
            return broken
    if plan.turns and sum(len(m.results) for m in after.messages) != sum(
        len(m.calls) for m in kept if _answered(m, before)
    ):
        return "I3"
    return ""


def _answered(message: Message, prompt: Prompt) -> bool:
    """Whether the calls of a message have their results in the prompt."""
    ids = {call.id for each in prompt.messages for call in each.results}
    return all(call.id in ids for call in message.calls)


def _message(old: Message, new: Message, edits: Mapping[Any, list[Edit]], frozen: int) -> str:
    if old.role != new.role or old.calls != new.calls or len(old.results) != len(new.results):
        return "I3"
    if old.rest != new.rest or len(old.texts) != len(new.texts):
        return "I5"
    for one, two in zip(old.texts, new.texts, strict=True):
        if one.text is two.text or one.text == two.text:
            continue
        if one.role == SYSTEM:
            return "I1"
        if old.index < frozen:
            return "I12"
        made = edits.get(one.path, [])
        if one.role == USER and any(edit.step is not Step.RAG for edit in made):
            return "I2"
        if one.role not in (USER, TOOL):
            return "I2"
        broken = _rebuilt(one.text, two.text, made)
        if broken:
            return broken
    return ""


def _rebuilt(old: str, new: str, made: list[Edit]) -> str:
    """Whether the edits of one text, done again from their own account, give the new one."""
    text = old
    for edit in made:
        if edit.step is Step.FOLD:
            if not _same(text, edit.value):
                return "I4"
            text = edit.value
            continue
        if not edit.note.strip():
            return "I11"
        if edit.step is Step.RAG:
            if any("```" in text[start:end] for start, end in edit.cuts):
                return "I5"
            at = edit.value.find(edit.note)
            gone = sum(end - start for start, end in edit.cuts if start < at + _cut(edit, at))
            text = without(text, edit.cuts, at + gone, edit.note)
        else:
            text = edit.note
    return "" if text == new else "I4"


def _cut(edit: Edit, at: int) -> int:
    """Characters cut before the place that the note has in the new text."""
    gone = 0
    for start, end in edit.cuts:
        if start - gone <= at:
            gone += end - start
    return gone


def _same(old: str, new: str) -> bool:
    """Whether two texts say the same: equal JSON, else equal but for blanks, else a table of which
    the JSON can be made again."""
    if new == folded(old):
        try:
            return bool(msgspec.json.decode(old) == msgspec.json.decode(new))
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return "".join(old.split()) == "".join(new.split()) or "\x1b" in old
    if new == folded(old, tables=True):
        return bool(untabled(msgspec.json.decode(new)) == msgspec.json.decode(old))
    return False
