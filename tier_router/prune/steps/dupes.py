"""A tool result that came before, byte for byte, becomes a pointer to its first copy."""

from __future__ import annotations

from tier_router.config.pruning import Step
from tier_router.prune.draft import Draft
from tier_router.prune.plan import Edit
from tier_router.prune.units import TOOL, Call, Path
from tier_router.view import tokens_of

ARGUMENT_CHARS = 120
"""Of the call's arguments, what a pointer repeats."""


def run(draft: Draft) -> None:
    """Adds an edit for each later copy; the first one stays, and no step may clear it."""
    seen: dict[tuple[str, ...], tuple[Path, Call]] = {}
    least = draft.config.steps.dupes.min_tokens
    for text in draft.prompt.texts:
        if text.role != TOOL or text.call is None:
            continue
        whole = draft.text(text)
        tokens = tokens_of(whole)
        same_call = (text.call.name, text.call.arguments, whole)
        first = seen.get(same_call) or (seen.get((whole,)) if tokens >= least else None)
        pointer = _pointer(first[1], tokens) if first else ""
        if first is None or not draft.free(text) or 2 * len(pointer) > len(whole):
            seen.setdefault(same_call, (text.path, text.call))
            seen.setdefault((whole,), (text.path, text.call))
            continue
        on = draft.on(Step.DUPES)
        draft.add(Edit(Step.DUPES, "point", text.path, pointer, tokens, tokens_of(pointer),
                       on, text.message, text.call.name, ((0, len(whole)),), pointer, (whole,))
                  )  # fmt: skip
        if on:
            draft.referred.setdefault(first[0], []).append(text.path)


def _pointer(call: Call, tokens: int) -> str:
    arguments = call.arguments
    if len(arguments) > ARGUMENT_CHARS:
        arguments = arguments[:ARGUMENT_CHARS] + "..."
    return f"[Same as the earlier result of {call.name}({arguments}), about {tokens} tokens]"
