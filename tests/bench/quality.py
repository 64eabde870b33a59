"""Prints the goals of routing quality beside what is measured here, with standard errors.

    TIER_ROUTER_DATA=... python tests/bench/quality.py [--only intents probes routing unseen]

Benchmarks that the shipped model was trained on are scored out of fold: five models, each without
the stems it judges.  MT-Bench and the intents' test splits are scored by the shipped model.  What
the data folder does not hold is named, not guessed.  Takes about five minutes on one core.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table as Printed

from tier_router.classify.features import core
from tier_router.classify.intents import Intents, Route
from tier_router.classify.intents import load as load_intents
from tier_router.classify.native import NativeClassifier
from tier_router.encoder import load as load_encoder
from tier_router.train import card, data, difficulty, intents, measure
from tier_router.train.card import Scored
from tier_router.turn import turn_of

sys.path.insert(0, str(Path(__file__).parents[1] / "probes"))
import probes

Floats = npt.NDArray[np.float64]
Triple = tuple[Floats, Floats, Floats]

ROUNDS = 300
"""Bootstrap draws of a standard error."""
FEW_DRAWS = 5
"""Draws of the utterances where only some are taken."""
PAIR_8B_70B = ("gsm8k", "Meta-Llama-3.1-8B-Instruct", "Meta-Llama-3.1-70B-Instruct")
ROUTELLM = {
    "mmlu": "RouteLLM: APGR 0.603, CPT50 35.4, CPT80 70.3",
    "gsm8k": "RouteLLM, 8B in the router: 0.622, 33.6, 63.3; without: 0.568",
    "mt_bench": "RouteLLM, 120k judged prompts: 0.802, 13.4, 31.3",
}


@dataclass(frozen=True, slots=True)
class Measured:
    """One row of the goals' table; `met` is None where it cannot be measured here."""

    what: str
    value: str
    goal: str
    beside: str
    met: bool | None


def row(
    what: str, value: float, error: float, goal: float, beside: str = "", *, below: bool = False
) -> Measured:
    """A row of one figure; `below` where less is better.  Met is met by the figure itself."""
    met = value <= goal if below else value >= goal
    return Measured(what, f"{value:.4g} ± {error:.2g}", f"{'≤' if below else '≥'} {goal:g}",
                    beside, met)  # fmt: skip


def share_error(share: float, count: int) -> float:
    """The standard error of a share in percent."""
    return 100 * (share * (1 - share) / max(count, 1)) ** 0.5


def bootstrap(figure: Callable[[npt.NDArray[np.intp]], float], count: int) -> float:
    """The standard error of `figure` over draws of `count` rows."""
    pick = np.random.default_rng(0)
    return float(np.std([figure(pick.integers(0, count, count)) for _ in range(ROUNDS)]))


# ---- intents


def intent_rows(root: Path) -> Iterator[Measured]:
    """CLINC150 and Banking77: routes of the train split, texts of the test split."""
    rows = data.intents(root)
    train, test = (intents.sets_of(rows, "clinc150", split) for split in ("train", "test"))
    strange = [r.turn.text for r in rows if r.subset.startswith("oos_test/")]
    for size, goal, best in ((100, 95, 93.7), (20, 91, 89.3), (5, 84, 80.1)):
        found = []
        for draw in range(1 if size == 100 else FEW_DRAWS):
            pick = random.Random(draw)
            routes = [
                Route(k, tuple(pick.sample(v, min(size, len(v))) if size < 100 else v))
                for k, v in train.items()
            ]
            right, inside, outside = asked(routes, test, strange if size == 100 else [])
            found.append(float(right.mean()))
            if size == 100:
                full = inside, outside
        mean = float(np.mean(found))
        yield row(f"CLINC150 accuracy, {size} utterances an intent, %", 100 * mean,
                  share_error(mean, 4_500), goal, f"words + static, logistic: {best}")  # fmt: skip
    yield from _strange_rows(*full)
    train, test = (intents.sets_of(rows, "banking77", split) for split in ("train", "test"))
    right, _, _ = asked([Route(k, tuple(v)) for k, v in train.items()], test, [])
    mean = float(right.mean())
    yield row("Banking77 accuracy, %", 100 * mean, share_error(mean, len(right)), 93,
              "words + static, logistic: 91.5; MiniLM, logistic: 92.95")  # fmt: skip


