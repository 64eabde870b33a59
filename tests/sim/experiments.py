"""What the constants of `decide` do, and what tiers bring, by simulation: prints tables.

    python tests/sim/experiments.py [--quick] [--only spread,step,...]

The full run takes about twelve minutes of one core, `--quick` about two.  The traces are found
through `TIER_ROUTER_DATA`; without it, what needs them is skipped with a word.  `RESULTS.md`
beside this file holds the tables of a full run and what they say.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tier_router import decide as brain
from tier_router.classify.native import NativeClassifier
from tier_router.config import Config, Replica, Tier, parse
from tier_router.decide import Reason
from tier_router.errors import NoReplica
from tier_router.exchange.redis import MANY
from tier_router.exchange.ticking import TICK
from tier_router.ledger import Ledger, Report
from tier_router.pressure import DOWN
from tier_router.simulate import (
    HEAVY,
    LIGHT,
    Arrival,
    Ended,
    Fault,
    Lengths,
    Machine,
    Result,
    bursts,
    conversations,
    faster,
    fleet_of,
    merge,
    poisson,
    read_trace,
    run,
)

SEED = 1
INTENT = Lengths(prompt=100, output=60)
"""A short intent behind a short system prompt: a few hundred characters in, a few sentences out."""
TALK = Lengths(prompt=300, output=150)
SIMPLE_LEVEL, HARD_LEVEL = (1.0, 9.0), (9.0, 1.0)
"""Beta distributions of the difficulty: means 0.1 and 0.9, 0.2 % on the other side of 0.5."""
PEER_NAME = 40
"""Bytes of a process's name in Redis: host, pid and eight hex digits."""

Row = Sequence[object]


def table(title: str, head: Sequence[str], rows: Sequence[Row]) -> None:
    """Prints a table in markdown."""
    print(f"\n### {title}\n")
    print("| " + " | ".join(head) + " |")
    print("|" + " --- |" * len(head))
    for row in rows:
        print("| " + " | ".join(_cell(value) for value in row) + " |", flush=True)


