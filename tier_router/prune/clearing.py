"""Clears old tool results on the way through the cache, and keeps clear what was cleared before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tier_router.config.pruning import Mode, Step
from tier_router.prune.draft import Draft
from tier_router.prune.plan import Edit
from tier_router.prune.steps import results
from tier_router.prune.walk import Links, Walked, Way, walk
from tier_router.prune.warm import Cached

Ways = dict[int, list[Way]]
"""The ways to send a message, by its index."""


def ways_of(edits: Sequence[Edit]) -> Ways:
    """For each message with edits that are on: all of them, and those that hang on no question."""
    ways: Ways = {}
    by_message: dict[int, list[Edit]] = {}
    for edit in edits:
        if edit.on and edit.message >= 0:
            by_message.setdefault(edit.message, []).append(edit)
    for message, made in by_message.items():
        steady = {edit.path: edit.value for edit in made if edit.step is not Step.RAG}
        passages = [edit for edit in made if edit.step is Step.RAG]
        ways[message] = [Way(steady)] if steady else []
        if passages:
            texts = steady | {edit.path: edit.value for edit in passages}
            first = min(edit.cuts[0][0] for edit in passages)
            ways[message].append(Way(texts, query_bound=True, first_cut=first))
    return ways


@dataclass(slots=True)
class Clearing:
    """One request's old results; `whole` is the way of the prompt as the client wrote it."""

    draft: Draft
    cached: Cached
    links: Links
    head: tuple[int, int]
    whole: Walked

    def run(self, walked: Walked, room: int | None, written: int) -> Walked:
        """The way with old results cleared where that is free, else `walked`.

        `room` is the tier's context, `written` the tokens that the answer needs of it."""
        edits: dict[int, list[Edit]] = {}
        for edit in results.clearable(self.draft):
            edits.setdefault(edit.message, []).append(edit)
        if not edits:
            return walked
        settings = self.draft.config.steps.results
        stale = results.stale(self.draft)
        on = self.draft.modes[Step.RESULTS] is Mode.ON
        if on:
            walked = self._kept_clear(edits)
            edits = {
                message: left
                for message, made in edits.items()
                if (left := [edit for edit in made if edit.path not in self.draft.referred])
            }
        tight = room is not None and walked.tokens + written > settings.pressure * room
        due = {
            message
            for message, made in edits.items()
            if all(edit.path in stale for edit in made)
            and (tight or (message >= walked.warm_to and self._seen(message)))
        }
        saved = sum(edit.saved for message in due for edit in edits[message])
        if not due or saved < settings.clear_at_least:
            return self._noting(walked, edits)
        if not on:
            for message in sorted(due):
                self.draft.edits += edits[message]
            return walked
        shorter = self._walk(edits, due)
        if tight and shorter.uncached > self.whole.uncached:
            self.draft.abstain(Step.RESULTS, "warm")
            return self._noting(walked, edits)
        return self._noting(shorter, edits)

    def _seen(self, message: int) -> bool:
        """Whether some replica had the client's prompt up to this message before: only then is
        it known that this one reads it anew because of a switch or a pause."""
        return self.cached.seen(self.whole.links[message][-1])

    def _kept_clear(self, edits: Mapping[int, list[Edit]]) -> Walked:
        """The way on which what was cleared before stays cleared; nothing points to it."""
        walked = self._walk(edits, set())
        pointed = [
            edit.path
            for message, made in edits.items()
            for edit in made
            if edit.path in self.draft.referred and _taken(walked, message, edit)
        ]
        if not pointed:
            return walked
        for path in pointed:
            self.draft.unpoint(path)
        return self._walk(edits, set())

    def _walk(self, edits: Mapping[int, list[Edit]], due: set[int]) -> Walked:
        """The cheapest way where results in `due` are cleared, others only if they were before."""
        ways = ways_of(self.draft.edits)
        for message, made in edits.items():
            before = ways.get(message, [])
            steady = next((way.texts for way in before if not way.query_bound), {})
            texts = {**steady, **{edit.path: edit.value for edit in made}}
            clear = Way(texts, only_warm=message not in due, always=message in due)
            ways[message] = [*before, clear]
        prompt = self.draft.prompt
        return walk(prompt, [self.head], ways, self.cached, self.links, self.whole.links)

    def _noting(self, walked: Walked, edits: Mapping[int, list[Edit]]) -> Walked:
        """Adds the edits of results that the way clears."""
        for message, made in edits.items():
            for edit in made:
                if _taken(walked, message, edit):
                    self.draft.add(edit)
        return walked


def _taken(walked: Walked, message: int, edit: Edit) -> bool:
    way = walked.picked.get(message)
    return way is not None and way.texts.get(edit.path) == edit.value
