"""A decision in words that a person understands."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tier_router.classify import Signal
from tier_router.decide import Decision, Reason

WORDS: Mapping[Reason, str] = {
    Reason.PINNED: "the client named this tier",
    Reason.RULE: "a rule of the configuration matched",
    Reason.INTENT: "it is a known intent",
    Reason.EASY: "the light tier is enough",
    Reason.HARD: "the light tier is likely not enough",
    Reason.UNSURE: "it cannot be judged, and what cannot be judged goes up",
    Reason.HOUSEKEEPING: "the client asks on its own behalf (a title, tags, follow-ups)",
    Reason.MEDIA: "there is nothing to judge but images or sound",
    Reason.CONTINUES: "it only makes sense with the turn before it",
    Reason.HELD: "an earlier turn of the conversation was hard",
    Reason.TOOL_TURN: "a tool's result stays where its question went",
    Reason.LOAD_UP: "the tier below is busier, and the request is borderline",
    Reason.LOAD_DOWN: "the tier above is busier, and the request is borderline",
    Reason.NEEDS_CONTEXT: "the prompt does not fit the smaller context",
    Reason.NEEDS_TOOLS: "it needs tools",
    Reason.NEEDS_VISION: "it needs vision",
    Reason.NEEDS_AUDIO: "it needs audio",
    Reason.NEEDS_JSON: "it needs structured output",
    Reason.NEEDS_LOGPROBS: "it needs log-probabilities",
    Reason.NEEDS_REASONING: "it asks for reasoning",
    Reason.EMBEDDINGS: "this tier makes embeddings",
    Reason.STORED: "this replica keeps the response that it goes on from",
    Reason.SPILLED: "the smaller tier is full and this one is not",
    Reason.TIER_DOWN: "the wanted tier is down",
    Reason.FAILOVER: "another replica failed before it answered",
    Reason.HEDGED: "another replica was late with its first token",
}


def sentence(decision: Decision) -> str:
    """Why the request goes where it goes, in one line."""
    parts = [_part(reason, decision) for reason in decision.reasons]
    return f"{decision.tier}: {'; '.join(parts)}"


def _part(reason: Reason, decision: Decision) -> str:
    words = WORDS[reason]
    if reason is Reason.INTENT and decision.intent:
        near = f', near "{decision.nearest}"' if decision.nearest else ""
        return f"it is the intent `{decision.intent}`{near}"
    if reason is Reason.UNSURE and decision.abstain:
        return f"{words} ({decision.abstain})"
    if reason in (Reason.EASY, Reason.HARD) and decision.difficulty is not None:
        side = "over" if reason is Reason.HARD else "under"
        line = f", {side} the line at {decision.threshold:.2f}" if decision.threshold else ""
        return f"{words} (difficulty {decision.difficulty:.2f}{line})"
    return words


def signals(found: Sequence[Signal], most: int = 6) -> list[tuple[str, str]]:
    """(direction, words) of the strongest signals: `up` speaks for a larger tier."""
    return [("up" if signal.weight > 0 else "down", signal.text) for signal in found[:most]]


def record(decision: Decision) -> dict[str, Any]:
    """The decision as plain data for JSON; a tier that is down has the pressure "down"."""
    return {
        "tier": decision.tier,
        "replica": decision.replica,
        "model": decision.model,
        "reasons": [reason.value for reason in decision.reasons],
        "why": sentence(decision),
        "difficulty": _rounded(decision.difficulty),
        "threshold": _rounded(decision.threshold),
        "intent": decision.intent,
        "nearest": decision.nearest,
        "abstain": decision.abstain,
        "pressures": {
            name: round(load, 3) if math.isfinite(load) else "down"
            for name, load in decision.pressures.items()
        },
        "alternatives": list(decision.alternatives),
        "priority": decision.priority,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