def _cell(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    if value != value:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def percent(share: float) -> str:
    """A share, for people."""
    return "-" if share != share else f"{share:.1%}"


def ms(seconds: float) -> str:
    """Milliseconds, for people."""
    return "-" if seconds != seconds else f"{seconds * 1000:,.0f}"


@contextlib.contextmanager
def constant(name: str, value: object) -> Iterator[None]:
    """`decide` with another value of one of its constants or steps."""
    before = getattr(brain, name)
    setattr(brain, name, value)
    try:
        yield
    finally:
        setattr(brain, name, before)


def config(
    light: int, heavy: int, price: float | None = None, limits: str = "", threshold: float = 0.5
) -> Config:
    """Tiers of so many replicas; a tier without replicas is left out.  Nothing is shed, so that
    all runs of a table answer the same requests."""
    price_of = "" if price is None else f"price: {price}, "
    tiers = [
        f"- {{name: {name}, model: {name}, {limits} replicas: "
        f"[{', '.join(f'http://{name}-{number}:1' for number in range(replicas))}]}}"
        for name, replicas in (("light", light), ("heavy", heavy))
        if replicas
    ]
    text = "tiers:\n  " + "\n  ".join(tiers) + f"\nload: {{{price_of}shed: null}}\n"
    return parse(text + f"policy: {{threshold: {threshold}}}\n", name="experiment")


def monolith(replicas: int, machine: Machine = HEAVY, limits: str = "") -> tuple[Config, Any]:
    """One heavy tier."""
    made = config(0, replicas, limits=limits)
    return made, fleet_of(made, {"heavy": machine})


def mean_open(result: Result) -> float:
    """Mean number of open requests on a replica."""
    total = weighted = 0.0
    for each in result.occupancy.values():
        for number, seconds in each.seconds.items():
            total += seconds
            weighted += number * seconds
    return weighted / total


def reference() -> tuple[float, Callable[[random.Random], float]]:
    """The shipped classifier's threshold, and a draw from its difficulties of ordinary traffic."""
    classifier = NativeClassifier([])
    levels = [classifier.reference_quantile(share / 1_000) for share in range(1_001)]
    return classifier.default_threshold, lambda pick: levels[pick.randrange(1_001)]


def judged(arrivals: Iterable[Arrival], threshold: float, draw: Any) -> list[Arrival]:
    """The same requests with difficulties of ordinary traffic."""
    pick = random.Random(SEED)
    levels = ((row, draw(pick)) for row in arrivals)
    return [
        replace(row, difficulty=level, kind="hard" if level >= threshold else "simple")
        for row, level in levels
    ]


# ---- other ways to pick a replica, under the same knowledge of the load

Pick = Callable[[Tier, int, Mapping[str, float], Collection[str]], Replica]


def _up(tier: Tier, pressures: Mapping[str, float], exclude: Collection[str]) -> list[Replica]:
    found = [
        each
        for each in tier.replicas
        if each.name not in exclude and pressures.get(each.name or "", 0.0) != DOWN
    ]
    if not found:
        raise NoReplica(f"no replica of tier `{tier.name}` is up")
    return found


def two_choices() -> Pick:
    """The less loaded of two replicas that chance picks (Mitzenmacher 2001)."""
    pick = random.Random(SEED)

    def choose(
        tier: Tier, key: int, pressures: Mapping[str, float], exclude: Collection[str]
    ) -> Replica:
        up = _up(tier, pressures, exclude)
        drawn = pick.sample(up, min(2, len(up)))
        return min(drawn, key=lambda each: pressures.get(each.name or "", 0.0))

    return choose


def round_robin() -> Pick:
    """One after the other."""
    turn = count()

    def choose(
        tier: Tier, key: int, pressures: Mapping[str, float], exclude: Collection[str]
    ) -> Replica:
        up = _up(tier, pressures, exclude)
        return up[next(turn) % len(up)]

    return choose


def least_loaded() -> Pick:
    """The least pressure; among equals chance decides."""
    pick = random.Random(SEED)

    def choose(
        tier: Tier, key: int, pressures: Mapping[str, float], exclude: Collection[str]
    ) -> Replica:
        up = _up(tier, pressures, exclude)
        return min(up, key=lambda each: (pressures.get(each.name or "", 0.0), pick.random()))

    return choose


def rendezvous() -> Pick:
    """The conversation's own replica, whatever its load."""

    def choose(
        tier: Tier, key: int, pressures: Mapping[str, float], exclude: Collection[str]
    ) -> Replica:
        up = _up(tier, pressures, exclude)
        return max(up, key=lambda each: brain._rendezvous(key, each.name or ""))

    return choose


def within(width: float) -> Pick:
    """As ours, but equal is what lies within `width` of the least pressure: no fixed borders."""

    def choose(
        tier: Tier, key: int, pressures: Mapping[str, float], exclude: Collection[str]
    ) -> Replica:
        up = _up(tier, pressures, exclude)
        most = min(pressures.get(each.name or "", 0.0) for each in up) + width
        near = [each for each in up if pressures.get(each.name or "", 0.0) <= most]
        return max(near, key=lambda each: brain._rendezvous(key, each.name or ""))

    return choose


def bounded(factor: float) -> Pick:
    """Rendezvous with bounded loads (after Mirrokni and others, 2018): the first in the
    conversation's own order that has at most `factor` times the mean, and one request more."""

    def choose(
        tier: Tier, key: int, pressures: Mapping[str, float], exclude: Collection[str]
    ) -> Replica:
        up = _up(tier, pressures, exclude)
        loads = [pressures.get(each.name or "", 0.0) for each in up]
        most = factor * (sum(loads) / len(loads) + 1 / 64)
        near = [each for each, load in zip(up, loads, strict=True) if load <= most]
        return max(near, key=lambda each: brain._rendezvous(key, each.name or ""))

    return choose


def bands(width: float) -> Pick:
    """Equal is what falls into one band of this width, of those with fixed borders."""

    def choose(
        tier: Tier, key: int, pressures: Mapping[str, float], exclude: Collection[str]
    ) -> Replica:
        up = _up(tier, pressures, exclude)
        steps = [pressures.get(each.name or "", 0.0) // width for each in up]
        near = [each for each, step in zip(up, steps, strict=True) if step == min(steps)]
        return max(near, key=lambda each: brain._rendezvous(key, each.name or ""))

    return choose


POLICIES: dict[str, Callable[[], Pick]] = {
    "tier-router": lambda: brain._replica,
    "two random choices": two_choices,
    "round robin": round_robin,
    "least loaded": least_loaded,
    "rendezvous hashing": rendezvous,
}
OTHERS: dict[str, Callable[[], Pick]] = {
    "within 0.031 of the least": lambda: within(0.031),
    "within 0.063": lambda: within(0.063),
    "within 0.125": lambda: within(0.125),
    "within 0.25": lambda: within(0.25),
    "bounded, 1.1 x mean": lambda: bounded(1.1),
    "bands of 0.125": lambda: bands(0.125),
    "bounded, 1.5 x mean": lambda: bounded(1.5),
    "bounded, 2 x mean": lambda: bounded(2.0),
}
"""Ways that are not in the product: would they do better?"""


class Experiments:
    """All of them; `quick` shortens the arrivals."""

    def __init__(self, quick: bool, data: Path | None) -> None:
        self.quick, self.data = quick, data

    def seconds(self, full: float) -> float:
        """How long requests come."""
        return full / 8 if self.quick else full

    def trace(
        self, name: str, seconds: float, begin: float = 0.0, **options: Any
    ) -> list[Arrival] | None:
        """`seconds` of a trace from `begin` on, at times from 0."""
        if self.data is None:
            print(f"\nskipped, TIER_ROUTER_DATA is not set: needs {name}")
            return None
        rows = read_trace(self.data / "traces" / f"{name}.csv.gz", **options)
        end = begin + self.seconds(seconds)
        return [replace(row, at=row.at - begin) for row in rows if begin <= row.at < end]

    def moon(self) -> list[Arrival] | None:
        """Mooncake's conversations; its clock has steps of 3 s, which chance spreads."""
        found = self.trace("mooncake_conversation", 1_200)
        if found is None:
            return None
        pick = random.Random(SEED)
        spread = [replace(row, at=row.at + pick.uniform(0, 3)) for row in found]
        return sorted(spread, key=lambda row: row.at)

    # ---- replicas

    def spread(self) -> None:
        """Open requests on 8 replicas, and conversations that come back."""
        made, fleet = monolith(8)
        for rate in (1.4, 2.8, 6.0):
            talks = conversations(rate, self.seconds(400), TALK, SEED)
            rows = []
            for policy, pick in POLICIES.items():
                for routers in (1, 4):
                    with constant("_replica", pick()):
                        result = run(made, talks, fleet, routers=routers, seed=SEED)
                    rows.append([
                        policy, routers, mean_open(result), result.open(50), result.open(99),
                        result.open(100), percent(result.stickiness),
                        percent(result.cached_share), ms(result.percentile("ttft", 50)),
                        ms(result.percentile("ttft", 99)),
                    ])  # fmt: skip
            table(
                f"Spread over 8 replicas: {len(talks) / self.seconds(400):.1f} requests/s of "
                "conversations",
                ["replica by", "routers", "mean open", "p50", "p99", "max", "same replica",
                 "prompt cached", "TTFT p50 ms", "TTFT p99 ms"],
                rows,
            )  # fmt: skip

    def seeds(self) -> None:
        """The middle load of `spread` with arrivals that no constant was chosen by."""
        made, fleet = monolith(8)
        rows = []
        for policy in (*POLICIES, "within 0.125", "bands of 0.125"):
            found = []
            for seed in range(2, 7):
                talks = conversations(2.8, self.seconds(400), TALK, seed)
                with constant("_replica", (POLICIES | OTHERS)[policy]()):
                    found.append(run(made, talks, fleet, routers=4, seed=seed))
            rows.append([
                policy,
                *(", ".join(cells) for cells in (
                    [f"{mean_open(each):.1f}" for each in found],
                    [str(each.open(99)) for each in found],
                    [f"{each.stickiness:.0%}" for each in found],
                    [ms(each.percentile("ttft", 99)) for each in found],
                )),
            ])  # fmt: skip
        table(
            "The same with 2.8 conversations a second and 4 routers, seeds 2 to 6",
            ["replica by", "mean open", "p99 open", "same replica", "TTFT p99 ms"],
            rows,
        )

    def mooncake(self) -> None:
        """Long conversations on 8 heavy replicas, by the way a replica is picked."""
        found = self.moon()
        if found is None:
            return
        made, fleet = monolith(8)
        rows = []
        for policy, pick in (POLICIES | OTHERS).items():
            with constant("_replica", pick()):
                result = run(made, found, fleet, routers=4, seed=SEED)
            rows.append([policy, *self._cache_cells(result)])
        table(
            f"Mooncake's conversation trace ({len(found)} requests) on 8 replicas, 4 routers",
            ["replica by", *self._CACHE_HEAD],
            rows,
        )

    _CACHE_HEAD = ("mean open", "p99 open", "same replica", "prompt cached", "TTFT p50 ms",
                   "TTFT p99 ms", "mean latency s")  # fmt: skip

    def _cache_cells(self, result: Result) -> Row:
        return [
            mean_open(result), result.open(99), percent(result.stickiness),
            percent(result.cached_share), ms(result.percentile("ttft", 50)),
            ms(result.percentile("ttft", 99)), result.mean("latency"),
        ]  # fmt: skip

    def step(self) -> None:
        """The width of a band of pressures that count as equal."""
        made, fleet = monolith(8)
        loads: dict[str, list[Arrival]] = {
            f"conversations, {rate} begin each second": conversations(
                rate, self.seconds(300), TALK, SEED
            )
            for rate in (2.8, 6.0)
        }
        moon = self.moon()
        if moon is not None:
            loads["Mooncake"] = moon
        for name, arrivals in loads.items():
            rows = []
            for width in (0.016, 0.031, 0.063, 0.125, 0.25, 0.5):
                with constant("_replica", bands(width)):
                    result = run(made, arrivals, fleet, routers=4, seed=SEED)
                rows.append([width, *self._cache_cells(result)])
            table(f"bands, 8 replicas, 4 routers: {name}", ["width", *self._CACHE_HEAD], rows)
            if name == "Mooncake":
                continue
            rows = []
            for policy, pick in OTHERS.items():
                with constant("_replica", pick()):
                    result = run(made, arrivals, fleet, routers=4, seed=SEED)
                rows.append([policy, *self._cache_cells(result)])
            table(
                f"Other ways, 8 replicas, 4 routers: {name}",
                ["replica by", *self._CACHE_HEAD],
                rows,
            )

    # ---- accidents

    def recovery(self) -> None:
        """A replica of four dies, or becomes slow."""
        made, fleet = monolith(4)
        at, whole = 90.0, 270.0
        arrivals = conversations(2.6, whole, TALK, SEED)
        rows = []
        for routers in (1, 4):
            for dead in (2.0, 20.0, 60.0):
                back = at + dead
                result = run(
                    made, arrivals, fleet, routers=routers, seed=SEED,
                    faults=[Fault("heavy-1", at, back)],
                )  # fmt: skip
                again = [each.at for each in result.records
                         if each.replica == "heavy-1" and each.at >= back]  # fmt: skip
                rows.append([
                    routers, f"{dead:.0f}", len(arrivals), result.ended(Ended.CUT),
                    result.ended(Ended.REFUSED),
                    sum(each.attempts > 1 for each in result.records),
                    *(ms(_between(result, *span)) for span in
                      ((at - 30, at), (at, at + 5), (at + 5, max(back, at + 30)),
                       (back + 40, back + 100))),
                    f"{min(again) - back:.1f}" if again else "never",
                    f"{again[20] - back:.1f}" if len(again) > 20 else "never",
                ])  # fmt: skip
        table(
            "One of 4 replicas dies",
            ["routers", "dead s", "requests", "cut (answer had begun)", "refused", "tried again",
             "TTFT p95 ms before", "first 5 s", "next 25 s or while dead", "40 s after return",
             "s from return to first request", "to the 20th"],
            rows,
        )  # fmt: skip
        rows = []
        for policy in ("tier-router", "two random choices", "round robin", "rendezvous hashing",
                       "within 0.125", "bands of 0.125", "bounded, 1.5 x mean"):  # fmt: skip
            with constant("_replica", (POLICIES | OTHERS)[policy]()):
                result = run(
                    made, arrivals, fleet, routers=4, seed=SEED,
                    faults=[Fault("heavy-1", 0, 9e9, slowdown=4.0)],
                )  # fmt: skip
            sent = Counter(each.replica for each in result.records)
            rows.append([
                policy, percent(sent["heavy-1"] / len(arrivals)),
                ms(result.percentile("ttft", 99)), result.mean("latency"),
                result.percentile("latency", 99),
            ])  # fmt: skip
        table(
            "One of 4 replicas is four times as slow, 4 routers",
            ["replica by", "sent to it", "TTFT p99 ms", "mean latency s", "latency p99 s"],
            rows,
        )

    def spill(self) -> None:
        """Bursts of simple requests that one light replica does not carry."""
        seconds = self.seconds(300)
        simple = bursts(
            poisson(25, seconds, INTENT, SEED, kind="simple", difficulty=SIMPLE_LEVEL), 30, 5, 4
        )
        hard = poisson(3, seconds, Lengths(900, 150), SEED + 1, kind="hard", difficulty=HARD_LEVEL)
        arrivals = merge(simple, hard)
        rows = []
        for name, limit in (("off (no limit)", 1e9), ("at 128", 128), ("at 64", 64), ("at 32", 32)):
            made = config(1, 2, limits=f"limits: {{requests: {limit:.0f}, tokens: 1.0e+9}},")
            result = run(made, arrivals, routers=4, seed=SEED)
            rows.append([
                name, percent(result.because(Reason.SPILLED, "simple")),
                percent(result.share("heavy", "simple")),
                *(ms(result.percentile("ttft", share, "simple")) for share in (50, 99)),
                ms(result.percentile("ttft", 99, "hard")),
                result.mean("latency", "simple"), result.mean("latency", "hard"),
            ])  # fmt: skip
        table(
            "Spill: bursts of simple requests (100/s for 5 s of each 30), 1 light and 2 heavy",
            ["full at", "spilled", "simple at heavy", "simple TTFT p50 ms", "p99",
             "hard TTFT p99 ms", "simple mean latency s", "hard mean latency s"],
            rows,
        )  # fmt: skip

    # ---- tiers

    def price(self) -> None:
        """How far the load moves borderline requests."""
        seconds = self.seconds(300)
        threshold, draw = reference()
        for name, rate in (("heavy is full", 18.0), ("heavy has room", 12.0)):
            mixed = judged(poisson(rate, seconds, Lengths(900, 150), SEED + 1), threshold, draw)
            intents = poisson(20, seconds, INTENT, SEED, kind="intent", difficulty=0.01)
            arrivals = merge(intents, mixed)
            rows = []
            for price in (0.0, 0.15, 0.25, 0.5, 1.0, 2.0, 4.0):
                made = config(4, 1, price, threshold=threshold)
                result = run(made, arrivals, routers=4, seed=SEED)
                rows.append([price, *self._price_cells(result, arrivals)])
            table(
                f"Load price, 4 light and 1 heavy, {name}: {rate:.0f} requests/s of ordinary "
                f"difficulty (threshold {threshold:.3f}, the shipped one), 20 simple ones",
                ["price", "simple TTFT p99 ms", "hard TTFT p50 ms", "p99", "mean latency s",
                 "moved down", "of the hard", "moved up", "more wrong answers per 1,000"],
                rows,
            )  # fmt: skip

    def _price_cells(self, result: Result, arrivals: Sequence[Arrival]) -> Row:
        """`difficulty` is the probability that light is wrong where heavy is right."""
        worse = sum(
            arrival.difficulty
            for arrival, record in zip(arrivals, result.records, strict=True)
            if Reason.LOAD_DOWN in record.reasons
        )
        return [
            ms(result.percentile("ttft", 99, "simple")),
            *(ms(result.percentile("ttft", share, "hard")) for share in (50, 99)),
            result.mean("latency"), percent(result.because(Reason.LOAD_DOWN)),
            percent(result.because(Reason.LOAD_DOWN, "hard")),
            percent(result.because(Reason.LOAD_UP)), 1_000 * worse / len(arrivals),
        ]  # fmt: skip

    def fade(self) -> None:
        """How long a hard turn holds its conversation on the heavy tier."""
        threshold, draw = reference()
        pick = random.Random(SEED)
        talks: list[Arrival] = []
        levels: dict[int | None, list[float]] = {}
        for row in conversations(3.0, self.seconds(400), TALK, SEED, turns=6):
            before = levels.setdefault(row.conversation, [])
            level = draw(pick)
            talks.append(replace(row, difficulty=level, earlier=tuple(before[-8:])))
            before.append(level)
        made = config(4, 2, threshold=threshold)
        rows = []
        for fade in (0.0, 0.25, 0.5, 0.6, 0.7, 0.85, 1.0):
            with constant("FADE", fade):
                result = run(made, talks, routers=4, seed=SEED)
            last: dict[int, str] = {}
            moves = turns = 0
            for record in result.records:
                key = record.conversation or 0
                if key in last:
                    turns += 1
                    moves += last[key] != record.tier
                last[key] = record.tier
            easy = [
                record.tier == "heavy"
                for arrival, record in zip(talks, result.records, strict=True)
                if arrival.difficulty < threshold
            ]
            rows.append([
                fade, percent(result.share("heavy")), percent(sum(easy) / len(easy)),
                percent(result.because(Reason.HELD)), percent(moves / turns),
                percent(result.cached_share), ms(result.percentile("ttft", 50)),
                ms(result.percentile("ttft", 99)), result.mean("latency"),
            ])  # fmt: skip
        table(
            f"FADE: conversations of 6 turns of ordinary difficulty (threshold {threshold:.3f}), "
            "4 light and 2 heavy, 4 routers",
            ["FADE", "at heavy", "easy turns at heavy", "held", "turns that change tier",
             "prompt cached", "TTFT p50 ms", "TTFT p99 ms", "mean latency s"],
            rows,
        )  # fmt: skip

    def headline(self) -> None:
        """Everything to the heavy model, against tiers on the same GPUs."""
        seconds = 400.0
        calm, peak = (
            self.trace("azure2023_conv", seconds, begin, kind="hard", difficulty=0.9)
            for begin in (300.0, 1_600.0)
        )
        if calm is None or peak is None:
            return
        span = self.seconds(seconds)

        def intents(rate: float) -> Iterator[Arrival]:
            return poisson(rate, span, INTENT, SEED, kind="simple", difficulty=0.01)

        self._versus(
            "8 GPUs: 2 heavy replicas, or 1 heavy and 4 light.  Azure's conversation trace at its "
            "own rate, all of it hard, and simple intents",
            "simple/s",
            {str(rate): merge(intents(rate), calm) for rate in (10, 20, 30, 40)},
        )
        self._versus(
            "The same in the trace's busiest minutes: one heavy replica does not carry the "
            "hard requests alone",
            "simple/s",
            {str(rate): merge(intents(rate), peak) for rate in (20,)},
        )
        threshold, draw = reference()
        self._versus(
            "The same GPUs, the trace alone, faster, with ordinary difficulties and the shipped "
            f"threshold ({threshold:.3f})",
            "times as fast",
            {
                str(times): judged(faster(calm, times), threshold, draw)
                for times in (1.6, 2.0, 2.4, 2.8)
            },
            threshold=threshold,
        )
        for slots in (32, 256):
            self._versus(
                f"30 simple/s again, with `--max-num-seqs` and `limits.requests` of {slots}",
                "simple/s",
                {"30": merge(intents(30), calm)},
                slots=slots,
            )
        self._versus(
            "32 GPUs and 4 routers: 8 heavy, or 4 heavy and 16 light; the trace 4 times as fast",
            "simple/s",
            {"120": merge((row for row in intents(120) if row.at < span / 4), faster(calm, 4))},
            size=4,
        )

    def _versus(
        self,
        title: str,
        label: str,
        loads: Mapping[str, Sequence[Arrival]],
        *,
        slots: int = 64,
        size: int = 1,
        threshold: float = 0.5,
    ) -> None:
        """A table of four fleets on equal GPUs under some loads."""
        limits = f"limits: {{requests: {slots}, tokens: 400000}},"
        big, small = (
            replace(each, speed=replace(each.speed, slots=slots)) for each in (HEAVY, LIGHT)
        )
        queued = replace(big, speed=replace(big.speed, scheduling="priority"))
        one = config(0, 2 * size, limits=limits, threshold=threshold)
        ladder = config(4 * size, size, limits=limits, threshold=threshold)
        heavies = f"{2 * size} heavy"
        fleets = {
            f"{heavies}, round robin": (one, {"heavy": big}, round_robin),
            f"{heavies}, Tier Router": (one, {"heavy": big}, POLICIES["tier-router"]),
            f"{heavies}, vLLM priority": (one, {"heavy": queued}, POLICIES["tier-router"]),
            f"{4 * size} light + {size} heavy": (
                ladder, {"light": small, "heavy": big}, POLICIES["tier-router"]
            ),
        }  # fmt: skip
        rows: list[Row] = []
        for load, arrivals in loads.items():
            base: Result | None = None
            for name, (made, machines, pick) in fleets.items():
                with constant("_replica", pick()):
                    each = run(made, arrivals, fleet_of(made, machines), routers=size, seed=SEED)
                base = base or each
                times = base.percentile("ttft", 99, "simple") / each.percentile(
                    "ttft", 99, "simple"
                )
                rows.append([
                    load, name,
                    *(ms(each.percentile("ttft", share, "simple")) for share in (50, 95, 99)),
                    *(ms(each.percentile("ttft", share, "hard")) for share in (50, 99)),
                    *(each.mean("latency", kind) for kind in ("simple", "hard", None)),
                    f"{times:.1f} x", f"{each.mean('latency') / base.mean('latency') - 1:+.0%}",
                ])  # fmt: skip
        table(
            title,
            [label, "fleet", "simple TTFT p50 ms", "p95", "p99", "hard TTFT p50 ms", "p99",
             "simple mean latency s", "hard", "all", "simple TTFT p99 lower by", "mean latency"],
            rows,
        )  # fmt: skip

    # ---- many processes

    def sidecars(self) -> None:
        """What 1, 10 and 1,000 processes know of each other, and what that costs."""
        made, fleet = monolith(8)
        begin, span = 150.0, self.seconds(60)
        arrivals = [
            replace(row, at=row.at - begin)
            for row in conversations(6.0, begin + span, TALK, SEED)
            if row.at >= begin
        ]
        rows: list[Row] = []
        for policy in ("tier-router", "bands of 0.125"):
            for routers, tick in ((1, TICK), (10, TICK), (10, 1.0), (10, 1e9), (1_000, TICK),
                                  (1_000, 1.0), (1_000, 5.0), (1_000, 1e9)):  # fmt: skip
                with constant("_replica", (POLICIES | OTHERS)[policy]()):
                    result = run(made, arrivals, fleet, routers=routers, seed=SEED, tick=tick)
                sizes = result.report_bytes
                rows.append([
                    policy, routers, "never" if tick > 1e6 else tick, mean_open(result),
                    result.open(50), result.open(99), result.open(100),
                    percent(result.stickiness), ms(result.percentile("ttft", 99)),
                    f"{np.mean(sizes):.0f}" if sizes else "-",
                ])  # fmt: skip
        table(
            f"Routers that share 8 replicas, {len(arrivals) / span:.0f} requests/s, one minute",
            ["replica by", "routers", "report each s", "mean open", "p50", "p99", "max",
             "same replica", "TTFT p99 ms", "mean report bytes"],
            rows,
        )  # fmt: skip
        self._traffic()

    def _traffic(self) -> None:
        """Redis traffic, by the commands of `RedisExchange` and the size of real reports."""
        rows = []
        for processes, replicas in ((10, 8), (100, 8), (1_000, 8), (10, 100), (1_000, 100)):
            busy = Report(
                {f"heavy-{number}": 3 for number in range(replicas)},
                {f"heavy-{number}": 4096.0 for number in range(replicas)},
                {},
            )
            size = len(msgspec.json.encode(busy))
            # in a crowd one reads all and leaves the sum, the others read that
            crowd = processes > MANY
            read = 1 if crowd else processes - 1
            sent = size + 3 * PEER_NAME + (0 if crowd else read * PEER_NAME)
            got = (2 if crowd else processes) * PEER_NAME + read * size
            all_read = (processes - 1) * (2 * PEER_NAME + size) if crowd else 0
            ledger = Ledger(monolith(replicas)[0])
            raw = [msgspec.json.encode(busy)] * read
            began = time.process_time()
            repeats = 3
            for _ in range(repeats):
                ledger.heard([msgspec.json.decode(each, type=Report) for each in raw], 0.0)
            spent = (time.process_time() - began) / repeats
            rows.append([
                processes, replicas, size, 2 / TICK, f"{(sent + got) / TICK / 1e6:.2f}",
                f"{(processes * (sent + got) + all_read) / TICK / 1e6:,.1f}", 2 * processes / TICK,
                f"{spent * 1000:.2f}", percent(spent / TICK),
            ])  # fmt: skip
        table(
            "Traffic of the exchange where every process has every replica open: two round trips a "
            f"tick; up to {MANY} processes read each other's reports, of more one sums up for all",
            ["processes", "replicas", "bytes of a report", "round trips/s each", "MB/s each",
             "MB/s at Redis", "round trips/s at Redis", "CPU ms a tick each", "of a core each"],
            rows,
        )  # fmt: skip


def _between(result: Result, begin: float, end: float) -> float:
    """TTFT p95 of the requests of a stretch of time."""
    found = [
        each.ttft for each in result.records if begin <= each.at < end and each.ttft is not None
    ]
    return float(np.percentile(found, 95)) if found else float("nan")


NAMES = (
    "headline",
    "spread",
    "seeds",
    "mooncake",
    "step",
    "price",
    "fade",
    "spill",
    "recovery",
    "sidecars",
)


def main() -> None:
    """Runs what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="an eighth of the requests")
    parser.add_argument("--only", default=",".join(NAMES), help="some of: %(default)s")
    options = parser.parse_args()
    wanted = options.only.split(",")
    for name in wanted:
        if name not in NAMES:
            parser.error(f"no experiment `{name}`; there are {', '.join(NAMES)}")
    data = os.environ.get("TIER_ROUTER_DATA")
    experiments = Experiments(options.quick, Path(data) if data else None)
    for name in wanted:
        began = time.process_time()
        print(f"\n## {name}")
        getattr(experiments, name)()
        print(f"\n({time.process_time() - began:.0f} s of CPU)", flush=True)


if __name__ == "__main__":
    main()
