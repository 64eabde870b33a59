"""What a fleet would have done: queues of tiers and replicas under given arrivals, in its own time.

    result = run(config, read_trace("trace.csv", kind="simple"))
    result.percentile("ttft", 99, kind="simple")

The routing is the product's own: `TierRouter` with its ledger.  Only the replicas, the clients and
the classifier, which is told each request's difficulty, are models.  Needs SimPy:
`pip install 'tier-router[simulate]'`.
"""

from __future__ import annotations

from tier_router.simulate.arrivals import (
    Arrival,
    Lengths,
    bursts,
    conversations,
    faster,
    merge,
    poisson,
    read_trace,
)
from tier_router.simulate.machine import HEAVY, LIGHT, Machine, fleet_of
from tier_router.simulate.result import Ended, Record, Result
from tier_router.simulate.world import Fault, run

__all__ = [
    "HEAVY",
    "LIGHT",
    "Arrival",
    "Ended",
    "Fault",
    "Lengths",
    "Machine",
    "Record",
    "Result",
    "bursts",
    "conversations",
    "faster",
    "fleet_of",
    "merge",
    "poisson",
    "read_trace",
    "run",
]
