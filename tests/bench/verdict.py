"""Prints what a decision costs: view, verdict and decide, by the length of the request.

    python tests/bench/verdict.py [--requests 400] [--cpu]

Each request is a new text: words drawn as they are frequent in the encoder's vocabulary, two in a
hundred invented, so that no cache of turns and no table of known words hides the cost.  Times are
wall clock of one thread; on a busy machine the p99 is the machine's, and `--cpu` shows CPU time.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

from tier_router import encoder
from tier_router.classify import talk
from tier_router.classify.features import glance
from tier_router.classify.native import NativeClassifier
from tier_router.config import parse
from tier_router.decide import decide
from tier_router.router import TierRouter

LENGTHS = (10, 100, 2_000, 50_000)
CLOCK = time.perf_counter_ns
WARM = 150
"""Requests before the clock starts: the table of frequent words fills."""
PLAIN = """
tiers:
  - {name: light, model: small, replicas: [sim://light-0, sim://light-1], context: 200000}
  - {name: heavy, model: large, replicas: [sim://heavy-0], context: 200000}
"""


def words_of(pick: random.Random) -> Iterator[str]:
    """Endless words, frequent ones often (Zipf over the ranks of the vocabulary)."""
    vocabulary = [word for word in encoder.load().vocabulary() if word.isalpha() and len(word) > 1]
    weights = [1 / (rank + 3) for rank in range(len(vocabulary))]
    while True:
        for word in pick.choices(vocabulary, weights, k=5_000):
            roll = pick.random()
            if roll < 0.02:
                yield "".join(pick.choices("abcdefghilmnoprstu", k=pick.randrange(4, 11)))
            elif roll < 0.12:
                yield word + pick.choice(",.?:;")
            else:
                yield word


def with_intents(pick: random.Random, count: int = 10, each: int = 10) -> str:
    """`PLAIN` with `count` intents of `each` utterances."""
    words = words_of(pick)
    lines = ["intents:"]
    for index in range(count):
        lines += [f"  intent{index}:", "    tier: light", "    utterances:"]
        for _ in range(each):
            text = " ".join(next(words) for _ in range(6)).replace(":", "")
            lines.append(f'      - "{text}"')
    return PLAIN + "\n".join(lines) + "\n"


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """(microseconds, what it returned)."""
    start = CLOCK()
    out = call()
    return (CLOCK() - start) / 1e3, out


def measure(router: TierRouter, texts: list[str], warm: int) -> dict[str, list[float]]:
    """The times of each part, by name, in microseconds."""
    classifier = NativeClassifier()
    shared, model = encoder.load(), classifier.model
    out: dict[str, list[float]] = {}
    for index, text in enumerate(texts):
        body = {"model": "auto", "messages": [{"role": "user", "content": text}]}
        view_us, view = timed(lambda body=body: router.view(body))
        judge_us, judged = timed(lambda view=view: router.judge(view))
        decide_us, _ = timed(
            lambda view=view, judged=judged: decide(
                view, judged, router.config, router.thresholds, {}
            )
        )
        parts = {"total": view_us + judge_us + decide_us, "view": view_us, "verdict": judge_us}
        parts["decide"] = decide_us
        # the parts of a verdict, once more by themselves (words are known by now)
        parts["features"], seen = timed(lambda view=view: glance(view.turn))
        parts["vector"], encoding = timed(lambda seen=seen: shared.of_words(seen.words))
        row_us, row = timed(lambda seen=seen, encoding=encoding: model.row(seen, encoding))
        trees_us, _ = timed(lambda row=row: model.of_row(row))
        parts["trees"] = row_us + trees_us
        parts["small talk"], _ = timed(
            lambda view=view: (talk.courtesy(view.turn.text), talk.continues(view.turn.text))
        )
        if index >= warm:
            for name, value in parts.items():
                out.setdefault(name, []).append(value)
    return out


def quantile(values: list[float], share: float) -> float:
    """The value that `share` of `values` lie below."""
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--requests", type=int, default=400, help="measured requests a length")
    parser.add_argument("--cpu", action="store_true", help="CPU time of the thread")
    given = parser.parse_args()
    global CLOCK
    if given.cpu:
        CLOCK = time.thread_time_ns
    pick = random.Random(1)
    words = words_of(pick)
    parts = ("total", "view", "verdict", "decide", "features", "vector", "trees", "small talk")
    table = Table(title=f"microseconds a request ({'CPU' if given.cpu else 'wall'}), p50 / p99")
    for name in ("words", "intents", *parts):
        table.add_column(name, justify="right")
    for label, text in (("none", PLAIN), ("10 x 10", with_intents(pick))):
        router = TierRouter(parse(text))
        measure(router, [" ".join(next(words) for _ in range(60)) for _ in range(2_000)], 0)
        for length in LENGTHS:
            count = given.requests if length < 10_000 else min(given.requests, 200)
            texts = [" ".join(next(words) for _ in range(length)) for _ in range(count + WARM)]
            gc.collect()
            gc.freeze()
            found = measure(router, texts, WARM)
            table.add_row(
                f"{length:,}",
                label,
                *(f"{quantile(found[p], 0.5):.0f} / {quantile(found[p], 0.99):.0f}" for p in parts),
            )
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