def _strange_rows(inside: Floats, outside: Floats) -> Iterator[Measured]:
    n, m = len(inside), len(outside)
    error = bootstrap(lambda at: intents.auroc(inside[at], outside[at % m]), n)
    yield row("CLINC150 out-of-scope AUROC", intents.auroc(inside, outside), error, 0.96,
              "words + static: 0.951; MiniLM, logistic: 0.913")  # fmt: skip
    caught = float((outside < np.quantile(inside, 0.05)).mean())
    yield row("CLINC150 out-of-scope recall at 5% of in-scope rejected, %", 100 * caught,
              share_error(caught, m), 80, "words + static: 78")  # fmt: skip


def asked(
    routes: Sequence[Route], test: dict[str, list[str]], strange: Sequence[str]
) -> tuple[npt.NDArray[np.bool_], Floats, Floats]:
    """(whether each text's route is right, its confidence, that of the strange texts)."""
    encoder = load_encoder()
    compiled = Intents([Route(r.name, r.utterances, 0.0) for r in routes], encoder, load_intents())
    inside = [(text, r.name) for r in routes for text in test[r.name]]
    found = [compiled.match(text, encoder.encode(core(text))) for text, _ in inside]
    out = [compiled.match(text, encoder.encode(core(text))) for text in strange]
    right = np.array([m.name == name for m, (_, name) in zip(found, inside, strict=True)])
    return right, np.array([m.confidence for m in found]), np.array([m.confidence for m in out])


# ---- difficulty


def pair_rows(name: str, triple: Triple, goals: dict[str, float], beside: str) -> list[Measured]:
    """APGR and CPT of one pair beside their goals."""
    score, light, heavy = triple
    out = []
    for figure, goal in goals.items():
        if figure == "APGR":
            call = measure.apgr
        else:
            level = int(figure.removeprefix("CPT")) / 100
            call = lambda s, lo, hi, level=level: measure.cpt(s, lo, hi, level)  # noqa: E731
        error = bootstrap(lambda at, call=call: call(score[at], light[at], heavy[at]), len(score))
        out.append(row(f"{name}: {figure}", call(score, light, heavy), error, goal, beside,
                       below=figure != "APGR"))  # fmt: skip
    return out


def service_mix(held_out: Scored) -> Triple:
    """Half CLINC150 utterances (both right), a quarter tasks, a quarter MMLU-Pro and GSM8K.

    As far as the folder allows: MATH level 5 and CRUX, which belong to the last quarter, are kept
    elsewhere; and each utterance is scored by a model without its intent, not without CLINC150.
    """
    pick = np.random.default_rng(4)
    easy = held_out.of("clinc150")
    size = len(easy) // 2
    tasks = np.stack(held_out.pair(*card.PAIRS[4][1:]), axis=1)
    tasks = tasks[pick.permutation(len(tasks))[:size]]
    hard = np.concatenate(
        [np.stack(held_out.pair(*pair), axis=1) for pair in (card.PAIRS[3][1:], PAIR_8B_70B)]
    )
    hard = hard[pick.permutation(len(hard))[:size]]
    simple = np.stack([easy[: 2 * size], np.ones(2 * size), np.ones(2 * size)], axis=1)
    score, light, heavy = np.concatenate([tasks, hard, simple]).T
    return score, light, heavy


def routing_rows(root: Path) -> Iterator[Measured]:
    """The trained-on benchmarks out of fold, MT-Bench, the mix, the shares at the threshold."""
    encoder = load_encoder()
    train, unseen = difficulty.gathered(root, None)
    table = difficulty.everything(root, train, encoder)
    raw = difficulty.out_of_fold(table)
    held_out = Scored(table.rows, raw)
    shipped = NativeClassifier().model
    tested = difficulty.table_of(unseen, encoder)
    never = Scored(tested.rows, difficulty.judged(shipped, tested))
    pair = card.PAIRS[0][1:]
    yield from pair_rows("MMLU", held_out.pair(*pair), {"APGR": 0.67, "CPT50": 28, "CPT80": 57},
                         ROUTELLM["mmlu"])  # fmt: skip
    yield from pair_rows("GSM8K", held_out.pair(*card.PAIRS[1][1:]), {"APGR": 0.63, "CPT50": 33},
                         ROUTELLM["gsm8k"])  # fmt: skip
    yield from pair_rows("MT-Bench, never trained on", never.pair(*card.MT_BENCH[1:]),
                         {"APGR": 0.80, "CPT80": 31}, ROUTELLM["mt_bench"])  # fmt: skip
    yield from pair_rows("service mix (C without MATH and CRUX)", service_mix(held_out),
                         {"APGR": 0.88, "CPT80": 24, "CPT95": 35},
                         "hand features: 0.846, 28.7, 40.2 on the whole C")  # fmt: skip
    yield from _share_rows(table, raw, never, shipped.threshold, root)
    yield from _unseen_rows(table, never)


