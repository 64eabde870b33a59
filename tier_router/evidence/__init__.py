"""Evidence from a team's own logs, offline and without any model: what share of requests needs the
largest model, what tiers would save, what a change of the configuration would move.

    with opened(Path("log.jsonl")) as source, collected(source, [config]) as found:
        report = report_of(found, config)

Needs Polars and SimPy: `pip install 'tier-router[report]'`.
"""

from __future__ import annotations

from tier_router.evidence.collect import Collected, Source, collected, opened
from tier_router.evidence.diff import Difference, difference_of
from tier_router.evidence.engines import Engine
from tier_router.evidence.figures import Report, report_of
from tier_router.evidence.formats import Format

__all__ = [
    "Collected",
    "Difference",
    "Engine",
    "Format",
    "Report",
    "Source",
    "collected",
    "difference_of",
    "opened",
    "report_of",
]
