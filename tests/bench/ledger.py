"""Prints what the books and the decision cost in a large fleet.

    python tests/bench/ledger.py [--requests 20000] [--cpu]

Four tiers of sixteen replicas, ten thousand open leases, readings of every replica coming in as
they do from a poller, and reports of 99 peers ten times a second.  A request is decided, opened,
has its first token, and an older one ends.  Wall clock of one thread, microseconds;
on a busy machine the p99 is the machine's, and `--cpu` shows CPU time.
"""

from __future__ import annotations

import argparse
import random
import time

from rich.console import Console
from rich.table import Table

from tier_router.classify import Verdict
from tier_router.config import parse
from tier_router.decide import Judged, decide
from tier_router.ledger import Ledger, Outcome, Report
from tier_router.pressure import Reading
from tier_router.view import view_of

CLOCK = time.perf_counter_ns
TIERS, REPLICAS, OPEN, PEERS = 4, 16, 10_000, 99
LINES = (0.2, 0.5, 0.8)


def main(requests: int) -> None:
    """Runs and prints."""
    replicas = [f"http://r{index}" for index in range(REPLICAS)]
    tiers = [
        {"name": f"t{tier}", "model": f"m{tier}", "replicas": replicas, "context": 32_000}
        | {"limits": {"requests": 2_000, "tokens": 1e9}}
        for tier in range(TIERS)
    ]
    config = parse(str({"tiers": tiers}))
    names = [replica.name or "" for tier in config.tiers for replica in tier.replicas]
    pick, ledger, now = random.Random(1), Ledger(config), 0.0
    leases = [ledger.opened(pick.choice(names), 500, now) for _ in range(OPEN)]
    peers = [Report(dict.fromkeys(names, 2), {}, {}) for _ in range(PEERS)]
    spent: dict[str, list[float]] = {
        "decide": [],
        "ledger": [],
        "peers' reports": [],
        "reading": [],
    }

    def timed(what: str, start: int) -> int:
        end = CLOCK()
        spent[what].append((end - start) / 1e3)
        return CLOCK()

    for number in range(requests):
        now += 0.001
        if number % 100 == 0:
            start = CLOCK()
            ledger.heard(peers, now)
            timed("peers' reports", start)
        reading = Reading(requests=pick.random() * 40, waiting=0.0, kv=pick.random())
        start = CLOCK()
        ledger.read(pick.choice(names), reading, now, 1.0)
        timed("reading", start)
        body = {"messages": [{"role": "user", "content": f"hello {number}"}]}
        view, judged = view_of(body), Judged(Verdict(pick.random()))
        start = CLOCK()
        decision = decide(view, judged, config, LINES, ledger.pressures(now))
        start = timed("decide", start)
        lease = ledger.opened(decision.replica, 500, now)
        ledger.first_token(lease, now)
        place = number % OPEN
        ledger.closed(leases[place], Outcome.DONE, now)
        timed("ledger", start)
        leases[place] = lease
    table = Table(title=f"{TIERS} tiers, {len(names)} replicas, {OPEN:,} open leases; us")
    for column in ("", "p50", "p99", "max"):
        table.add_column(column, justify="right" if column else "left")
    both = [sum(pair) for pair in zip(spent["decide"], spent["ledger"], strict=True)]
    for what, values in {"decide and ledger": both, **spent}.items():
        ranked = sorted(values)
        shown = (ranked[len(ranked) // 2], ranked[int(0.99 * len(ranked))], ranked[-1])
        table.add_row(what, *(f"{value:.1f}" for value in shown))
    Console().print(table)


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("--requests", type=int, default=20_000)
    options.add_argument("--cpu", action="store_true")
    given = options.parse_args()
    if given.cpu:
        CLOCK = time.thread_time_ns
    main(given.requests)
