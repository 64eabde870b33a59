"""A report in the terminal, and the tables that `simulate` and `diff` share with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tier_router.config import Config
from tier_router.evidence.figures import Report, Side
from tier_router.evidence.wilson import Share

INTENTS = 20
"""Intents that are listed."""

PERCENTS = ("p50", "p95", "p99")


def show(report: Report, config: Config) -> None:
    """Prints a report."""
    console = Console(highlight=False)
    log, top = report.log, report.tiers[-1]
    console.print(
        f"{escape(log['name'])}: {log['lines']:,} lines ({log['format']}), "
        f"{log['judged']:,} requests judged"
    )
    for problem in log["problems"]:
        console.print(f"  line {problem['line']}: {escape(problem['message'][:200])}")
    if log["unreadable"]:
        console.print(f"  {log['unreadable']:,} lines could not be read")
    for code, count in report.refused.items():
        console.print(f"  {count:,} would be refused: {code}")
    console.print()
    console.print(f"[bold]{interval(report.largest)}[/bold] of the requests need `{top}`")
    console.print()
    _intents(console, report)
    _sides(console, report)
    if report.queues is not None:
        queued = report.queues
        console.print(
            f"the first {queued['requests']:,} requests ({queued['seconds']:,.0f} s) through queues"
        )
        console.print(queues(queued["before"], queued["after"]))
    if report.pruning is not None:
        console.print(pruning(report.pruning))
        console.print()
    if report.boundary:
        _boundary(console, report)
    for each in report.basis:
        console.print(f"- {each}", style="dim")


def _intents(console: Console, report: Report) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("intent")
    for name in ("requests", f"need {report.tiers[-1]}"):
        table.add_column(name, justify="right")
    for name, found in list(report.intents.items())[:INTENTS]:
        table.add_row(escape(name) or "(none)", f"{found.total:,}", interval(found))
    console.print(table)
    if len(report.intents) > INTENTS:
        console.print(f"and {len(report.intents) - INTENTS} more intents (--json lists all)")


def _sides(console: Console, report: Report) -> None:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    for name in ("requests", "GPU-hours", "cost", "TTFT p50", "p95", "latency p50", "p95"):
        table.add_column(name, justify="right")
    for side in report.by_tier:
        table.add_row(f"to {side.tier}", *_side(side))
    table.add_section()
    table.add_row("routed", *_side(report.routed), style="bold")
    table.add_row(f"all to {report.all_largest.tier}", *_side(report.all_largest))
    console.print(table)


def _side(side: Side) -> list[str]:
    times = (side.ttft.p50, side.ttft.p95, side.latency.p50, side.latency.p95)
    return [
        f"{side.requests.value:.1%}",
        f"{side.gpu_hours:,.4g}",
        money(side.cost),
        *map(seconds, times),
    ]


def _boundary(console: Console, report: Report) -> None:
    table = Table(box=box.SIMPLE_HEAD, title="nearest to the line", title_justify="left")
    table.add_column("difficulty", justify="right")
    for name in ("goes to", "line", "request"):
        table.add_column(name)
    for near in report.boundary:
        said = near.text if near.text is not None else near.id or ""
        table.add_row(f"{near.difficulty:.3f}", near.tier, str(near.line),
                      escape(" ".join(said.split())))  # fmt: skip
    console.print(table)


def queues(before: Mapping[str, Any], after: Mapping[str, Any]) -> Table:
    """Times of each class before and after."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("class")
    table.add_column("requests", justify="right")
    table.add_column("", no_wrap=True)
    for name in ("TTFT p50", "p95", "p99", "latency p50", "p95", "p99"):
        table.add_column(name, justify="right")
    for kind, row in before["classes"].items():
        for word, side in (("before", before), ("after", after)):
            own = side["classes"].get(kind, row)
            first = word == "before"
            table.add_row(
                escape(kind) if first else "",
                f"{row['requests']:,}" if first else "",
                word,
                *(seconds(own["ttft"][p]) for p in PERCENTS),
                *(seconds(own["latency"][p]) for p in PERCENTS),
            )
        table.add_section()
    table.caption = "\n".join(
        f"{word}: {side['about']}; {side['lost']:,} requests shed or lost"
        for word, side in (("before", before), ("after", after))
    )
    table.caption_justify = "left"
    return table


def pruning(found: Mapping[str, Any]) -> str:
    """What pruning would take out, in a line."""
    share = found["removed"] / max(found["tokens"], 1)
    steps = ", ".join(f"{name} {count:,}" for name, count in found["steps"].items())
    told = f" ({steps} tokens)" if steps else ""
    return f"pruning would remove {share:.1%} of {found['requests']:,} requests' prompts{told}"


def interval(found: Share) -> str:
    """A share with its interval."""
    if not found.total:
        return "no request"
    return f"{found.value:.1%} ({found.low:.1%} to {found.high:.1%})"


def seconds(value: float | None) -> str:
    """A time with three digits at most."""
    if value is None:
        return "-"
    if value < 1:
        return f"{value * 1000:.0f} ms"
    return f"{value:.3g} s" if value < 100 else f"{value:,.0f} s"


def money(value: float | None) -> str:
    """A sum in the currency of the configuration."""
    return "-" if value is None else f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"
