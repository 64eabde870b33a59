"""A shorter tool list, only by a number that calibration found on the operator's own traffic.

The list follows from the conversation's first human turn, so it stays the same through all of it.
"""

from __future__ import annotations

import re
from collections import Counter
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

import msgspec

from tier_router.config.pruning import Step
from tier_router.prune.draft import Draft
from tier_router.prune.language import language
from tier_router.prune.plan import Edit
from tier_router.prune.score import Scorer, coverage, query_terms, terms
from tier_router.prune.units import USER

_PARTS = re.compile(r"([a-z0-9])([A-Z])")
SPOKEN = 8
"""Tools that tell which language a list is in."""
COVERED = 0.3
"""Share of the question's words that some tool must hold, as for passages."""
SEVERAL = 24
"""Content words from which a request is likely to ask for several things."""
QUESTION_CHARS = 2_000
"""Of the first human turn, what a tool is chosen by."""


def run(draft: Draft) -> tuple[str, ...]:
    """The tools' names, the likeliest first; adds the cut where there is a number for it."""
    settings = draft.config.steps.tools
    tools = draft.body.get("tools")
    if not isinstance(tools, list) or len(tools) <= settings.max_untouched:
        return ()
    named = [described(tool) for tool in tools]
    question = next((t.text for t in draft.prompt.texts if t.role == USER and t.text.strip()), "")
    if not question or not all(name for name, _ in named):
        return ()
    order = ranked(draft.scorer, question[:QUESTION_CHARS], tuple(named))
    if not order:
        draft.abstain(Step.TOOLS, "unclear")
        return ()
    ranking = tuple(named[at][0] for at in order)
    if settings.keep and not draft.prompt.pinned_tools:
        _cut(draft, tools, named, order)
    return ranking


def _cut(
    draft: Draft, tools: list[Any], named: list[tuple[str, str]], order: tuple[int, ...]
) -> None:
    settings = draft.config.steps.tools
    called = {call.name for message in draft.prompt.messages for call in message.calls}
    choice = draft.body.get("tool_choice")
    if choice not in (None, "auto", "none"):
        draft.abstain(Step.TOOLS, "tool_choice")
        return
    kept = set(order[: settings.keep]) | {
        at
        for at, (name, _) in enumerate(named)
        if name in called or any(fnmatchcase(name, each) for each in settings.always_keep)
    }
    gone = [at for at in range(len(tools)) if at not in kept]
    if not gone:
        return
    slim = msgspec.json.decode(draft.tools) if draft.tools else tools
    value = [slim[at] for at in sorted(kept)]
    on = draft.on(Step.TOOLS)
    after = msgspec.json.encode(value)
    before = len(draft.tools or draft.prompt.tools) // 4
    draft.add(Edit(Step.TOOLS, "drop", ("tools",), value, before, len(after) // 4, on,
                   labels=tuple(named[at][0] for at in gone)))  # fmt: skip
    if on:
        draft.tools = after


@lru_cache(256)
def ranked(scorer: Scorer, question: str, named: tuple[tuple[str, str], ...]) -> tuple[int, ...]:
    """Places of tools by how well name and description fit `question`, the best first; none where
    it is in another language, asks for several things at once, or hardly shares a word."""
    texts = [f"{name} {words}" for name, words in named]
    asked = language(question)
    told = Counter(language(text) for text in texts[:SPOKEN]).most_common(1)[0][0]
    query = query_terms(question)
    foreign = not question.isascii() or (asked and told and asked != told)
    unclear = coverage(query, [terms(text) for text in texts]) < COVERED
    if foreign or unclear or len(query) > SEVERAL:
        return ()
    scores = scorer.scores(question, named)
    return tuple(sorted(range(len(scores)), key=lambda at: (-scores[at], at)))


def described(tool: Any) -> tuple[str, str]:
    """(name, what it says of itself) of a tool in OpenAI's or Anthropic's shape."""
    function = tool.get("function", tool) if isinstance(tool, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        return "", ""
    schema = function.get("parameters", function.get("input_schema"))
    properties = schema.get("properties") if isinstance(schema, dict) else None
    words = [
        _PARTS.sub(r"\1 \2", function["name"]).replace("_", " "),
        str(function.get("description") or ""),
    ]
    for name, each in (properties or {}).items() if isinstance(properties, dict) else ():
        about = each.get("description") if isinstance(each, dict) else None
        words.append(f"{name.replace('_', ' ')} {about or ''}")
    return function["name"], "\n".join(words)
