"""Routes, and encoders that are slow or broken."""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import pytest

if find_spec("semantic_router") is None:
    pytest.skip("needs pip install 'tier-router[semantic]'", allow_module_level=True)

from tier_router.classify import Verdict
from tier_router.classify.intents import Route
from tier_router.request import Turn
from tier_router.semantic import SemanticClassifier, TierEncoder, library
from tier_router.semantic.library import V1, LocalIndex

ROUTES = [
    Route("balance", ("what is my balance", "how much money is in my account")),
    Route("hours", ("when do you open", "what are your opening hours", "are you open on Sunday")),
    Route("refund", ("i want my money back", "refund my last order", "how do I return an item")),
    Route("contract", ("review this contract for risks", "is this clause enforceable")),
    Route("weather", ("what's the weather like today", "will it rain tomorrow")),
]


class SlowEncoder(TierEncoder):
    """Ours, as far away as the caller says; it has no `acall` that would not block."""

    delay: float = 0.3
    error: str | None = None

    def __call__(self, docs: Sequence[Any]) -> list[list[float]]:
        if len(docs) == 1 and docs[0] != "test":  # a question; 0.x tries `test` when it is built
            time.sleep(self.delay)
            if self.error is not None:
                raise ConnectionError(self.error)
        return super().__call__(docs)

    async def acall(self, docs: Sequence[Any]) -> list[list[float]]:
        raise NotImplementedError


def router_of(encoder: Any, routes: Sequence[Route] = ROUTES) -> Any:
    """The library's own router, as its users make it, answering from cosine 0.5 on."""
    theirs = [library.Route(name=r.name, utterances=list(r.utterances)) for r in routes]
    if V1:
        return library.IndexedRouter(
            encoder=encoder,
            routes=theirs,
            index=LocalIndex(),
            aggregation="max",
            confidence_threshold=0.5,
        )
    encoder.score_threshold = 0.5
    return library.SemanticRouter(
        encoder=encoder, routes=theirs, index=LocalIndex(), aggregation="max", auto_sync="local"
    )


def engine_of(encoder: Any, deadline: float = 0.05) -> SemanticClassifier:
    return SemanticClassifier.of_router(lambda: router_of(encoder), deadline)


def settled(engine: SemanticClassifier, text: str, seconds: float = 10.0) -> Verdict:
    """The verdict that is no longer pending."""
    end = time.monotonic() + seconds
    while (verdict := engine.classify(Turn(text))).pending:
        assert time.monotonic() < end, f"still pending: {engine!r}"
        time.sleep(0.01)
    return verdict
