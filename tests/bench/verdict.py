"""Prints what a decision costs: view, verdict and decide, by the length of the request.

    python tests/bench/verdict.py [--requests 400] [--cpu]

Each request is a new text: words drawn as they are frequent in the encoder's vocabulary, two in a
hundred invented, so that no cache of turns and no table of known words hides the cost; "vector" is
with a text's new words, "vector again" without.  Times are wall clock of one thread; on a busy
machine the p99 is the machine's, and `--cpu` shows CPU time.
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
    """The times by name, in microseconds: of every other text whole, of the rest in parts.

    A text is read once, so its new words cost where they are first met.
    """
    classifier = NativeClassifier()
    out: dict[str, list[float]] = {}
    for index, text in enumerate(texts):
        body = {"model": "auto", "messages": [{"role": "user", "content": text}]}
        times = whole(router, body) if index % 2 else parts(router, classifier, body)
        if index >= warm:
            for name, value in times.items():
                out.setdefault(name, []).append(value)
    return out


def whole(router: TierRouter, body: dict[str, Any]) -> dict[str, float]:
    """A decision as doors make it."""
    view_us, view = timed(lambda: router.view(body))
    judge_us, judged = timed(lambda: router.judge(view))
    decide_us, _ = timed(lambda: decide(view, judged, router.config, router.thresholds, {}))
    total = view_us + judge_us + decide_us
    return {"total": total, "view": view_us, "verdict": judge_us, "decide": decide_us}


def parts(
    router: TierRouter, classifier: NativeClassifier, body: dict[str, Any]
) -> dict[str, float]:
    """What a verdict is made of, without intents."""
    model, turn = classifier.model, router.view(body).turn
    out: dict[str, float] = {}
    out["features"], seen = timed(lambda: glance(turn))
    out["vector"], encoding = timed(lambda: encoder.load().of_words(seen.words))
    out["row"], row = timed(lambda: model.row(seen, encoding))
    out["trees"], _ = timed(lambda: model.of_row(row))
    out["small talk"], _ = timed(lambda: talk.kind_of(turn.text))
    out["vector again"], _ = timed(lambda: encoder.load().of_words(seen.words))
    return out


def quantile(values: list[float], share: float) -> float:
    """The value that `share` of `values` lie below."""
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--requests",
        type=int,
        default=400,
        help="measured requests a length, half of them in parts",
    )
    parser.add_argument("--cpu", action="store_true", help="CPU time of the thread")
    given = parser.parse_args()
    global CLOCK
    if given.cpu:
        CLOCK = time.thread_time_ns
    pick = random.Random(1)
    words = words_of(pick)
    columns = ("total", "view", "verdict", "decide", "features", "vector", "vector again", "row")
    columns += ("trees", "small talk")
    table = Table(title=f"microseconds a request ({'CPU' if given.cpu else 'wall'}), p50 / p99")
    for name in ("words", "intents", *columns):
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
                *(
                    f"{quantile(found[c], 0.5):.0f} / {quantile(found[c], 0.99):.0f}"
                    for c in columns
                ),
            )
    Console(width=180).print(table)


if __name__ == "__main__":
    main()
