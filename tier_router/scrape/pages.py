"""The small JSON pages: `/v1/models`, and vLLM's `/load` and `/version`.

Each reader gives None for what is not such a page, whatever it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tier_router.request import Need


@dataclass(frozen=True, slots=True)
class Card:
    """One entry of `/v1/models`."""

    context: int | None = None
    """`max_model_len`, or other hosts' `context_length`: tokens of prompt and answer that fit."""
    root: str | None = None
    """What `vllm serve` was given: a repository's name or a path."""
    can: Mapping[Need, bool] = field(default_factory=dict)
    """Abilities that other hosts list under `capabilities`."""
    price: tuple[float, float] | None = None
    """Of a million prompt tokens and a million output tokens, where the host lists `pricing`."""


_CAPABILITIES = {
    "supports_function_calling": Need.TOOLS,
    "supports_vision": Need.VISION,
    "supports_structured_output": Need.JSON,
    "supports_reasoning": Need.REASONING,
}


def load_of(content: bytes) -> float | None:
    """The requests that the API server has open, of all clients; always 0 where vLLM runs without
    `--enable-server-load-tracking`."""
    return _amount(json_object(content).get("server_load"))


def models_of(content: bytes) -> dict[str, Card] | None:
    """The served names, the first one being what vLLM calls itself."""
    data = json_object(content).get("data")
    if not isinstance(data, list):
        return None
    return {
        entry["id"]: _card(entry)
        for entry in data
        if isinstance(entry, Mapping) and isinstance(entry.get("id"), str)
    }


def _card(entry: Mapping[str, Any]) -> Card:
    context = _whole(entry.get("max_model_len")) or _whole(entry.get("context_length"))
    listed, pricing = entry.get("capabilities"), entry.get("pricing")
    can = {}
    if isinstance(listed, Mapping):
        told = ((need, listed.get(name)) for name, need in _CAPABILITIES.items())
        can = {need: able for need, able in told if isinstance(able, bool)}
    price = None
    if isinstance(pricing, Mapping):
        prompt = _amount(pricing.get("input_tokens_cost_per_million"))
        output = _amount(pricing.get("output_tokens_cost_per_million"))
        price = None if prompt is None or output is None else (prompt, output)
    return Card(context, _text(entry.get("root")), can, price)


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


def _amount(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
