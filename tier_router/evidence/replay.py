"""Plays a log's arrivals, or a trace's, through tiers: before (all to the largest model, on the
same hardware) and after; and how many replicas meet an objective."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tier_router.config import Config, Policy, Replica, Tier
from tier_router.errors import RequestError
from tier_router.evidence.collect import Collected
from tier_router.evidence.costs import gpus_of
from tier_router.evidence.library import polars as pl
from tier_router.simulate.arrivals import Arrival
from tier_router.simulate.machine import Machine, fleet_of
from tier_router.simulate.result import Ended, Result
from tier_router.simulate.world import run

PERCENTILES = (50, 95, 99)

MOST_REPLICAS = 64
"""Replicas of one tier that a search goes up to."""


@dataclass(frozen=True, slots=True)
class Objective:
    """A service level: the `percent`-th percentile of `ttft` or `latency` is at most `seconds`."""

    what: str
    seconds: float
    percent: float = 95.0

    def __str__(self) -> str:
        return f"P{self.percent:g} {self.what} <= {self.seconds:g} s"


def objective_of(text: str, percent: float = 95.0) -> Objective:
    """The objective that `ttft=1.0` or `latency=20` says; raises RequestError."""
    what, found, value = text.partition("=")
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if what not in ("ttft", "latency") or not found or not 0 < seconds < math.inf:
        raise RequestError(f"--slo {text}: an objective is ttft=SECONDS or latency=SECONDS")
    return Objective(what, seconds, percent)


@dataclass(frozen=True, slots=True)
class Hardware:
    """A configuration and the machine of each of its replicas."""

    config: Config
    fleet: Mapping[str, Machine]
    about: str


# ---- arrivals


def arrivals_of(
    found: Collected, thresholds: Sequence[float], rate: float | None, most: int
) -> list[Arrival]:
    """The first `most` requests of a log, oldest first, from second 0 on.

    `rate` sets the mean number a second: times are stretched, and made up (Poisson) where the log
    has none.  A request's class is the tier that it needs.  Raises RequestError where there are no
    times and no rate.
    """
    table = (
        found.rows.filter(pl.col("refused").is_null())
        .filter(pl.col("place") <= len(thresholds))  # those after the ladder make embeddings
        .select("at", "prompt", "output", "tier", "place", "margin", "difficulty", "key")
        .head(most)
        .collect(engine="streaming")
    )
    timed = table.filter(pl.col("at").is_not_null())
    if timed.height >= table.height * 0.9 and _lasts(timed) > 0:
        rows = timed.sort("at")
        times = (rows["at"] - rows["at"][0]).to_list()
        factor = 1.0 if rate is None else rate * times[-1] / max(len(times) - 1, 1)
        times = [at / factor for at in times]
    elif rate is None:
        raise RequestError("this log has no times: give --rate, requests a second")
    else:
        rows, times = table, _poisson(table.height, rate)
    return [
        Arrival(
            at=at,
            prompt=max(1, row["prompt"]),
            output=max(1, row["output"]),
            kind=row["tier"],
            difficulty=_level(row, thresholds),
            conversation=row["key"],
        )
        for at, row in zip(times, rows.iter_rows(named=True), strict=True)
    ]


def _lasts(table: pl.DataFrame) -> float:
    span = table.select(pl.col("at").max() - pl.col("at").min()).item() if table.height > 1 else 0
    return float(span)


def _poisson(count: int, rate: float) -> list[float]:
    pick, at, times = random.Random(0), 0.0, []
    for _ in range(count):
        at += pick.expovariate(rate)
        times.append(at)
    return times


def _level(row: Mapping[str, Any], thresholds: Sequence[float]) -> float:
    """The difficulty that stands for a request: its own where that decided, else its tier's,
    far from every line, so that load does not move it."""
    if row["margin"] is not None:
        return float(row["difficulty"])
    edges = (0.0, *thresholds[: max(row["place"], 1)], 1.0)
    return edges[0] if not row["place"] else (edges[row["place"]] + edges[row["place"] + 1]) / 2


def by_share(arrivals: Sequence[Arrival], share: float) -> list[Arrival]:
    """The same requests, of which `share`, drawn at random, is hard: for a trace that does not
    say."""
    pick = random.Random(0)
    hard = [pick.random() < share for _ in arrivals]
    return [
        replace(arrival, difficulty=1.0 if is_hard else 0.0, kind=arrival.kind or _named(is_hard))
        for arrival, is_hard in zip(arrivals, hard, strict=True)
    ]


def _named(is_hard: bool) -> str:
    return "hard" if is_hard else "easy"


# ---- hardware


def after(config: Config, thresholds: Sequence[float]) -> Hardware:
    """The configured ladder, deciding by difficulty alone: what rules and intents settle is in the
    arrivals' difficulties."""
    told = _plain(config, config.tiers[: config.rungs], tuple(thresholds)[: config.rungs - 1])
    count = " + ".join(f"{len(tier.replicas)} {tier.name}" for tier in told.tiers)
    return Hardware(told, fleet_of(told), count)


