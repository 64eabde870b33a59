"""semantic-router's own route files, both lines: 0.x (`encoder_type`) and 1.x (`router_type`).

0.x:  {encoder_type, encoder_name, routes: [{name, utterances, score_threshold, metadata, ...}]}
1.x:  {router_type, routes: [{name, utterances, confidence_threshold, metadata, ...}], encoder: ...}
      Chain and Merge hold their routers, each with routes of its own, in `routers`.  A route that
      several of them have is one intent with all of their utterances.  A decision router's route
      may have a description only, which then is its one utterance.
Thresholds are not taken over: they are on the scale of the file's own encoder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from tier_router.config.model import Intent, IntentFile
from tier_router.config.source import Key, Source, read


def intents_of(
    entry: IntentFile, base: Path, *, elsewhere: bool = False
) -> tuple[Path, Source, dict[str, Intent]]:
    """The file's path, its source and its intents; a relative path starts at `base`.

    A route's tier is the entry's `tiers[name]`, else the route's `metadata.tier`, else the
    entry's `tier`.  Raises ConfigError at the line of what cannot be used; of no routes at all
    too, but where `elsewhere` allows that the file's index holds them.
    """
    path = base / entry.path
    source = read(path)
    if not isinstance(source.data, Mapping | list):
        raise source.error("not a route file of semantic-router")
    intents: dict[str, Intent] = {}
    seen: set[tuple[Key, str]] = set()
    for key, route in _routes(source, source.data, ()):
        name, intent = _intent(source, key, route, entry)
        if (key[:-1], name) in seen:
            raise source.error(f"a second route named `{name}`", (*key, "name"))
        seen.add((key[:-1], name))
        intents[name] = _joined(intents[name], intent) if name in intents else intent
    if not intents and not (elsewhere and _in_an_index(source.data)):
        raise source.error("no routes in this file", ("routes",))
    for name in entry.tiers:
        if name not in intents:
            raise source.error(f"no route named `{name}`, which `tiers` mentions", ("routes",))
    return path, source, intents


def _routes(source: Source, data: Any, key: Key) -> Iterator[tuple[Key, Any]]:
    """Each route with its key path, those of nested routers too."""
    if isinstance(data, list):
        for index, route in enumerate(data):
            yield (*key, index), route
        return
    for index, router in enumerate(data.get("routers") or ()):
        if isinstance(router, Mapping):
            yield from _routes(source, router, (*key, "routers", index))
    routes = data.get("routes")
    if routes is None:
        return
    if not isinstance(routes, list):
        raise source.error("`routes` must be a list", (*key, "routes"))
    yield from _routes(source, routes, (*key, "routes"))


def _intent(source: Source, key: Key, route: Any, entry: IntentFile) -> tuple[str, Intent]:
    if not isinstance(route, Mapping):
        raise source.error("a route must be a mapping", key)
    name, utterances = route.get("name"), route.get("utterances")
    if not isinstance(name, str) or not name:
        raise source.error("a route needs a `name`", (*key, "name"))
    description = route.get("description")
    if not utterances and isinstance(description, str) and description:
        utterances = [description]
    if not isinstance(utterances, list) or not utterances:
        raise source.error(f"route `{name}` has no utterances", (*key, "utterances"))
    for index, utterance in enumerate(utterances):
        if not isinstance(utterance, str):
            raise source.error("an utterance must be text", (*key, "utterances", index))
    metadata = route.get("metadata")
    own = metadata.get("tier") if isinstance(metadata, Mapping) else None
    tier = entry.tiers.get(name) or own or entry.tier
    if tier is not None and not isinstance(tier, str):
        raise source.error("`tier` must be text", (*key, "metadata", "tier"))
    return name, Intent(
        tier=tier,
        utterances=tuple(utterances),
        description=description if isinstance(description, str) else None,
    )


def _joined(first: Intent, second: Intent) -> Intent:
    """One intent of two routers' routes, with the tier of the first; a description counts as an
    utterance only while there is no other."""
    own = [each.utterances for each in (first, second) if each.utterances != (each.description,)]
    both = dict.fromkeys(chain.from_iterable(own or [first.utterances]))
    description = first.description or second.description
    return first.model_copy(update={"utterances": tuple(both), "description": description})


def _in_an_index(data: Any) -> bool:
    """Whether it is a router of 1.x that leaves its routes in an index (Qdrant, Postgres, ...)."""
    return isinstance(data, Mapping) and "router_type" in data and not data.get("routes")
