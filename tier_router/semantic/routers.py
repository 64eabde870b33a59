"""Routers of semantic-router behind one call, `answer`, whichever line is installed.

Of 1.x only `acall` is used: its synchronous calls share one event loop of the module, whose thread
a forked process does not have, so that there they never return.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tier_router.classify.intents import DEFAULT_THRESHOLD, Route, plain
from tier_router.errors import ConfigError
from tier_router.semantic import library
from tier_router.semantic.encoder import TierEncoder
from tier_router.semantic.library import V1, IndexedRouter, LocalIndex

SLOPE, OFFSET = 9.97, -5.76
"""The log-odds that the best route is right, from its cosine; `tier_router.train.cosine` fits it on
the validation rows of CLINC150, in and out of scope, over draws of 3, 10, 30 and 100 routes with
5 and 20 utterances each; right and wrong count the same."""

SAME = 1 - 1e-6
"""A cosine above this is that of the same words: float32 rounds at 1e-7."""


@dataclass(frozen=True, slots=True)
class Found:
    """What the library says of a text: a route, or None for no route."""

    name: str | None = None
    confidence: float = 0.0


NO_ROUTE = Found()


class LibraryRouter:
    """Any router of the library; its own thresholds decide what counts as found."""

    def __init__(self, router: Any) -> None:
        self._router = router

    def __repr__(self) -> str:
        return f"<LibraryRouter {type(self._router).__name__}>"

    async def answer(self, text: str) -> Found:
        """What the library finds; raises whatever the library raises."""
        with np.errstate(divide="ignore", invalid="ignore"):  # of vectors without a length
            if V1:
                return self._read(await self._router.acall(text))
            return self._read(await asyncio.to_thread(self._router, text))

    async def aclose(self) -> None:
        """Closes the sessions that decision models hold."""
        for router in _parts(self._router):
            if hasattr(router, "aclose"):
                await router.aclose()

    def _read(self, choice: Any) -> Found:
        if isinstance(choice, list):  # 0.x, where several routes pass
            choice = choice[0] if choice else None
        name = getattr(choice, "name", None)
        score = getattr(choice, "confidence" if V1 else "similarity_score", None)
        if name is None or score is None or not math.isfinite(score):  # NaN: an empty vector
            return NO_ROUTE
        return Found(str(name), min(max(float(score), 0.0), 1.0))


class OwnRouter(LibraryRouter):
    """Configured routes in the library's router and index, with our vectors.

    Nothing in it waits, so `now` answers on the caller's own thread.
    """

    def __init__(self, routes: Sequence[Route]) -> None:
        self._needed = {
            route.name: DEFAULT_THRESHOLD if route.threshold is None else route.threshold
            for route in routes
        }
        theirs = [
            library.Route(name=route.name, utterances=[u for u in route.utterances if plain(u)])
            for route in routes
        ]
        theirs = [route for route in theirs if route.utterances]
        self.utterances = sum(len(route.utterances) for route in theirs)
        super().__init__(_indexed(theirs) if theirs else None)

    def now(self, text: str) -> Found:
        """As `answer`, at once."""
        if self._router is None:
            return NO_ROUTE
        if V1:
            return self._read(_finished(self._router.acall(text)))
        return self._read(self._router(text))

    async def answer(self, text: str) -> Found:
        """What the library finds; raises whatever the library raises."""
        return await asyncio.to_thread(self.now, text)

    def _read(self, choice: Any) -> Found:
        found = super()._read(choice)
        if found.name is None:
            return found
        sure = 1 / (1 + math.exp(-(SLOPE * found.confidence + OFFSET)))
        if found.confidence > SAME:
            sure = 1.0
        return Found(found.name if sure >= self._needed[found.name] else None, sure)


class _Prompt(IndexedRouter):  # type: ignore[misc]
    """1.x's router without its `gather`: with an encoder and an index in memory it never waits."""

    async def _scores_many(self, queries: Sequence[str]) -> list[dict[str, float]]:
        return [await self._query(vector, None) for vector in self.encoder(list(queries))]


def load(path: Path) -> LibraryRouter:
    """The router that a file of the installed line describes; raises ConfigError."""
    try:
        return LibraryRouter(library.load_router(path) if V1 else _of_v0(path))
    except Exception as error:
        # what a file may hold is the library's to say, and so are its errors, of any class
        line = "1.x" if V1 else "0.x"
        message = f"semantic-router {line} does not load it: {error or type(error).__name__}"
        raise ConfigError(message, file=str(path)) from error


def _of_v0(path: Path) -> Any:
    kind = library.SemanticRouter
    router = (kind.from_json if path.suffix == ".json" else kind.from_yaml)(str(path))
    for route in router.routes:
        route.function_schemas = None  # else a call asks an LLM for the arguments of a function
    if not router.index.is_ready():
        router.sync("local", force=True)  # without it every call says "Index is not ready"
    return router


def _indexed(routes: list[Any]) -> Any:
    encoder = TierEncoder(score_threshold=None)
    if V1:
        return _Prompt(encoder=encoder, routes=routes, index=LocalIndex(), aggregation="max")
    return library.SemanticRouter(
        encoder=encoder, routes=routes, index=LocalIndex(), aggregation="max", auto_sync="local"
    )


def _finished(call: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine that never waits returns."""
    try:
        call.send(None)
    except StopIteration as end:
        return end.value
    call.close()
    raise RuntimeError("the router waited for something")


def _parts(router: Any) -> list[Any]:
    """The router and, of a Chain or Merge, those in it."""
    return [router, *(part for each in getattr(router, "routers", ()) for part in _parts(each))]
