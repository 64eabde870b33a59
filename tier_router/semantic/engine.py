"""The classifier whose intents come from semantic-router itself; the rest is the native one's.

It is never changed while it serves: other routes are another engine, which the router adopts whole.
So the library's arrays, which it replaces one by one, are never read half replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from tier_router.classify import Signal, Verdict
from tier_router.classify.intents import Route
from tier_router.classify.native import NativeClassifier
from tier_router.request import Turn
from tier_router.semantic.routers import NO_ROUTE, Found, LibraryRouter, OwnRouter, load
from tier_router.semantic.tally import Tally
from tier_router.semantic.worker import DEADLINE, Patient

DIRECT = 1_000
"""Up to so many utterances our own vectors are compared on the caller's thread: 0.2 ms with
100 of them, 0.5 ms with 1,000.  With 3,000 the library's index takes 3 to 7 ms, in the worker."""


class SemanticClassifier:
    """Judges turns by a router of semantic-router and by the shipped difficulty model.

    Where the library has not answered within the deadline the verdict has no intent and is
    `pending`: the answer is kept when it comes.  Nothing that the library does raises here;
    `counts` tells how often it was late or failed.
    """

    def __init__(self, library: _Library, native: NativeClassifier | None = None) -> None:
        self._library = library
        self._native = native or NativeClassifier()

    def __repr__(self) -> str:
        return f"<SemanticClassifier {self._library!r}>"

    @classmethod
    def of_routes(cls, routes: Sequence[Route], deadline: float = DEADLINE) -> SemanticClassifier:
        """The engine of configured routes, with our own vectors."""
        router = OwnRouter(routes)
        if router.utterances <= DIRECT:
            return cls(_AtOnce(router))
        return cls(Patient(lambda: router, deadline))  # of memory alone: a fork may share it

    @classmethod
    def of_file(cls, path: str | Path, deadline: float = DEADLINE) -> SemanticClassifier:
        """The engine of a file of the installed line, with its encoder and index; raises
        ConfigError."""
        return cls(Patient(partial(load, Path(path)), deadline))

    @classmethod
    def of_router(cls, make: Callable[[], Any], deadline: float = DEADLINE) -> SemanticClassifier:
        """The engine of the router that `make` returns; it is made anew in a forked process."""
        return cls(Patient(lambda: LibraryRouter(make()), deadline))

    @property
    def counts(self) -> Mapping[str, int]:
        """How often the library has `answered` or `failed` since the start; how often a request
        went on without it because it was `late`, or `refused` as too much was under way."""
        return self._library.tally.counts()

    @property
    def default_threshold(self) -> float:
        """The native model's."""
        return self._native.default_threshold

    def reference_quantile(self, share: float) -> float:
        """The native model's."""
        return self._native.reference_quantile(share)

    def classify(self, turn: Turn) -> Verdict:
        """The verdict on `turn`; waits for the library at most until the deadline."""
        verdict = self._native.classify(turn)
        if not _speaks(turn):
            return verdict
        found = self._library.ask(turn.text)
        if found is None:
            return replace(verdict, pending=True)
        if found.name is None:
            return verdict
        return replace(verdict, intent=found.name, confidence=found.confidence, abstain=None)

    async def ahead(self, turns: Collection[Turn]) -> None:
        """Returns when `classify` need not wait for these turns, or at the deadline; the event
        loop is free meanwhile."""
        await self._library.ahead({turn.text for turn in turns if _speaks(turn)})

    def explain(self, turn: Turn) -> list[Signal]:
        """The signals behind the difficulty, strongest first."""
        return self._native.explain(turn)


def _speaks(turn: Turn) -> bool:
    """Whether there is a word for the library to read; on nothing it answers with any route."""
    return any(map(str.isalnum, turn.text))


class _Library(Protocol):
    """What is asked for a text's route; never raises."""

    tally: Tally

    def ask(self, text: str) -> Found | None:
        """What the library says, None while that is not known."""
        ...

    async def ahead(self, texts: Collection[str]) -> None:
        """Returns when `ask` need not wait for these texts, or at the deadline."""
        ...


class _AtOnce:
    """Asks a router that takes microseconds, on the caller's thread."""

    def __init__(self, router: OwnRouter) -> None:
        self.tally = Tally()
        self._router = router

    def __repr__(self) -> str:
        return repr(self._router)

    def ask(self, text: str) -> Found:
        """What the library says; no route where it fails."""
        try:
            found = self._router.now(text)
        except Exception as error:  # noqa: BLE001  the library's faults never fail a request
            self.tally.failed(error)
            return NO_ROUTE
        self.tally.add("answered")
        return found

    async def ahead(self, texts: Collection[str]) -> None:
        """Returns at once: there is nothing to wait for."""
