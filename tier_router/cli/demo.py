"""`tier-router demo`: the same load, through one big model and through tiers, on equal GPUs.

Everything is real but the GPUs: the simulated replicas queue and batch as vLLM does, over real
sockets, and the requests go through the sidecar, which classifies each of them.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Sequence

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from tier_router.cli.load import Ask, Sample, poisson, send
from tier_router.config import Config, parse
from tier_router_proxy.sidecar import Sidecar

HEAVY = "slots=8&step=20ms&prefill=5000"
LIGHT = "slots=8&step=7ms&prefill=20000"
"""A 70B-class model on four GPUs and an 8B-class one on one: times of the order that vLLM shows on
current data centre GPUs.  Eight sequences at once keep the queues short enough for a demo."""

BEFORE = f"""
tiers:
  - name: heavy
    model: big-70b
    replicas: ["sim://big-0?{HEAVY}", "sim://big-1?{HEAVY}"]
server: {{port: 0}}
"""
AFTER = f"""
tiers:
  - name: light
    model: small-8b
    replicas: ["sim://small-0?{LIGHT}", "sim://small-1?{LIGHT}", "sim://small-2?{LIGHT}",
               "sim://small-3?{LIGHT}"]
    limits: {{requests: 8}}
  - name: heavy
    model: big-70b
    replicas: ["sim://big-0?{HEAVY}"]
    limits: {{requests: 8}}
server: {{port: 0}}
"""
GPUS = 8

SIMPLE = (
    "What is my balance?",
    "What time do you open on Sunday?",
    "How do I reset my password?",
    "Translate 'see you tomorrow' into Italian.",
    "What's the capital of Portugal?",
    "Hi, can you help me?",
    "When is my next payment due?",
    "Rename the variable x to total in: x = a + b",
    "Remind me to call the dentist at nine.",
    "What does HTTP 404 mean?",
    "Where can I see my last invoice?",
    "Please fix the spelling: I recieved teh parcel yesterday.",
)
_CONTEXT = " ".join(
    f"Section {n}: the service level of component {n} is reviewed each quarter, and any deviation "
    f"from target {n} is to be reported with its cause, its cost and the proposed remedy."
    for n in range(1, 61)
)
HARD = tuple(
    f"{task}\n\n{_CONTEXT}"
    for task in (
        "Prove that the product of two consecutive integers is never a perfect square unless one "
        "of them is zero, then derive a bound for three consecutive integers.",
        "Design a fault-tolerant distributed scheduler with leader election and exactly-once "
        "execution; analyse its failure modes and prove that no job is lost.",
        "Derive the gradient of the softmax cross-entropy loss and analyse its numerical "
        "stability, comparing three implementations step by step.",
        "A patient with renal impairment takes methotrexate and now has pancytopenia. Work out "
        "the differential diagnosis and justify the order of treatment.",
    )
)
RATES: dict[str, tuple[float, Sequence[str], int]] = {
    "simple": (15.0, SIMPLE, 40),
    "hard": (1.6, HARD, 120),
}
"""Requests a second: together a little more than two big replicas carry."""

SEED = 7


def run(seconds: float, as_json: bool) -> None:
    """Runs both loads and prints the table; nothing is left running."""
    console = Console(highlight=False)
    quiet = as_json or not console.is_terminal
    say: Callable[[str], None] = (lambda _: None) if quiet else console.print
    asks = poisson(RATES, seconds, SEED)
    before, after = asyncio.run(_both(asks, say))
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(_figures(before, after)), indent=2).decode())
    else:
        _show(console, asks, before, after)


async def _both(
    asks: Sequence[Ask], say: Callable[[str], None]
) -> tuple[list[Sample], list[Sample]]:
    say(f"{len(asks)} requests to two big replicas ...")
    before = await _through(parse(BEFORE, name="demo"), asks)
    say(f"{len(asks)} requests to four small replicas and one big one ...")
    return before, await _through(parse(AFTER, name="demo"), asks)


async def _through(config: Config, asks: Sequence[Ask]) -> list[Sample]:
    async with Sidecar(config) as sidecar:
        return await send(sidecar.url, asks)


def _figures(before: Sequence[Sample], after: Sequence[Sample]) -> dict[str, object]:
    """The table as data; times in milliseconds."""
    return {
        "gpus": GPUS,
        "classes": {
            kind: {
                name: {
                    f"{what}_p{share}": _ms(_quantile(samples, kind, what, share))
                    for what in ("ttft", "latency")
                    for share in (50, 95)
                }
                for name, samples in (("before", before), ("after", after))
            }
            for kind in RATES
        },
        "heavy_share": _share(after, "heavy"),
        "failed": sum(sample.error is not None for sample in (*before, *after)),
    }


def _show(
    console: Console, asks: Sequence[Ask], before: Sequence[Sample], after: Sequence[Sample]
) -> None:
    table = Table(
        title=f"{len(asks)} requests, {GPUS} simulated GPUs each time", box=box.SIMPLE_HEAD
    )
    table.add_column("requests")
    for what in ("TTFT p50", "TTFT p95", "latency p50", "latency p95"):
        table.add_column(f"{what}, ms\none model -> tiers", justify="right")
    for kind in RATES:
        cells = [
            f"{_told(_quantile(before, kind, what, share))} -> "
            f"[bold]{_told(_quantile(after, kind, what, share))}[/bold]"
            for what in ("ttft", "latency")
            for share in (50, 95)
        ]
        count = sum(ask.kind == kind for ask in asks)
        table.add_row(f"{kind} ({count})", *cells)
    console.print(table)
    console.print(
        "one model: two replicas of the big model.  tiers: four of the small one and one of the "
        "big one."
    )
    console.print(
        f"{_share(after, 'heavy'):.0%} of the requests needed the big model; "
        f"{_right(after):.0%} of all went where their class belongs."
    )
    failed = sum(sample.error is not None for sample in (*before, *after))
    console.print(f"{failed} requests failed." if failed else "No request failed.")


def _quantile(samples: Sequence[Sample], kind: str, what: str, share: int) -> float | None:
    """The `share`-th percentile, in seconds."""
    found: list[float] = [
        value
        for sample in samples
        if sample.kind == kind and (value := getattr(sample, what)) is not None
    ]
    if len(found) < 2:
        return found[0] if found else None
    return statistics.quantiles(found, n=100, method="inclusive")[share - 1]


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 1)


def _told(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:,.0f}"


def _share(samples: Sequence[Sample], tier: str) -> float:
    return sum(sample.tier == tier for sample in samples) / max(len(samples), 1)


def _right(samples: Sequence[Sample]) -> float:
    """The share that went to its class's tier."""
    belongs = {"simple": "light", "hard": "heavy"}
    return sum(sample.tier == belongs[sample.kind] for sample in samples) / max(len(samples), 1)