def before(config: Config) -> Hardware:
    """One tier, the largest, on all GPUs of the ladder.

    GPUs that make no whole replica are given to the others as speed, in proportion, which flatters
    this side.
    """
    gpus_each = _gpus(config)
    ladder = config.tiers[: config.rungs]
    top = ladder[-1]
    each = gpus_each[top.name]
    gpus = sum(gpus_each[tier.name] * len(tier.replicas) for tier in ladder)
    count = max(1, int(gpus / each + 1e-9))
    boost = gpus / (count * each)
    machine = fleet_of(config)[top.names[0]]
    speed = machine.speed
    faster = replace(
        machine,
        speed=replace(
            speed,
            prefill=speed.prefill * boost,
            step=speed.step / boost,
            per_seq=speed.per_seq / boost,
        ),
        kv_tokens=round(machine.kv_tokens * boost),
    )
    tier = _with_replicas(top, count)
    about = f"{count} {top.name}" + (f", each {boost:.2f} times as fast" if boost > 1.001 else "")
    return Hardware(
        _plain(config, (tier,), ()), dict.fromkeys(tier.names, faster), f"{about} ({gpus:g} GPUs)"
    )


def _gpus(config: Config) -> dict[str, float]:
    """GPUs of one replica of each tier."""
    machines = fleet_of(config)
    return {tier.name: gpus_of(tier, machines[tier.names[0]]) for tier in config.tiers}


def _with_replicas(tier: Tier, count: int) -> Tier:
    url = tier.replicas[0].url
    replicas = tuple(Replica(url=url, name=f"{tier.name}-{index}") for index in range(count))
    return tier.model_copy(update={"replicas": replicas})


def _plain(config: Config, tiers: Sequence[Tier], thresholds: Sequence[float]) -> Config:
    open_ = tuple(tier.model_copy(update={"context": None}) for tier in tiers)
    policy = Policy(threshold=tuple(thresholds)) if thresholds else Policy()
    return Config(tiers=open_, policy=policy, load=config.load)


# ---- figures


def played(hardware: Hardware, arrivals: Sequence[Arrival]) -> dict[str, Any]:
    """What became of the arrivals: {about, requests, lost, seconds, tiers, classes: {class or
    "all": {requests, ttft, latency}}}, times as {"p50": ..., "mean": ...} in seconds."""
    result = run(hardware.config, arrivals, hardware.fleet)
    kinds = sorted({arrival.kind for arrival in arrivals})
    return {
        "about": hardware.about,
        "requests": len(result.records),
        "lost": len(result.records) - result.ended(Ended.DONE),
        "seconds": result.seconds,
        "tiers": {tier.name: result.share(tier.name) for tier in hardware.config.tiers},
        "classes": {
            kind or "all": {
                "requests": sum(1 for _ in result.of(kind)),
                **{what: _times(result, what, kind) for what in ("ttft", "latency")},
            }
            for kind in (None, *kinds)
            if kind is None or kind
        },
    }


