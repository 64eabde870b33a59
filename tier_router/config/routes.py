"""semantic-router's own route files, both lines: 0.x (`encoder_type`) and 1.x (`router_type`).

0.x:  {encoder_type, encoder_name, routes: [{name, utterances, score_threshold, metadata, ...}]}
1.x:  {router_type, routes: [{name, utterances, confidence_threshold, metadata, ...}], encoder: ...}
      Chain and Merge hold their routers, each with routes of its own, in `routers`.
Thresholds are not taken over: they are on the scale of the file's own encoder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tier_router.config.model import Intent, IntentFile
from tier_router.config.source import Key, Source, read


def intents_of(entry: IntentFile, base: Path) -> tuple[Path, Source, dict[str, Intent]]:
    """The file's path, its source and its intents; a relative path starts at `base`.

    A route's tier is the entry's `tiers[name]`, else the route's `metadata.tier`, else the
    entry's `tier`.  Raises ConfigError at the line of what cannot be used.
    """
    path = base / entry.path
    source = read(path)
    if not isinstance(source.data, Mapping | list):
        raise source.error("not a route file of semantic-router")
    intents: dict[str, Intent] = {}
    for key, route in _routes(source, source.data, ()):
        name, intent = _intent(source, key, route, entry)
        if name in intents:
            raise source.error(f"a second route named `{name}`", (*key, "name"))
        intents[name] = intent
    if not intents:
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
    description = route.get("description")
    return name, Intent(
        tier=tier,
        utterances=tuple(utterances),
        description=description if isinstance(description, str) else None,
    )
