"""What an examination means for a tier: plain words, and how grave it is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tier_router.config import Tier
from tier_router.request import Need
from tier_router.scrape.examine import Examination
from tier_router.scrape.findings import Found, serves_another
from tier_router.scrape.probes import PROBED

SLOW_METRICS = 1.0
"""Seconds from which `/metrics` is called stale; on an idle vLLM it follows at once."""

CLOCK = 2.0
"""Seconds of difference between clocks that are worth a word: logs are compared by second."""

LOAD_TRACKING = "--enable-server-load-tracking"
PROMPT_DETAILS = "--enable-prompt-tokens-details"
TOOL_PARSER = "--enable-auto-tool-choice --tool-call-parser"
REASONING_PARSER = "--reasoning-parser"
PRIORITY = "--scheduling-policy priority"
QUEUE_LIMIT = "--max-num-queued-reqs"


class Level(StrEnum):
    """How grave a remark is."""

    OK = "ok"
    NOTE = "note"
    UNKNOWN = "unknown"
    """It cannot be told from outside."""
    WARNING = "warning"
    """It works, but not as well as it could."""
    ERROR = "error"
    """Requests will fail, or go where they should not."""


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing that was looked at; `code` is short and stays the same, `flag` is the flag of
    `vllm serve` that it is about."""

    level: Level
    code: str
    text: str
    flag: str | None = None


_BLOCKING = frozenset({"api_key", "model"})
"""Where nothing could be sent to the model."""


def remarks(tier: Tier, seen: Examination) -> list[Remark]:
    """What is to be said of one replica of `tier`, as it is written in the configuration."""
    if seen.problem is not None:
        return [Remark(Level.ERROR, "unreachable", f"does not answer: {seen.problem}")]
    if tier.kind == "openai":
        trip = Remark(Level.OK, "reached", f"answers in {(seen.round_trip or 0) * 1000:.1f} ms")
        return [trip, *_model(tier, seen)]
    found = [_reached(seen), *_model(tier, seen)]
    if tier.pools:
        return [*found, *_metrics(seen)]
    if any(remark.level is Level.ERROR and remark.code in _BLOCKING for remark in found):
        return [*found, *_metrics(seen)]
    if seen.chat_problem is not None:
        told = f"a chat of a few tokens failed: {seen.chat_problem}"
        return [*found, *_metrics(seen), Remark(Level.ERROR, "chat", told)]
    return [*found, *_abilities(tier, seen), *_metrics(seen), *_flags(seen)]


def disagreements(seen: Sequence[Examination]) -> list[Remark]:
    """What is to be said of a tier's replicas together."""
    versions = sorted({each.version for each in seen if each.version is not None})
    if len(versions) < 2:
        return []
    told = f"its replicas run different versions of vLLM: {', '.join(versions)}"
    return [Remark(Level.WARNING, "versions", told)]


def _reached(seen: Examination) -> Remark:
    trip = f"answers in {(seen.round_trip or 0) * 1000:.1f} ms"
    if seen.version is None:
        return Remark(Level.WARNING, "version", f"{trip}, but has no /version: is it vLLM?")
    up = "" if seen.uptime is None else f", up for {_duration(seen.uptime)}"
    return Remark(Level.OK, "version", f"{trip}: vLLM {seen.version}{up}")


def _model(tier: Tier, seen: Examination) -> Iterator[Remark]:
    if seen.models_status in (401, 403):
        told = f"refuses the tier's API key (status {seen.models_status}): see `api_key`"
        yield Remark(Level.ERROR, "api_key", told)
        return
    if seen.models is None:
        told = f"does not say what it serves (/v1/models: status {seen.models_status})"
        yield Remark(Level.WARNING, "model", told)
        return
    problem = serves_another(Found(seen.models), tier.model)
    if problem is not None:
        yield Remark(Level.ERROR, "model", problem)
        return
    context = seen.models[tier.model].context
    if context is None:
        told = f"serves `{tier.model}`, but does not say with which context"
        yield Remark(Level.UNKNOWN, "context", told)
        return
    told = f"serves `{tier.model}` with {context:,} tokens of context"
    if tier.context is not None and tier.context > context:
        told += f"; the configuration says {tier.context:,}: longer prompts will be refused"
        flag = "--max-model-len" if tier.kind == "vllm" else None
        yield Remark(Level.ERROR, "context", told, flag)
    elif tier.context is not None and tier.context < context:
        told += f", of which the configuration uses {tier.context:,}"
        yield Remark(Level.NOTE, "context", told)
    else:
        yield Remark(Level.OK, "context", told)


