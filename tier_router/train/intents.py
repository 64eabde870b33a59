"""Fits what intents share, the whitening matrix and the confidence, and measures both.

    TIER_ROUTER_DATA=... python -m tier_router.train.intents [--out FOLDER]

The whitening matrix is the inverse square root of how utterances of one intent differ (HWU64 and
SNIPS, train).  The confidence is a logistic regression on made-up configurations of HWU64 intents:
1 to 60 routes of 1 to 40 utterances, asked with their own texts, with those of other intents and
with benchmark questions.  CLINC150 and Banking77 are for the tables only.
"""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tier_router.classify import intents
from tier_router.classify.features import core
from tier_router.classify.intents import Intents, Model, Route
from tier_router.encoder import Array, StaticEncoder
from tier_router.encoder import load as load_encoder
from tier_router.train import data
from tier_router.train.data import Row

Floats = npt.NDArray[np.float64]
Sets = Mapping[str, Mapping[str, list[str]]]

SHRINK = 0.3
"""What is added to each variance, in mean variances; 0.1 and 1 are within 0.3 points on HWU64."""
CONFIGURATIONS = 400
"""Made-up configurations of HWU64."""
STRANGE = 10
"""Benchmark questions that each configuration is asked, beside 25 texts of its own and 15 of other
intents."""
SETTINGS = (
    (1, 5), (2, 4), (3, 6), (5, 3), (5, 20), (10, 6), (10, 10), (20, 8), (20, 40), (4, 1), (40, 10),
    (60, 40), (60, 10),
)  # fmt: skip


def sets_of(rows: Sequence[Row], source: str, split: str) -> dict[str, list[str]]:
    """Texts by intent."""
    out: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        part, _, name = row.subset.partition("/")
        if row.source == source and part == split:
            out[name].append(row.turn.text)
    return dict(sorted(out.items()))


def whitening(sets: Sequence[Mapping[str, list[str]]], encoder: StaticEncoder) -> Array:
    """The inverse square root of the covariance within intents, shrunk."""
    spread = []
    for texts in (own for group in sets for own in group.values()):
        vectors = encoder.matrix(texts)
        spread.append(vectors - vectors.mean(0))
    rows = np.concatenate(spread).astype(np.float64)
    values, basis = np.linalg.eigh(rows.T @ rows / len(rows))
    values += SHRINK * values.mean()
    whiten = (basis * values**-0.5) @ basis.T
    out: Array = (whiten / np.abs(whiten).max()).astype(np.float16).astype(np.float32)
    return out


def examples(
    train: Mapping[str, list[str]],
    test: Mapping[str, list[str]],
    strange: Sequence[str],
    model: Model,
    encoder: StaticEncoder,
) -> tuple[Floats, Floats]:
    """(numbers, whether the best route was right) of many configurations and texts."""
    pick = random.Random(11)
    x, y = [], []
    for index in range(CONFIGURATIONS):
        count, size = SETTINGS[index % len(SETTINGS)]
        names = pick.sample(sorted(train), count)
        routes = [
            Route(name, tuple(pick.sample(train[name], min(size, len(train[name])))))
            for name in names
        ]
        compiled = Intents(routes, encoder, model)
        inside = [(text, name) for name in names for text in test.get(name, ())]
        others = [name for name in sorted(test) if name not in names]
        outside = [(pick.choice(test[pick.choice(others)]), "") for _ in range(15)]
        asked = pick.sample(inside, min(25, len(inside))) + outside
        asked += [(text, "") for text in pick.sample(strange, STRANGE)]
        for text, name in asked:
            words = intents.plain(text).split()[: intents.WORDS]
            if words:
                best, _, numbers = compiled.evidence(words, encoder.encode(core(text)))
                x.append(numbers)
                y.append(float(routes[best].name == name))
    return np.array(x), np.array(y)


def logistic(x: Floats, y: Floats, ridge: float = 1.0) -> Floats:
    """The weights, the constant last, by Newton's method."""
    full = np.hstack([x, np.ones((len(x), 1))])
    weights = np.zeros(full.shape[1])
    penalty = ridge * np.eye(full.shape[1])
    penalty[-1, -1] = 0
    for _ in range(30):
        p = 1 / (1 + np.exp(-full @ weights))
        slope = full.T @ (p - y) + penalty @ weights
        bend = (full * (p * (1 - p))[:, None]).T @ full + penalty
        weights -= np.linalg.solve(bend, slope)
    return weights


