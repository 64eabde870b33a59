"""The command line of vLLM that suits a tier."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence
from urllib.parse import urlsplit

from tier_router.config import Tier
from tier_router.request import Need
from tier_router.scrape.advice import (
    LOAD_TRACKING,
    PRIORITY,
    PROMPT_DETAILS,
    QUEUE_LIMIT,
    REASONING_PARSER,
    TOOL_PARSER,
)
from tier_router.scrape.examine import Examination

UNKNOWN = "PARSER"
"""Stands where the family of the model is not known: `vllm serve --help` lists what there is."""

# Family by a part of the model's name; tool parser and reasoning parser, by the names that vLLM's
# documentation of tool calling and of reasoning outputs gives them.  The first that fits counts.
_FAMILIES: tuple[tuple[str, str, str | None], ...] = (
    ("qwen3-coder", "qwen3_coder", None),
    ("qwen3", "hermes", "qwen3"),
    ("qwen2|hermes", "hermes", None),
    ("llama-?4", "llama4_pythonic", None),
    ("llama-?3", "llama3_json", None),
    ("mi[sx]tral|ministral|magistral", "mistral", None),
    ("deepseek-?r1", "deepseek_v3", "deepseek_r1"),
    ("deepseek-?v3", "deepseek_v3", None),
    ("gpt-oss", "openai", "openai_gptoss"),
    ("glm-?4", "glm45", "glm45"),
    ("kimi-?k2", "kimi_k2", None),
    ("granite", "granite", "granite"),
)


def serve_line(tier: Tier, seen: Sequence[Examination]) -> str:
    """`vllm serve ...` with everything that the router makes use of, for a replica of `tier`."""
    root = _root(tier, seen)
    tools, thinking = _parsers(f"{root} {tier.model}".lower())
    aloud = any(each.thinks_aloud or each.can.get(Need.REASONING) for each in seen)
    parts = ["vllm", "serve", shlex.quote(root)]
    if root != tier.model:
        parts += ["--served-model-name", shlex.quote(tier.model)]
    parts += ["--port", str(urlsplit(tier.replicas[0].url).port or 8000)]
    if tier.context is not None:
        parts += ["--max-model-len", str(tier.context)]
    if tier.api_key is not None:
        parts += ["--api-key", '"$VLLM_API_KEY"']
    parts += [LOAD_TRACKING, PROMPT_DETAILS, PRIORITY]
    # as many as the router itself would send, and then as many as may wait
    parts += [QUEUE_LIMIT, str(math.ceil(tier.limits.requests + tier.limits.waiting))]
    if tier.asks or Need.TOOLS in tier.can:
        parts += [TOOL_PARSER, tools or UNKNOWN]
    if thinking or aloud:
        parts += [REASONING_PARSER, thinking or UNKNOWN]
    return " ".join(parts)


def _root(tier: Tier, seen: Sequence[Examination]) -> str:
    """What the model is loaded from, where a replica says so."""
    for each in seen:
        card = (each.models or {}).get(tier.model)
        if card is not None and card.root is not None:
            return card.root
    return tier.model


def _parsers(names: str) -> tuple[str | None, str | None]:
    for part, tools, thinking in _FAMILIES:
        if re.search(part, names):
            return tools, thinking
    return None, None