def _abilities(tier: Tier, seen: Examination) -> Iterator[Remark]:
    able = [need.value for need in sorted(seen.can) if seen.can[need]]
    yield Remark(Level.OK, "can", f"can do: {', '.join(able) or 'nothing special'}")
    flags = {Need.TOOLS: TOOL_PARSER, Need.REASONING: REASONING_PARSER}
    for need in sorted(PROBED):
        told = seen.can.get(need)
        flag = flags.get(need)
        if told is None:
            yield Remark(Level.UNKNOWN, "can", f"whether it can do {need}: no clear answer", flag)
        elif told is False and need is Need.REASONING:
            if seen.thinks_aloud:
                words = "thoughts are a part of its answers' text: no parser takes them out"
                yield Remark(Level.WARNING, "can", words, flag)
            elif need in tier.can and not tier.asks:
                words = "it does not think, or no parser shows it, though `can` has reasoning"
                yield Remark(Level.NOTE, "can", words, flag)
        elif told is False and need in tier.can and not tier.asks:
            words = f"the tier counts as able to do {need} (`can`), but such requests are refused"
            yield Remark(Level.ERROR, "can", words, flag)
        elif told is False and need is Need.TOOLS:
            words = "requests with tools are refused"
            yield Remark(Level.NOTE, "can", words, flag)
        elif told and need not in tier.can and not tier.asks:
            yield Remark(Level.NOTE, "can", f"can do {need}, which `can` does not say")


def _metrics(seen: Examination) -> Iterator[Remark]:
    if seen.gauges is None:
        told = "has no vLLM metrics: its queue and KV cache stay unknown"
        yield Remark(Level.WARNING, "metrics", told)
    else:
        gauges = seen.gauges
        kv = "unknown" if gauges.kv is None else f"{gauges.kv:.0%}"
        now = f"{gauges.running or 0:.0f} running, {gauges.waiting or 0:.0f} waiting, KV cache {kv}"
        if seen.follows is None:
            yield Remark(Level.OK, "metrics", f"/metrics: {now}")
        elif seen.follows > SLOW_METRICS:
            late = "not within 2 s" if math.isinf(seen.follows) else f"after {seen.follows:.1f} s"
            told = f"/metrics shows {late} what has happened ({now})"
            yield Remark(Level.WARNING, "metrics", told)
        else:
            told = f"/metrics follows within {seen.follows * 1000:.0f} ms: {now}"
            yield Remark(Level.OK, "metrics", told)
    if seen.skew is not None and abs(seen.skew) > CLOCK:
        side = "ahead of" if seen.skew > 0 else "behind"
        told = f"its clock is {_duration(abs(seen.skew))} {side} ours"
        yield Remark(Level.WARNING, "clock", told)


def _flags(seen: Examination) -> Iterator[Remark]:
    checks = (
        ("load", seen.tracks, LOAD_TRACKING, "counts its requests in /load",
         "does not count its requests: load by other clients is not seen"),
        ("prompt_details", seen.prompt_details, PROMPT_DETAILS,
         "says what came from its prefix cache",
         "does not say what came from its prefix cache"),
    )  # fmt: skip
    for code, told, flag, yes, no in checks:
        if told is None:
            yield Remark(Level.UNKNOWN, code, f"whether it {yes}: it could not be told", flag)
        else:
            yield Remark(Level.OK if told else Level.WARNING, code, yes if told else no, flag)
    for code, flag, why in (
        ("priority", PRIORITY, "lets easy requests overtake hard ones in its queue"),
        ("queue_limit", QUEUE_LIMIT, "refuses what another replica could take sooner"),
    ):
        words = f"whether it {why}: cannot be told from outside"
        yield Remark(Level.UNKNOWN, code, words, flag)


def _duration(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
