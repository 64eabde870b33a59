"""`tier-router doctor`: every replica, looked at from outside as the sidecar sees it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from tier_router.config import Config, Tier, load
from tier_router.scrape.advice import Level, Remark, disagreements, remarks
from tier_router.scrape.examine import Examination, examine
from tier_router.scrape.poller import targets_of
from tier_router.scrape.serve_line import serve_line
from tier_router.scrape.target import Target
from tier_router.testing.sim import SimHost
from tier_router_proxy.fetch import PoolFetch
from tier_router_proxy.http.timers import Wheel
from tier_router_proxy.pools import Pools

AT_ONCE = 8
"""Replicas that are looked at side by side; each gets a dozen small requests, in turn."""

STYLES = {
    Level.OK: "green",
    Level.NOTE: "cyan",
    Level.UNKNOWN: "dim",
    Level.WARNING: "yellow",
    Level.ERROR: "bold red",
}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found of one tier."""

    tier: Tier
    seen: Sequence[Examination]
    said: Sequence[Sequence[Remark]]
    """The remarks on each replica."""
    together: Sequence[Remark]
    """Those on all of them."""

    @property
    def remarks(self) -> Iterator[Remark]:
        """All remarks."""
        for each in self.said:
            yield from each
        yield from self.together

    @property
    def line(self) -> str | None:
        """What would mend it: None where no flag is missing, or nothing is there to start."""
        simulated = all(replica.url.startswith("sim://") for replica in self.tier.replicas)
        if simulated or self.tier.kind != "vllm":
            return None
        grave = (Level.ERROR, Level.WARNING)
        missing = any(r.level in grave and r.flag for r in self.remarks)
        return serve_line(self.tier, self.seen) if missing else None


def run(path: Path, as_json: bool, timeout: float, strict: bool) -> int:
    """Looks at the replicas of the configuration at `path` and prints what it finds.

    The exit code is 1 where there is an error, with `strict` also where there is a warning.
    """
    found = asyncio.run(diagnose(load(path), timeout))
    levels = [remark.level for each in found for remark in each.remarks]
    errors, warnings = levels.count(Level.ERROR), levels.count(Level.WARNING)
    if as_json:
        told = {"errors": errors, "warnings": warnings, "tiers": [record(each) for each in found]}
        print(msgspec.json.format(msgspec.json.encode(told), indent=2).decode())
    else:
        _show(found, f"{path}: {_count(errors, 'error')}, {_count(warnings, 'warning')}")
    return int(bool(errors or (strict and warnings)))


async def diagnose(config: Config, seconds: float) -> list[Diagnosis]:
    """The diagnoses of all tiers, by the sidecar's own client; an answer may take so many
    `seconds`."""
    simulated = {r.url: t.model for t in config.tiers for r in t.replicas if r.url[:6] == "sim://"}
    sims, wheel = SimHost(), Wheel()
    pools = Pools(wheel)
    fetch = PoolFetch(pools)
    try:
        urls = {replica.url: replica.url for tier in config.tiers for replica in tier.replicas}
        dialled = urls | await sims.resolve(simulated)
        pools.adopt(dialled, min(config.server.timeouts.connect, seconds))
        fetch.adopt(dialled)
        gate = asyncio.Semaphore(AT_ONCE)

        async def look(target: Target) -> Examination:
            async with gate:
                return await examine(fetch, target, seconds)

        seen = await asyncio.gather(*map(look, targets_of(config, dialled)))
    finally:
        await pools.close()
        await sims.aclose()
        wheel.close()
    return list(_by_tier(config, {each.replica: each for each in seen}))


def _by_tier(config: Config, seen: dict[str, Examination]) -> Iterator[Diagnosis]:
    for tier in config.tiers:
        own = [seen[replica.name or replica.url] for replica in tier.replicas]
        said = [remarks(tier, each) for each in own]
        yield Diagnosis(tier, own, said, disagreements(own))


def record(found: Diagnosis) -> dict[str, Any]:
    """A diagnosis as JSON has it."""
    replicas = [
        {
            "name": seen.replica,
            "url": seen.url,
            "version": seen.version,
            "round_trip_ms": _ms(seen.round_trip),
            "metrics_lag_ms": _ms(seen.follows),
            "models": {name: card.context for name, card in (seen.models or {}).items()},
            "can": {need.value: able for need, able in sorted(seen.can.items())},
            "remarks": [asdict(remark) for remark in said],
        }
        for seen, said in zip(found.seen, found.said, strict=True)
    ]
    return {
        "name": found.tier.name,
        "model": found.tier.model,
        "replicas": replicas,
        "remarks": [asdict(remark) for remark in found.together],
        "serve": found.line,
    }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None or math.isinf(seconds) else round(seconds * 1000, 2)


def _show(found: Sequence[Diagnosis], summary: str) -> None:
    console = Console(highlight=False, soft_wrap=True)
    for each in found:
        console.print(Text(f"{each.tier.name}  {each.tier.model}", style="bold"))
        for replica, said in zip(each.tier.replicas, each.said, strict=True):
            console.print(Text(f"  {replica.name}  {replica.url}"))
            for remark in said:
                _show_remark(console, remark, "    ")
        for remark in each.together:
            _show_remark(console, remark, "  ")
        if each.line is not None:
            console.print(Text("  what would mend it:"))
            console.print(Text(f"    {each.line}"))
        console.print()
    console.print(Text(summary))


def _show_remark(console: Console, remark: Remark, indent: str) -> None:
    line = Text(indent)
    line.append(f"{remark.level:<8} ", style=STYLES[remark.level])
    line.append(remark.text)
    if remark.flag is not None and remark.level is not Level.OK:
        line.append(f" ({remark.flag})")
    console.print(line)


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"
