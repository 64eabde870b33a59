"""`tier-router score`."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from tier_router.cli.source import body_of
from tier_router.config import load
from tier_router.errors import TierRouterError
from tier_router.explain import record
from tier_router.router import TierRouter

STEP = 500
"""Lines between two moves of the progress bar."""


def run(path: Path, log: Path) -> int:
    """Writes one decision a line; returns the exit code: 1 where a line could not be read."""
    router = TierRouter(load(path))
    if str(log) == "-":
        counts = _score(router, sys.stdin.buffer, None)
    else:
        with log.open("rb") as lines, _bar() as progress:
            task = progress.add_task(log.name, total=log.stat().st_size)
            counts = _score(router, lines, lambda done: progress.update(task, completed=done))
    failed = counts.pop("error", 0)
    total = sum(counts.values())
    shares = ", ".join(
        f"{name} {counts[name]} ({counts[name] / total:.1%})"
        for name in router.config.ladder
        if counts[name]
    )
    told = f"{total} decided: {shares}" if total else "nothing was decided"
    print(f"{told}; {failed} lines could not be read" if failed else told, file=sys.stderr)
    return 1 if failed else 0


def _bar() -> Progress:
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )


def _score(router: TierRouter, lines: BinaryIO, moved: Any) -> Counter[str]:
    counts: Counter[str] = Counter()
    out = sys.stdout.buffer
    done = 0
    for number, line in enumerate(lines, 1):
        done += len(line)
        if line.strip():
            told = _line(router, line)
            counts[told.get("tier", "error")] += 1
            out.write(msgspec.json.encode({"line": number, **told}) + b"\n")
        if moved is not None and number % STEP == 0:
            moved(done)
    out.flush()
    return counts


def _line(router: TierRouter, line: bytes) -> dict[str, Any]:
    try:
        return record(router.decide(router.view(body_of(line))))
    except TierRouterError as error:
        return error.shape()
