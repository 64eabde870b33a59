"""`tier-router simulate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from tier_router.cli.show_report import queues, seconds
from tier_router.config import Config, load
from tier_router.errors import ConfigError, RequestError
from tier_router.evidence import Format, collected, opened
from tier_router.evidence.learn import taught
from tier_router.evidence.replay import (
    after,
    arrivals_of,
    before,
    by_share,
    objective_of,
    played,
    replicas_for,
)
from tier_router.router import TierRouter
from tier_router.simulate.arrivals import Arrival, faster, read_trace
from tier_router.simulate.machine import assumed, fleet_of

SOURCES = {
    "configured": "as configured",
    "learned": "learned from the log's answers",
    "assumed": "an assumption, give the tier a `speed`",
}


def run(
    path: Path, log: Path, rate: float | None, slos: Sequence[str], percentile: float,
    heavy_share: float | None, most: int, format: Format | None, as_json: bool,
) -> int:  # fmt: skip
    """Prints queues before and after; returns 1 where an objective cannot be met."""
    goals = [objective_of(text, percentile) for text in slos]
    config = load(path)
    if config.rungs < 2:
        raise ConfigError("there is one tier, so nothing to compare", file=str(path), key="tiers")
    thresholds = TierRouter(config).thresholds
    if ".csv" in log.suffixes:
        arrivals = _of_trace(log, rate, heavy_share, most)
        config = _with_line(config)
        thresholds = (0.5,) * (config.rungs - 1)
    else:
        config, arrivals = _of_log(config, log, thresholds, rate, most, format)
    told: dict[str, Any] = {
        "requests": len(arrivals),
        "seconds": arrivals[-1].at,
        "rate": len(arrivals) / arrivals[-1].at if arrivals[-1].at else None,
        "speeds": _speeds(config, load(path)),
        "before": played(before(config), arrivals),
        "after": played(after(config, thresholds), arrivals),
        "objectives": [replicas_for(config, thresholds, arrivals, goal) for goal in goals],
    }
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(told), indent=2).decode())
    else:
        _show(told)
    return 0 if all(each["met"] for each in told["objectives"]) else 1


def _with_line(config: Config) -> Config:
    return config.model_copy(update={"policy": config.policy.model_copy(update={"threshold": 0.5})})


def _of_trace(log: Path, rate: float | None, heavy_share: float | None, most: int) -> list[Arrival]:
    arrivals = read_trace(log)[:most]
    if not arrivals:
        raise RequestError(f"{log}: nothing to read in this file")
    start = arrivals[0].at
    arrivals = [replace(arrival, at=arrival.at - start) for arrival in arrivals]
    if not any(arrival.difficulty for arrival in arrivals):
        if heavy_share is None:
            raise RequestError(
                f"{log}: no column `difficulty`; give --heavy-share, the share of hard requests"
            )
        arrivals = by_share(arrivals, heavy_share)
    elif not any(arrival.kind for arrival in arrivals):
        arrivals = [
            replace(arrival, kind="hard" if arrival.difficulty >= 0.5 else "easy")
            for arrival in arrivals
        ]
    if rate is not None and arrivals[-1].at:
        arrivals = faster(arrivals, rate * arrivals[-1].at / max(len(arrivals) - 1, 1))
    return arrivals


def _of_log(
    config: Config, log: Path, thresholds: Sequence[float], rate: float | None, most: int,
    format: Format | None,
) -> tuple[Config, list[Arrival]]:  # fmt: skip
    """The arrivals of a log, and the configuration with the speeds that its answers teach."""
    with opened(log, format) as source, collected(source, [config], first=most) as found:
        arrivals = arrivals_of(found, thresholds, rate, most)
        config = taught(config, found.rows)
    if not arrivals:
        raise RequestError(f"{log}: every request of this log would be refused")
    return config, arrivals


def _speeds(config: Config, written: Config) -> list[dict[str, Any]]:
    """What the tiers are taken to be, and where that is from."""
    fleet = fleet_of(config)
    told = []
    for tier, own in zip(config.tiers[: config.rungs], written.tiers, strict=False):
        machine = fleet[tier.names[0]]
        source = "assumed" if assumed(tier) else "learned" if assumed(own) else "configured"
        told.append({"tier": tier.name, "source": source, **asdict(machine.speed)})
    return told


def _show(told: dict[str, Any]) -> None:
    console = Console(highlight=False)
    pace = "" if told["rate"] is None else f", {told['rate']:.2f} a second"
    console.print(f"{told['requests']:,} requests in {told['seconds']:,.0f} s{pace}")
    for each in told["speeds"]:
        console.print(
            f"{each['tier']}: {each['prefill']:,.0f} prompt tokens a second, "
            f"{each['step'] * 1000:.3g} ms a token (+{each['per_seq'] * 1000:.2g} ms for each "
            f"further request), {each['slots']} at once: {SOURCES[each['source']]}"
        )
    console.print(queues(told["before"], told["after"]))
    for each in told["objectives"]:
        counts = ", ".join(f"{count} {name}" for name, count in each["replicas"].items())
        if each["met"]:
            console.print(f"{each['objective']}: {counts} ({each['gpus']:g} GPUs)")
        elif each["alone"] is not None:
            took = seconds(each["alone"])
            console.print(f"{each['objective']}: by no number, an idle replica takes {took}")
        else:
            console.print(f"{each['objective']}: not even by {counts} ({each['gpus']:g} GPUs)")
    mean = {side: told[side]["classes"]["all"]["latency"]["mean"] for side in ("before", "after")}
    console.print(f"mean latency: {seconds(mean['before'])} before, {seconds(mean['after'])} after")
