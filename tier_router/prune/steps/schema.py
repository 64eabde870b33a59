"""Tool schemas without the keys that say nothing to a model; the same bytes for the same tools."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from tier_router.config.pruning import Step
from tier_router.prune.draft import Draft
from tier_router.prune.plan import Edit

_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose own keys are names that people chose."""
_DATA = frozenset({"enum", "const", "default", "examples", "required"})
"""Keywords whose values are data, and no schemas."""


def run(draft: Draft) -> None:
    """Adds one edit for each tool that has such keys."""
    tools = draft.body.get("tools")
    if not isinstance(tools, list) or draft.prompt.pinned_tools:
        return
    drop = draft.config.steps.schema_.drop
    if b'"$ref"' in draft.prompt.tools:
        drop = tuple(key for key in drop if key != "$id")  # a reference may be to it
    found = _slim_tools(draft.prompt.tools, drop)
    for index, path, parameters, before, after in found:
        draft.add(Edit(Step.SCHEMA, "slim", ("tools", index, *path), parameters, before, after,
                       draft.on(Step.SCHEMA)))  # fmt: skip
    if found and draft.on(Step.SCHEMA):
        draft.tools = _whole(draft.prompt.tools, drop)


@lru_cache(64)
def _slim_tools(
    tools: bytes, drop: tuple[str, ...]
) -> tuple[tuple[int, tuple[str, ...], Any, int, int], ...]:
    """(index, path within the tool, slim schema, tokens before, after) of tools that change."""
    out = []
    for index, tool in enumerate(msgspec.json.decode(tools)):
        for path in (("function", "parameters"), ("parameters",), ("input_schema",)):
            schema = tool
            for key in path:
                schema = schema.get(key) if isinstance(schema, dict) else None
            if not isinstance(schema, dict):
                continue
            thin = slim(schema, frozenset(drop))
            if thin != schema:
                sizes = [len(msgspec.json.encode(each)) // 4 for each in (schema, thin)]
                out.append((index, path, thin, *sizes))
            break
    return tuple(out)


@lru_cache(64)
def _whole(tools: bytes, drop: tuple[str, ...]) -> bytes:
    """The tool list with all its slim schemas, as bytes."""
    whole = msgspec.json.decode(tools)
    for index, path, thin, _, _ in _slim_tools(tools, drop):
        at = whole[index]
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = thin
    return msgspec.json.encode(whole)


def slim(schema: Any, drop: frozenset[str], named: bool = False) -> Any:
    """A schema without the keys in `drop`, where they are keywords and no names of properties."""
    if isinstance(schema, list):
        return [slim(each, drop) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    out = {}
    for key, value in schema.items():
        if named:
            out[key] = slim(value, drop)
        elif key in _DATA:
            out[key] = value
        elif key in drop and not isinstance(value, Mapping):
            continue
        else:
            out[key] = slim(value, drop, named=key in _NAMED)
    return out
