"""What the pruning tests share: a tier, settings with everything on, bodies."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tier_router.config import Tier
from tier_router.config.pruning import Pruning, Step
from tier_router.prune.pipeline import plan
from tier_router.prune.plan import Known, Plan, apply
from tier_router.prune.warm import COLD, Cached, Caches
from tier_router.request import View
from tier_router.view import view_of

Body = dict[str, Any]
LOSSY = frozenset({Step.RAG, Step.RESULTS, Step.TOOLS, Step.CAPS})
ALL_KNOWN = Known(proven=LOSSY)
VIEW = view_of({"messages": [{"role": "user", "content": "x"}]})


def tier(**more: Any) -> Tier:
    return Tier.model_validate({"name": "light", "model": "m", "replicas": ["http://a:1"], **more})


def settings(**steps: Any) -> Pruning:
    """Everything is on, nothing is held out, and there is time."""
    on = {"rag": "on", "results": "on", **steps}
    return Pruning.model_validate({"mode": "on", "holdout": 0, "budget_ms": 60_000, "steps": on})


ON = settings()


def planned(
    body: Mapping[str, Any],
    config: Pruning = ON,
    cached: Cached = COLD,
    known: Known = ALL_KNOWN,
    view: View = VIEW,
    **more: Any,
) -> Plan:
    return plan(body, view, more.pop("tier", tier()), cached, config, known=known, **more)


def pruned(body: Mapping[str, Any], config: Pruning = ON, **more: Any) -> Any:
    made = planned(body, config, **more)
    assert made.failed == ""
    return apply(made, body)


def user(text: Any) -> Body:
    return {"role": "user", "content": text}


def called(identity: str, name: str, result: Any, **arguments: Any) -> list[Body]:
    """A tool call and its result."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": identity, "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": identity, "content": result},
    ]


def chat(*messages: Any, **more: Any) -> Body:
    flat: list[Body] = []
    for message in messages:
        flat += message if isinstance(message, list) else [message]
    return {"model": "auto", "messages": flat, **more}


PASSAGES = (
    ("Volcano", "A volcano is a rupture in the crust from which hot lava, ash and gases escape."),
    ("Cheese", "Cheese is a dairy product made by coagulation of the milk protein casein."),
    ("Bicycle", "A bicycle has two wheels attached to a frame, one behind the other."),
    ("Mount Etna", "Mount Etna is an active volcano on the east coast of Sicily, in Italy."),
    ("Chess", "Chess is a board game for two players with sixteen pieces each."),
    ("Tulip", "Tulips are spring flowers that grow from bulbs, and come from Central Asia."),
    ("Clarinet", "The clarinet is a woodwind instrument with a single reed mouthpiece."),
    ("Granite", "Granite is a coarse-grained rock made of quartz and feldspar mostly."),
)


def retrieved(
    question: str, passages: Sequence[tuple[str, str]] = PASSAGES, style: str = "document"
) -> str:
    """A prompt with passages as people write them."""
    long = [(title, f"{text} {text} {text}") for title, text in passages]
    if style == "document":
        block = "\n".join(f"Document [{n}](Title: {t}) {x}" for n, (t, x) in enumerate(long, 1))
    elif style == "number":
        block = "\n".join(f"[{n}] {t}\n{x}" for n, (t, x) in enumerate(long, 1))
    elif style == "tag":
        block = "\n".join(
            f'<document index="{n}"><source>{t}</source>{x}</document>'
            for n, (t, x) in enumerate(long, 1)
        )
    elif style == "source":
        block = "\n".join(f"Source: {t}\n{x}" for t, x in long)
    else:
        block = "Context:\n" + "\n\n".join(f"{t}\n{x}" for t, x in long)
    return f"Answer from these.\n\n{block}\n\nQuestion: {question}"


class Router:
    """Sends bodies one after another to replicas, as a router does, and minds the caches."""

    def __init__(self, config: Pruning = ON, ttl: float = 300.0) -> None:
        self.config, self.ttl = config, ttl
        self.caches, self.now = Caches(), 0.0

    def send(
        self,
        body: Body,
        place: str = "a",
        after: float = 1.0,
        may_fail: tuple[str, ...] = ("",),
        **more: Any,
    ) -> tuple[Plan, Any]:
        self.now += after
        cached = self.caches.at(place, self.now, self.ttl)
        view = view_of(body)
        made = planned(body, self.config, cached, view=view, **more)
        assert made.failed in may_fail
        self.caches.planned(place, view.key, made, self.now)
        return made, apply(made, body)
