"""The load report that vLLM puts on an answer whose request asked for it.

It is ORCA's: the request says `endpoint-load-metrics-format: json` (or `text`), the answer, unless
it is streamed, carries `endpoint-load-metrics: JSON {"named_metrics": {...}}`, or as text
`TEXT named_metrics.num_requests_waiting=0.0, ...`.  The values are those of `/metrics`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from tier_router.pressure import Reading
from tier_router.scrape.pages import json_object

ASK = ("endpoint-load-metrics-format", "json")
"""The header with which a request asks for the report."""

REPORT = "endpoint-load-metrics"

_LONGEST = 4_096
"""Characters of a report that are read; vLLM's has less than 200."""

_PAIR = re.compile(r"([A-Za-z_][\w.]*)[=:]\s*([^\s,;]+)")
_WAITING = ("num_requests_waiting", "vllm:num_requests_waiting")
_KV = ("kv_cache_usage_perc", "gpu_cache_usage_perc", "vllm:kv_cache_usage_perc")


def reading_of_headers(headers: Mapping[str, str]) -> Reading | None:
    """What the headers (with lower-case names) of an answer report; None where they do not."""
    report = headers.get(REPORT)
    return None if report is None else reading_of_report(report)


def reading_of_report(report: str) -> Reading | None:
    """The same, from the header's value."""
    kind, _, rest = report[:_LONGEST].strip().partition(" ")
    if kind.upper() == "JSON" or report.lstrip().startswith("{"):
        told = json_object((rest if kind.upper() == "JSON" else report).encode())
        values = {**told, **_mapping(told.get("named_metrics"))}
    else:
        pairs = _PAIR.findall(rest if kind.upper() == "TEXT" else report[:_LONGEST])
        values = {name.removeprefix("named_metrics."): _number(text) for name, text in pairs}
    reading = Reading(waiting=_first(values, _WAITING), kv=_first(values, _KV))
    return None if reading.waiting is None and reading.kv is None else reading


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _first(values: Mapping[str, Any], names: tuple[str, ...]) -> float | None:
    for name in names:
        value = values.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value) if math.isfinite(value) and value >= 0 else None
    return None
