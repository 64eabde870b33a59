"""Our static vectors as an encoder of semantic-router, for both lines: no network, no thread.

    IndexedRouter(encoder=TierEncoder(), routes=routes, aggregation="max")                   # 1.x
    SemanticRouter(encoder=TierEncoder(), routes=routes, aggregation="max", auto_sync="local")

`aggregation="max"` because the default, the mean over the best hits, is worse with any number of
utterances (validation rows of CLINC150, 5 / 20 / 100 a route: 69.6 / 77.3 / 85.1 % against
73.1 / 80.1 / 87.6 %).  The vectors are whitened as the native engine's are; the bare ones give
64.7 / 76.1 / 85.8 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tier_router.classify import intents
from tier_router.classify.features import core
from tier_router.encoder import Array, load
from tier_router.semantic.library import DenseEncoder

EVEN = 0.58
"""Cosine from which the best route is more likely right than wrong (`routers.OFFSET` / `SLOPE`)."""


class TierEncoder(DenseEncoder):  # type: ignore[misc]
    """Texts as unit vectors.

    A text without a known word points into a direction of its own, so it is like no text that has
    one: the library divides by a vector's length, and a vector of zeros would make it answer NaN.
    `score_threshold` is for 0.x; 1.x has its thresholds at the router.
    """

    name: str = "tier-router-static"
    type: str = "tier-router"
    score_threshold: float | None = EVEN

    def __call__(self, docs: Sequence[Any]) -> list[list[float]]:
        """One vector for each text."""
        return [vector_of(str(doc)).tolist() for doc in docs]

    async def acall(self, docs: Sequence[Any]) -> list[list[float]]:
        """One vector for each text; it takes microseconds and never waits."""
        return self(docs)


def vector_of(text: str) -> Array:
    """The whitened vector of `text`, and a last column that is 1 where no word of it is known."""
    encoder = load()
    out = np.zeros(encoder.dim + 1, np.float32)
    known = encoder.encode(core(text)).vector @ intents.load().whiten
    norm = float(known @ known) ** 0.5
    if norm > 0.0:
        out[:-1] = known / np.float32(norm)
    else:
        out[-1] = 1.0
    return out
