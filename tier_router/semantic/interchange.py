"""Writes configured intents as a file that semantic-router's own loader accepts, either line.

`tier_router.config.routes` reads the same files back, tiers and all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml

from tier_router.config.model import Intent

YAML, JSON = (".yaml", ".yml"), (".json",)


def save(
    intents: Mapping[str, Intent],
    path: str | Path,
    *,
    line: Literal["0.x", "1.x"],
    encoder: tuple[str, str],
) -> None:
    """Writes `intents` to `path`, as YAML or JSON by its suffix.

    `encoder` is the type and the name of one that the library can build, ("ollama",
    "nomic-embed-text") for instance: its files cannot hold another.  The tier goes into each
    route's `metadata`; thresholds stay here, being on the scale of our engine.  Raises ValueError
    for another suffix.
    """
    path = Path(path)
    content = _v1(intents, encoder) if line == "1.x" else _v0(intents, encoder)
    if path.suffix in YAML:
        text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    elif path.suffix in JSON:
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    else:
        raise ValueError(f"{path.name}: the suffix is none of {', '.join((*YAML, *JSON))}")
    path.write_text(text, "utf-8")


def _v0(intents: Mapping[str, Intent], encoder: tuple[str, str]) -> dict[str, Any]:
    kind, name = encoder
    routes = [
        {**_route(each, intent), "function_schemas": None, "llm": None, "score_threshold": None}
        for each, intent in intents.items()
    ]
    return {"encoder_type": kind, "encoder_name": name, "routes": routes}


def _v1(intents: Mapping[str, Intent], encoder: tuple[str, str]) -> dict[str, Any]:
    kind, name = encoder
    return {
        "router_type": "indexed",
        "encoder": {"type": kind, "name": name},
        "index": {"type": "local"},
        "routes": [_route(each, intent) for each, intent in intents.items()],
    }


def _route(name: str, intent: Intent) -> dict[str, Any]:
    return {
        "name": name,
        "utterances": list(intent.utterances),
        "description": intent.description,
        "metadata": {} if intent.tier is None else {"tier": intent.tier},
    }