def auroc(inside: Floats, outside: Floats) -> float:
    """The chance that a text of a route is more confident than one of none."""
    order = np.sort(outside)
    below = np.searchsorted(order, inside, "left") + np.searchsorted(order, inside, "right")
    return float(below.mean() / 2 / len(outside))


def asked(
    routes: Sequence[Route],
    test: Mapping[str, list[str]],
    outside: Sequence[str],
    model: Model,
    encoder: StaticEncoder,
) -> dict[str, float]:
    """Accuracy, and how well what belongs to no route is told apart."""
    compiled = Intents([Route(r.name, r.utterances, 0.0) for r in routes], encoder, model)
    names = {route.name for route in routes}
    inside = [(text, name) for name in sorted(names) for text in test[name]]
    found = [compiled.match(text, encoder.encode(core(text))) for text, _ in inside]
    right = np.array([m.name == name for m, (_, name) in zip(found, inside, strict=True)])
    sure = np.array([m.confidence for m in found])
    strange = np.array([compiled.match(t, encoder.encode(core(t))).confidence for t in outside])
    line = float(np.quantile(sure, 0.05))
    at = intents.DEFAULT_THRESHOLD
    return {
        "texts": len(inside),
        "accuracy": float(right.mean()),
        "oos AUROC": auroc(sure, strange),
        "oos rejected at 95% kept": float((strange < line).mean()),
        "kept": float((sure >= at).mean()),
        "right of kept": float(right[sure >= at].mean()),
        "oos let in": float((strange >= at).mean()),
    }


def small(
    train: Mapping[str, list[str]],
    test: Mapping[str, list[str]],
    model: Model,
    encoder: StaticEncoder,
    rounds: int = 10,
) -> dict[str, float]:
    """Mean figures of 10 routes of 6 utterances; texts of other intents are out of scope."""
    pick = random.Random(5)
    rows = []
    for _ in range(rounds):
        names = pick.sample(sorted(train), 10)
        routes = [Route(name, tuple(pick.sample(train[name], 6))) for name in names]
        rest = [name for name in sorted(test) if name not in names]
        outside = [pick.choice(test[pick.choice(rest)]) for _ in range(300)]
        rows.append(asked(routes, test, outside, model, encoder))
    return {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}


def measured(
    rows: Sequence[Row], model: Model, encoder: StaticEncoder
) -> dict[str, dict[str, float]]:
    """The tables, by name."""
    out = {}
    clinc = sets_of(rows, "clinc150", "train"), sets_of(rows, "clinc150", "test")
    bank = sets_of(rows, "banking77", "train"), sets_of(rows, "banking77", "test")
    strange = [row.turn.text for row in rows if row.subset.startswith("oos_test/")]
    for name, (train, test), outside in (
        ("CLINC150, all 150 intents", clinc, strange),
        ("Banking77, all 77 intents (out of scope: CLINC150's)", bank, strange),
    ):
        routes = [Route(intent, tuple(texts)) for intent, texts in train.items()]
        out[name] = asked(routes, test, outside, model, encoder)
    out["CLINC150, 10 routes of 6 utterances"] = small(*clinc, model, encoder)
    out["Banking77, 10 routes of 6 utterances"] = small(*bank, model, encoder)
    return out


def main() -> None:
    """Fits, writes `intents.npz` and prints the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=intents.ARTEFACT.parent)
    given = parser.parse_args()
    encoder, root = load_encoder(), data.folder()
    rows = data.intents(root)
    train, test = sets_of(rows, "hwu64", "train"), sets_of(rows, "hwu64", "test")
    whiten = whitening([train, sets_of(rows, "snips", "train")], encoder)
    model = Model(whiten, (0.0,))
    strange = [row.turn.text for row in data.benchmarks(root) if row.source == "llmrouter"]
    x, y = examples(train, test, strange, model, encoder)
    weights = logistic(x, y)
    given.out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        given.out / "intents.npz", whiten=whiten.astype(np.float16), weights=weights
    )
    print("weights", weights.round(3))
    for name, table in measured(rows, Model(whiten, tuple(weights.tolist())), encoder).items():
        print(name, {key: round(value, 4) for key, value in table.items()})


if __name__ == "__main__":
    main()