def _times(result: Result, what: str, kind: str | None) -> dict[str, float | None]:
    values = {f"p{p}": result.percentile(what, p, kind) for p in PERCENTILES}
    values["mean"] = result.mean(what, kind)
    return {name: None if math.isnan(value) else value for name, value in values.items()}


def replicas_for(
    config: Config, thresholds: Sequence[float], arrivals: Sequence[Arrival], goal: Objective
) -> dict[str, Any]:
    """The fewest replicas of each tier, found upward from one of each, with which every class
    meets `goal` and nothing is lost: {objective, met, alone, replicas, gpus, steps}.

    Each step adds to the tier whose own requests miss the objective by most.  `alone` is its
    seconds where no number of replicas will do: a replica with nothing else to do takes as long.
    """
    config = Config(tiers=config.tiers[: config.rungs], load=config.load)
    counts = {tier.name: 1 for tier in config.tiers}
    gpus = _gpus(config)
    steps = []
    alone = None
    while True:
        result = _with(config, thresholds, arrivals, counts)
        missed = _missed(result, goal, counts)
        worst = max(missed, key=missed.__getitem__)
        met = missed[worst] <= 1
        steps.append({"replicas": dict(counts), "worst": missed[worst]})
        fastest = 0.0 if met else _alone(config, result, goal, worst)
        if fastest > goal.seconds:
            alone = fastest
        if met or alone is not None or counts[worst] >= MOST_REPLICAS:
            break
        # a queue that has no end grows with the time it is watched: then double
        counts[worst] += max(1, counts[worst] // 4) if missed[worst] > 10 else 1
    return {
        "objective": str(goal),
        "met": met,
        "alone": alone,
        "replicas": counts,
        "gpus": sum(gpus[name] * count for name, count in counts.items()),
        "steps": steps,
    }


def _with(
    config: Config, thresholds: Sequence[float], arrivals: Sequence[Arrival],
    counts: Mapping[str, int],
) -> Result:  # fmt: skip
    machines = {tier.name: fleet_of(config)[tier.names[0]] for tier in config.tiers}
    tiers = [_with_replicas(tier, counts[tier.name]) for tier in config.tiers]
    told = _plain(config, tiers, tuple(thresholds)[: len(tiers) - 1])
    fleet = {name: machines[tier.name] for tier in told.tiers for name in tier.names}
    return run(told, arrivals, fleet)


def _alone(config: Config, result: Result, goal: Objective, tier: str) -> float:
    """The objective's percentile if each request of `tier` had a replica to itself."""
    place = config.ladder[tier]
    speed = fleet_of(config)[config.tiers[place].names[0]].speed
    values = sorted(
        (r.prompt - r.cached) / speed.prefill
        + speed.step * (r.output if goal.what == "latency" else 1)
        for r in result.records
        if r.tier == tier
    )
    return _percentile(values, goal.percent)


def _percentile(values: Sequence[float], percent: float) -> float:
    """The value that `percent` of the sorted `values` do not pass; 0 of none."""
    return values[max(math.ceil(percent / 100 * len(values)) - 1, 0)] if values else 0.0


def _missed(result: Result, goal: Objective, tiers: Mapping[str, int]) -> dict[str, float]:
    """By tier: how many times over the objective its requests are; infinite where any is lost."""
    over = {}
    for tier in tiers:
        own = [r for r in result.records if r.tier == tier]
        values = sorted(
            math.inf if r.ended is not Ended.DONE else getattr(r, goal.what) for r in own
        )
        over[tier] = _percentile(values, goal.percent) / goal.seconds
    if any(r.ended is not Ended.DONE and not r.tier for r in result.records):
        over[max(over, key=over.__getitem__)] = math.inf
    return over
