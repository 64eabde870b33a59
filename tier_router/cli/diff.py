"""`tier-router diff`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tier_router.cli.show_report import interval, money, seconds
from tier_router.config import load
from tier_router.errors import RequestError
from tier_router.evidence import Difference, Engine, Format, collected, difference_of, opened
from tier_router.evidence.diff import Change


def run(
    old: Path, new: Path, log: Path, max_moved: str | None, engine: Engine,
    format: Format | None, judge: int, as_json: bool,
) -> int:  # fmt: skip
    """Prints what moves; returns 1 where that is more than `max_moved`."""
    limit = None if max_moved is None else share_of(max_moved)
    configs = load(old), load(new)
    with (
        opened(log, format) as source,
        collected(source, configs, engine=engine, judge=judge, all_texts=True) as found,
    ):
        difference = difference_of(found, *configs)
        about = {
            "lines": found.lines,
            "unreadable": found.failed,
            "problems": [{"line": line, "message": said} for line, said in found.problems],
        }
    over = limit is not None and difference.moved.value > limit
    if as_json:
        told: dict[str, Any] = {**about, **asdict(difference), "max_moved": limit, "over": over}
        print(msgspec.json.format(msgspec.json.encode(told), indent=2).decode())
    else:
        _show(difference, about)
        if over:
            print(f"more than {limit:.2%} of the requests move")
    return int(over)


def share_of(text: str) -> float:
    """The share that `2%` or `0.02` says; raises RequestError."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise RequestError(f"--max-moved {text}: a share is like 2% or 0.02")
    return value


def _show(difference: Difference, about: dict[str, Any]) -> None:
    console = Console(highlight=False)
    for problem in about["problems"]:
        console.print(f"line {problem['line']}: {escape(problem['message'][:200])}")
    if about["unreadable"]:
        console.print(f"{about['unreadable']:,} of {about['lines']:,} lines could not be read")
    moved = difference.moved
    console.print(f"{moved.count:,} of {moved.total:,} requests move: {interval(moved)}")
    if difference.moves:
        console.print(_moves(difference))
        console.print(_examples(difference))
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("", "old", "new"):
        table.add_column(name, justify="right" if name else "left")
    for name, change, shown in (
        ("GPU-hours", difference.gpu_hours, _hours),
        ("cost", difference.cost, money),
        ("mean TTFT", difference.ttft, seconds),
        ("mean latency", difference.latency, seconds),
    ):
        table.add_row(name, *_both(change, shown))
    table.caption = "analytic, without queues"
    table.caption_justify = "left"
    console.print(table)
    if not difference.judged_again:
        console.print("a log of decisions: rules and utterances that were changed are not tried")


def _both(change: Change, shown: Any) -> tuple[str, str]:
    return shown(change.old), shown(change.new)


def _hours(value: float | None) -> str:
    return "-" if value is None else f"{value:,.3f}"


def _moves(difference: Difference) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("requests", justify="right")
    for name in ("from", "to", "because", "and now"):
        table.add_column(name)
    for move in difference.moves[:20]:
        table.add_row(f"{move.requests:,}", move.source, move.target, move.reason, move.reason_new)
    return table


def _examples(difference: Difference) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("line", justify="right")
    for name in ("from", "to", "request"):
        table.add_column(name)
    for each in difference.examples[:10]:
        said = each.text if each.text is not None else each.id or ""
        table.add_row(str(each.line), each.source, each.target, escape(" ".join(said.split())))
    return table
