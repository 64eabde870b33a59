"""vLLM's small JSON pages: `/load`, `/v1/models`, `/version`.

Each reader gives None for what is not such a page, whatever it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class Card:
    """One entry of `/v1/models`."""

    context: int | None = None
    """`max_model_len`: tokens of prompt and answer that fit."""
    root: str | None = None
    """What `vllm serve` was given: a repository's name or a path."""


def load_of(content: bytes) -> float | None:
    """The requests that the API server has open, of all clients; always 0 where vLLM runs without
    `--enable-server-load-tracking`."""
    value = json_object(content).get("server_load")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


def models_of(content: bytes) -> dict[str, Card] | None:
    """The served names, the first one being what vLLM calls itself."""
    data = json_object(content).get("data")
    if not isinstance(data, list):
        return None
    return {
        entry["id"]: Card(_whole(entry.get("max_model_len")), _text(entry.get("root")))
        for entry in data
        if isinstance(entry, Mapping) and isinstance(entry.get("id"), str)
    }


def version_of(content: bytes) -> str | None:
    """vLLM's version."""
    return _text(json_object(content).get("version"))


def json_object(content: bytes) -> Mapping[str, Any]:
    """The object that `content` is; an empty one where it is none."""
    try:
        value = msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return value if isinstance(value, Mapping) else {}


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