def _share_rows(
    table: difficulty.Table, raw: Floats, never: Scored, threshold: float, root: Path
) -> Iterator[Measured]:
    for source in data.INTENT_SETS:
        score = never.of(source)
        share = float((score >= threshold).mean())
        yield row(f"{source} test split sent heavy by default, %", 100 * share,
                  share_error(share, len(score)), 1.0, below=True)  # fmt: skip
    line, held_out = difficulty.threshold_of(table.rows, raw), Scored(table.rows, raw)
    for source in ("mmlu_pro", "gsm8k"):
        score = held_out.of(source)
        share = float((score >= line).mean())
        yield row(f"{source} sent heavy by default, %", 100 * share,
                  share_error(share, len(score)), 95, "76-100")  # fmt: skip
    native = NativeClassifier()
    hard = [turn_of(line["prompt"]) for line in data.prompts(root, "bbh")]
    score = np.array([goes_up(native, turn) for turn in hard])
    share = float(score.mean())
    yield Measured("BIG-Bench Hard sent heavy by default, % (prompts only)",
                   f"{100 * share:.3g} ± {share_error(share, len(score)):.2g}", "≥ 95", "",
                   share >= 0.95)  # fmt: skip


def _unseen_rows(table: difficulty.Table, never: Scored) -> Iterator[Measured]:
    """Whole benchmarks left out, and everything that shares a stem with them."""
    for name, source, light, heavy in card.PAIRS:
        if name.startswith("GSM8K, Mixtral"):
            continue
        rows = [r for r in table.rows if r.source.startswith(source)]
        scored = Scored(rows, difficulty.without(table, source))
        yield _harm(f"{name}, never seen", scored.pair(source, light, heavy))
    yield _harm("MT-Bench, never seen", never.pair(*card.MT_BENCH[1:]))


def _harm(name: str, triple: Triple) -> Measured:
    found = measure.table_row(*triple, rounds=ROUNDS)
    return Measured(f"no harm: {name}, APGR", f"{found['apgr']:.3f} ± {found['se']:.3f}",
                    "≥ 0.5 - 1 s.e.", "", found["apgr"] >= 0.5 - found["se"])  # fmt: skip


# ---- probes, and what is not in the folder


def goes_up(native: NativeClassifier, turn: object) -> bool:
    """Whether a turn goes to the heavy tier at the default threshold."""
    verdict = native.classify(turn)  # type: ignore[arg-type]
    return verdict.abstain is not None or verdict.difficulty >= native.default_threshold


def probe_rows() -> Iterator[Measured]:
    """The probes right, by half, side, language and reason."""
    native = NativeClassifier()
    found: dict[str, list[bool]] = defaultdict(list)
    for probe in probes.load():
        right = goes_up(native, turn_of(probe.text)) == probe.hard
        side = "hard" if probe.hard else "everyday"
        for name in ("all", probe.part, side, f"language {probe.language}",
                     f"{side}, {probe.reason}"):  # fmt: skip
            found[name].append(right)
    for name, rights in found.items():
        share = float(np.mean(rights))
        yield row(f"probes right, {name} ({len(rights)}), %", 100 * share,
                  share_error(share, len(rights)), 95)  # fmt: skip


MISSING = (
    Measured("CRUX, MATH level 5: APGR, share sent heavy", "-", "", "kept elsewhere", None),
    Measured("BIG-Bench Hard, Qwen 7B > 72B: APGR", "-", "≥ 0.5 - 1 s.e.", "no scores here", None),
    Measured("RouterArena's 420 paraphrases", "-", "≥ 95", "see robustness.py", None),
    Measured("whole verdict, p99", "-", "0.3 ms, 1 ms", "see verdict.py", None),
)

PARTS: dict[str, Callable[[Path], Iterator[Measured]]] = {
    "intents": intent_rows,
    "probes": lambda _: probe_rows(),
    "routing": routing_rows,
    "missing": lambda _: iter(MISSING),
}
WORDS = {True: "met", False: "not met", None: "cannot be measured here"}


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    given = parser.parse_args()
    folder = os.environ.get("TIER_ROUTER_DATA")
    if not folder:
        print("skipped: TIER_ROUTER_DATA is not set (see tests/data/README.md)")
        return
    console = Console(width=170)
    for part in given.only:
        printed = Printed(title=part, title_justify="left")
        for name in ("what", "measured ± s.e.", "goal", "", "beside"):
            printed.add_column(name)
        for one in PARTS[part](Path(folder)):
            printed.add_row(one.what, one.value, one.goal, WORDS[one.met], one.beside)
        console.print(printed)


if __name__ == "__main__":
    main()
