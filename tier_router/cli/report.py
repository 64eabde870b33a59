"""`tier-router report`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec

from tier_router.cli.show_report import show
from tier_router.config import Config, load
from tier_router.decisionlog import schema
from tier_router.errors import RequestError
from tier_router.evidence import Engine, Format, Source, collected, opened, report_of
from tier_router.evidence.page import page
from tier_router.evidence.replay import after, arrivals_of, before, played

QUEUED = 5_000
"""Requests from the log's start that are played through queues: about three seconds' work."""


def run(
    path: Path, log: Path, as_json: bool, html: Path | None, engine: Engine,
    format: Format | None, judge: int,
) -> None:  # fmt: skip
    """Prints the report on `log`, and writes the page; raises TierRouterError."""
    config = load(path)
    with opened(log, format) as source:
        with collected(source, [config], engine=engine, judge=judge, pruning=True) as found:
            report = report_of(found, config)
        report = replace(report, queues=_queues(source, config, report.thresholds))
    if html is not None:
        html.write_text(page(report), encoding="utf-8")
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(asdict(report)), indent=2).decode())
    else:
        show(report, config)
    if html is not None:
        print(f"wrote {html}", file=sys.stderr)


def show_schema() -> None:
    """Prints the JSON schema of a line of the decision log."""
    print(json.dumps(schema(), indent=2))


def _queues(source: Source, config: Config, thresholds: Sequence[float]) -> dict[str, Any] | None:
    """Queues before and after, where the log says when requests came."""
    if config.rungs < 2:
        return None
    with collected(source, [config], first=QUEUED, processes=1) as found:
        try:
            arrivals = arrivals_of(found, thresholds, None, QUEUED)
        except RequestError:  # it has no times
            return None
    return {
        "requests": len(arrivals),
        "seconds": arrivals[-1].at,
        "before": played(before(config), arrivals),
        "after": played(after(config, thresholds), arrivals),
    }
