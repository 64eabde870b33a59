"""`tier-router pruning-report`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, BinaryIO

import msgspec
from rich.console import Console
from rich.table import Table

from tier_router.config.pruning import LOSSY, Promote, Pruning, Step
from tier_router.errors import ConfigError, RequestError
from tier_router.prune.audit import Audits, Count, ready
from tier_router.prune.bound import enough, upper
from tier_router.prune.report import book_of
from tier_router.pruner.proofs import Proofs

SAVED = ("requests", "tokens_removed", "uncached_tokens_avoided", "escalations")
"""What is summed over a log."""


@dataclass(slots=True)
class Times:
    """Seconds to the first token, or of the whole answer where it was no stream, of the requests
    that pruning changed and of those that were held out of it."""

    pruned: list[float] = field(default_factory=list)
    held_out: list[float] = field(default_factory=list)

    def note(self, decision: Mapping[str, Any]) -> None:
        """Takes a decision record; what says no time counts for nothing."""
        inner, took = decision.get("pruning"), decision.get("ttft", decision.get("latency"))
        if isinstance(inner, dict) and isinstance(took, int | float):
            if inner.get("heldout") is True:
                self.held_out.append(took)
            elif inner.get("tokens_after") != inner.get("tokens_before"):
                self.pruned.append(took)

    def told(self) -> dict[str, Any]:
        """Numbers of requests and medians in seconds."""
        return {
            name: {"requests": len(times), "median": round(median(times), 4) if times else None}
            for name, times in (("pruned", self.pruned), ("held_out", self.held_out))
        }


def run(log: Path | None, pruning: Pruning, as_json: bool) -> None:
    """Prints what was saved by a log, and what the audits prove, by step, intent and tool: those
    in the file of proofs where there is one, else those in the log.

    Raises ConfigError where there is neither, RequestError for a line that is no record.
    """
    if log is None and pruning.proofs is None:
        raise ConfigError("without a LOG it is read, and it is not set", key="pruning.proofs")
    needed, book, saved, times = pruning.promote, Audits(), dict.fromkeys(SAVED, 0), Times()
    if str(log) == "-":
        book, saved = _read(sys.stdin.buffer, "-", times)
    elif log is not None:
        with log.open("rb") as lines:
            book, saved = _read(lines, str(log), times)
    if pruning.proofs is not None:
        book = Proofs(pruning).audits
    rows = list(_rows(book, needed))
    tools = {
        tier: enough(list(ranks.elements()), needed.max_loss, needed.confidence)
        for tier, ranks in sorted(book.ranks.items())
    }
    if as_json:
        told = {"steps": rows, "tool_list": tools, "saved": saved, "times": times.told()}
        print(msgspec.json.format(msgspec.json.encode(told), indent=2).decode())
    else:
        _show(rows, tools, book, saved, needed)
        if times.held_out and times.pruned:
            print(f"median time to the first token: {median(times.pruned):.3f} s pruned"
                  f" ({len(times.pruned)}), {median(times.held_out):.3f} s held out"
                  f" ({len(times.held_out)})")  # fmt: skip


def _read(lines: BinaryIO, name: str, times: Times) -> tuple[Audits, dict[str, int]]:
    """The audits of a log, and the sums of what its plans sent."""
    saved = dict.fromkeys(SAVED, 0)

    def records() -> Iterator[Mapping[str, Any]]:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            record = _record(line, f"{name}:{number}", times)
            saved["requests"] += 1
            saved["tokens_removed"] += _difference(record, "tokens_before", "tokens_after")
            saved["uncached_tokens_avoided"] += _difference(
                record, "uncached_before_est", "uncached_after_est"
            )
            saved["escalations"] += record.get("fits_by_pruning") is True
            yield record

    return book_of(records()), saved


def _record(line: bytes, where: str, times: Times) -> Mapping[str, Any]:
    """A pruning record, or the one in the `pruning` field of a decision record."""
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestError(f"{where}: not JSON: {error}") from None
    inner = value.get("pruning", value) if isinstance(value, dict) else None
    if isinstance(value, dict):
        times.note(value)
    if isinstance(inner, dict) and inner is value and "door" in inner:
        return {"tier": inner.get("tier", "")}  # a decision with nothing to prune
    if not isinstance(inner, dict) or "tier" not in inner:
        raise RequestError(f"{where}: no pruning record (an object with `tier` and `audit`)")
    return inner


def _difference(record: Mapping[str, Any], before: str, after: str) -> int:
    one, two = record.get(before), record.get(after)
    return one - two if isinstance(one, int) and isinstance(two, int) else 0


def _rows(book: Audits, needed: Promote) -> Iterator[dict[str, Any]]:
    """One row a step and tier, and below it one for each intent and tool of it."""
    for (step, tier), count in book.totals():
        yield _row(step, tier, "", "", count, needed)
        parts = [(group, part) for group, part in book.groups() if group[:2] == (step, tier)]
        for (_, _, intent, tool), part in parts:
            if intent or tool:
                yield _row(step, tier, intent, tool, part, needed)


def _row(
    step: str, tier: str, intent: str, tool: str, count: Count, needed: Promote
) -> dict[str, Any]:
    return {
        "step": step,
        "tier": tier,
        "intent": intent or None,
        "tool": tool or None,
        "audits": count.audits,
        "lost": count.lost,
        "bound": round(upper(count.lost, count.audits, needed.confidence), 5),
        "tokens": count.saved,
        "ready": ready(count, needed),
    }


def _show(
    rows: list[dict[str, Any]], tools: Mapping[str, int | None], book: Audits,
    saved: Mapping[str, int], needed: Promote,
) -> None:  # fmt: skip
    console = Console(highlight=False)
    console.print(
        f"{saved['requests']} requests: {saved['tokens_removed']} prompt tokens removed,"
        f" {saved['uncached_tokens_avoided']} fewer to prefill,"
        f" {saved['escalations']} escalations avoided"
    )
    if rows:
        table = Table(box=None, pad_edge=False)
        for name in (
            "step",
            "tier",
            "intent",
            "tool",
            "audits",
            "lost",
            "loss up to",
            "tokens",
            "",
        ):
            table.add_column(name, justify="right" if name in ("audits", "lost") else "left")
        for row in rows:
            said = "ready" if row["ready"] else "not ready"
            lossless = row["step"] not in set(LOSSY)
            table.add_row(row["step"], row["tier"], row["intent"] or "", row["tool"] or "",
                          str(row["audits"]), str(row["lost"]), f"{row['bound']:.2%}",
                          str(row["tokens"]), "" if lossless else said)  # fmt: skip
        console.print(table)
    else:
        console.print("no audits: `pruning.mode: observe` gathers them")
    for tier, keep in tools.items():
        said = "not ready" if keep is None else f"`steps.{Step.TOOLS}.keep: {keep}` is enough"
        console.print(f"tool list of {tier}: {said} ({book.ranks[tier].total()} calls seen)")
    console.print(
        f"ready: {needed.need_audits} audits and a loss of at most {needed.max_loss:.1%}"
        f" with {needed.confidence:.0%} confidence"
    )
