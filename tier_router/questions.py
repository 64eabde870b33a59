"""Answers to typed questions about a text: "which tier?", "which intent?", "how complex?".

The wire shape is the one that vLLM's `/v1/systemone`, semantic-router's decision models and
LangChain's share: a `choice` names its labels in `criteria` and gets a probability for each.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tier_router.decide import Decision, Reason
from tier_router.errors import RequestError

COMPLEXITY = ("SIMPLE", "MEDIUM", "COMPLEX", "REASONING")
"""The labels of LiteLLM's complexity router, easiest first."""

STEP = math.log(2)
"""Log-odds between two labels of `COMPLEXITY`: the odds double, as between the steps of a ladder
whose policy gives one threshold."""

SHARPNESS = 4.0
"""How quickly a probability leaves 0.5 as the difficulty leaves a line: in the middle between two
lines whose odds differ by two, the label between them has 0.6."""


@dataclass(frozen=True, slots=True)
class Known:
    """What questions may be about: the ladder, its thresholds, the intents."""

    tiers: Sequence[str]
    thresholds: Sequence[float]
    intents: Sequence[str]


def answer(name: str, question: Any, decision: Decision, known: Known) -> dict[str, Any]:
    """The answer to one question, as JSON data; raises RequestError that names it."""
    labels = _labels(name, question)
    found = _found(labels, decision, known)
    if found is None:
        raise RequestError(
            f"the labels of `{name}` must be tiers ({', '.join(known.tiers)}), intents, or "
            f"{', '.join(COMPLEXITY)}",
            param=f"questions.{name}.criteria",
        )
    choice, shares = found
    return {
        "type": "choice",
        "choice": choice,
        "probabilities": {label: round(shares[label], 6) for label in labels},
        "confidence": round(shares[choice], 6),
    }


def messages_of(state: Any) -> list[Any]:
    """The messages of a state: a text, a message, messages, or any JSON value as text."""
    if isinstance(state, Mapping) and isinstance(state.get("messages"), list):
        return list(state["messages"])
    if isinstance(state, Mapping) and "role" in state:
        return [state]
    if isinstance(state, list) and state and all(_is_message(each) for each in state):
        return state
    text = state if isinstance(state, str) else json.dumps(state, ensure_ascii=False)
    return [{"role": "user", "content": text}]


def _is_message(value: Any) -> bool:
    return isinstance(value, Mapping) and "role" in value


def _labels(name: str, question: Any) -> list[str]:
    where = f"questions.{name}"
    if not isinstance(question, Mapping) or question.get("type") != "choice":
        raise RequestError("only questions of the type `choice` are answered", param=where)
    criteria = question.get("criteria")
    if not isinstance(criteria, Mapping) or not criteria:
        raise RequestError("a choice has its labels in `criteria`", param=f"{where}.criteria")
    return list(criteria)


def _found(
    labels: Sequence[str], decision: Decision, known: Known
) -> tuple[str, Mapping[str, float]] | None:
    """The label chosen and a probability for each, None where they are of no known kind."""
    asked = set(labels)
    if asked <= set(known.tiers):
        return _among(labels, known.tiers, _tiers(decision, known), decision.tier)
    if asked <= set(COMPLEXITY):
        shares, place = _complexity(decision, known)
        return _among(labels, COMPLEXITY, shares, COMPLEXITY[place])
    if asked & set(known.intents):
        return _intents(labels, decision)
    return None


def _tiers(decision: Decision, known: Known) -> list[float]:
    """One probability for each tier of the ladder.

    A tier's is that of the difficulty lying between its neighbours' thresholds; a tier that a pin,
    a rule, an intent or the load settled has 1.
    """
    judged = decision.reasons in ((Reason.EASY,), (Reason.HARD,))
    if not judged or decision.difficulty is None:
        return [float(name == decision.tier) for name in known.tiers]
    return _between(decision.difficulty, [_log_odds(line) for line in known.thresholds])


def _complexity(decision: Decision, known: Known) -> tuple[list[float], int]:
    """One probability for each label of `COMPLEXITY`, and the place of the one that holds;
    MEDIUM begins at the first threshold."""
    level = decision.difficulty
    if level is None or not known.thresholds:
        place = round(3 * known.tiers.index(decision.tier) / max(len(known.tiers) - 1, 1))
        return [float(label == place) for label in range(len(COMPLEXITY))], place
    first = _log_odds(known.thresholds[0])
    lines = [first + step * STEP for step in range(3)]
    return _between(level, lines), sum(_log_odds(level) >= line for line in lines)


def _intents(labels: Sequence[str], decision: Decision) -> tuple[str, Mapping[str, float]]:
    """The intent's confidence, and the rest for the others alike."""
    chosen = decision.intent if decision.intent in labels else None
    share = decision.confidence if chosen is not None else 0.0
    others = [label for label in labels if label != chosen]
    shares = dict.fromkeys(others, (1 - share) / len(others) if others else 0.0)
    if chosen is None:
        return labels[0], shares
    shares[chosen] = share if others else 1.0
    return chosen, shares


def _among(
    labels: Sequence[str], order: Sequence[str], found: Sequence[float], likely: str
) -> tuple[str, Mapping[str, float]]:
    """The probabilities of the labels that were asked for, adding up to 1; where the likely one
    is not among them, the next above it is chosen, or the highest."""
    all_of = dict(zip(order, found, strict=True))
    places = sorted(labels, key=order.index)
    above = [label for label in places if order.index(label) >= order.index(likely)]
    chosen = above[0] if above else places[-1]
    total = sum(all_of[label] for label in labels)
    if chosen == likely and total > 0:
        return chosen, {label: all_of[label] / total for label in labels}
    return chosen, {label: float(label == chosen) for label in labels}


def _between(difficulty: float, lines: Sequence[float]) -> list[float]:
    """Shares of lying between the lines (log-odds, rising), the first below all of them."""
    own = _log_odds(difficulty)
    edges = [1.0, *(_sigmoid(SHARPNESS * (own - line)) for line in lines), 0.0]
    return [max(0.0, edges[place] - edges[place + 1]) for place in range(len(edges) - 1)]


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-max(min(value, 60.0), -60.0)))


def _log_odds(share: float) -> float:
    share = min(max(share, 1e-6), 1 - 1e-6)
    return math.log(share / (1 - share))
