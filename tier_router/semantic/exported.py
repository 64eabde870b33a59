"""Our intents as a router of semantic-router 1.x, to be used where its users use theirs.

router = TierRouterRoutes(routes)              # semantic_router.Route: name, utterances
Chain([router, DecisionRouter(model, routes)], confidence_threshold=0.5)
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from tier_router import encoder
from tier_router.classify import intents
from tier_router.classify.features import core
from tier_router.classify.intents import DEFAULT_THRESHOLD, Intents
from tier_router.semantic.library import V1, BaseRouter

if not V1:
    raise ImportError("`TierRouterRoutes` needs semantic-router 1.x", name="semantic_router")


class TierRouterRoutes(BaseRouter):  # type: ignore[misc]
    """Routes compiled as the native engine does: words and static vectors, a calibrated confidence.

    The best route has its confidence, all others 0: the engine says which one and how sure, not a
    ranking.  Adding and removing routes compiles anew and swaps, so calls under way are safe.
    """

    probabilistic = True

    def __init__(
        self,
        routes: Sequence[Any],
        confidence_threshold: float | None = DEFAULT_THRESHOLD,
        calibrator: Any = None,
    ) -> None:
        super().__init__(routes, confidence_threshold, calibrator)
        self._intents = self._compiled()

    async def _scores(self, query: str) -> dict[str, float]:
        scores = dict.fromkeys((route.name for route in self.routes), 0.0)
        found = self._intents.match(query, encoder.load().encode(core(query)))
        if found.name is not None:
            scores[found.name] = found.confidence
        return scores

    async def _on_add(self, routes: list[Any]) -> None:
        self._intents = await asyncio.to_thread(self._compiled)

    async def _on_remove(self, name: str) -> None:
        self._intents = await asyncio.to_thread(self._compiled)

    def _compiled(self) -> Intents:
        """The present routes; each threshold is left to the library, which knows its own."""
        return Intents(
            [
                intents.Route(route.name, tuple(map(str, route.utterances)), threshold=0.0)
                for route in self.routes
            ],
            encoder.load(),
        )
