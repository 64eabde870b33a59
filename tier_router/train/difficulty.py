"""Trains the difficulty model and writes it, with its model card, into `tier_router/data`.

    TIER_ROUTER_DATA=... python -m tier_router.train.difficulty [--labels FILE] [--out FOLDER]

Small trees (LightGBM) predict the gain: how much more often heavy models were right than light
ones.  Simple requests of the intent sets are mixed in with gain 0.  A monotone map, fitted on
scores of rows that the scoring model had not seen, turns the gain into a probability.  The same
input gives the same bytes: fixed seeds, one thread.

`--labels` adds rows of your own, one JSON object a line: `{"prompt": ..., "light": 0, "heavy": 1}`
with the two tiers' scores in 0..1.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tier_router.classify import difficulty, features
from tier_router.classify.intents import load as load_intents
from tier_router.encoder import StaticEncoder
from tier_router.encoder import load as load_encoder
from tier_router.train import card, data, intents, measure, trees
from tier_router.train.data import Row
from tier_router.train.topics import TOPICS, fit_topics, topic_of

Floats = npt.NDArray[np.float64]

FOLDS = 5
ROUNDS = 240
SIMPLE = 16_000
"""Utterances of the intent sets that are trained on, of 52,000: enough, and the run stays short."""
LIGHT_SHARE = 0.0125
"""The default threshold lets this share of the intent sets' utterances go to the heavy tier, scored
by models that have not seen their intent."""
KNOTS, QUANTILES = 48, 201
PARAMETERS: dict[str, Any] = {
    "objective": "regression",
    "num_leaves": difficulty.LEAVES,
    "learning_rate": 0.06,
    "min_data_in_leaf": 20,
    "lambda_l2": 5.0,
    "feature_fraction": 0.5,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "max_bin": 127,
    "seed": 7,
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,
    "verbosity": -1,
}
"""Usual values for small trees on a noisy target.  Of some twenty settings (see the model card)
none was better by more than another seed is."""

RISES = ("proof", "design", "medicine", "law", "math", "code_block", "pasted", "tasks", "fields")
FALLS = ("greet", "thanks", "polite", "account", "errand", "known_share", "everyday")
"""Features that may only raise, or only lower, the difficulty: where data is thin, sense rules."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows with their hand features and text vectors, one row of each array for each."""

    rows: list[Row]
    hand: Floats
    vectors: npt.NDArray[np.float32]
    spoken: npt.NDArray[np.bool_]
    """Whether the vector means something: English text with words."""

    def where(self, test: Callable[[Row], bool]) -> npt.NDArray[np.bool_]:
        """Which rows pass `test`."""
        return np.array([test(row) for row in self.rows], bool)

    def take(self, keep: npt.NDArray[np.bool_]) -> Table:
        """The rows where `keep`."""
        rows = [row for row, kept in zip(self.rows, keep, strict=True) if kept]
        return Table(rows, self.hand[keep], self.vectors[keep], self.spoken[keep])


def table_of(rows: list[Row], encoder: StaticEncoder) -> Table:
    """The features of `rows`."""
    hand, vectors, spoken = [], [], []
    for row in rows:
        seen = features.glance(row.turn)
        encoding = encoder.of_words(seen.words)
        hand.append(seen.values + difficulty.known(seen, encoding))
        vectors.append(encoding.vector)
        spoken.append(not seen.foreign and encoding.tokens > 0)
    return Table(rows, np.array(hand), np.stack(vectors), np.array(spoken))


def gathered(root: Path, labels: Path | None) -> tuple[list[Row], list[Row]]:
    """(rows to train on, rows that are only ever evaluated: MT-Bench, the intents' test splits)."""
    scored = data.benchmarks(root)
    simple = data.intents(root)
    train = [row for row in scored if row.source != "mt_bench"]
    shown = [row for row in simple if not row.subset.startswith(("test/", "oos_test/"))]
    random.Random(3).shuffle(shown)
    shown = shown[:SIMPLE]
    train += data.copies(train)
    train += shown + data.dressed(shown)
    train += data.arena(root) + data.own()
    if labels is not None:
        train += data.labelled(labels)
    unseen = [row for row in simple if row.subset.startswith("test/")]
    return train, [row for row in scored if row.source == "mt_bench"] + unseen


def folds_of(rows: Sequence[Row]) -> npt.NDArray[np.intp]:
    """The fold of each row; equal groups fall into one."""
    return np.array([int(data.digest(row.group), 16) % FOLDS for row in rows])


def design(table: Table, scores: npt.NDArray[np.floating[Any]]) -> Floats:
    """The matrix that trees see: hand features, then topic scores, in float32's precision."""
    scores = np.where(table.spoken[:, None], scores, 0.0)
    return np.hstack([table.hand, scores]).astype(np.float32).astype(np.float64)


def boosted(x: Floats, y: Floats, weight: Floats, names: Sequence[str]) -> Any:
    """A LightGBM booster for `y`."""
    import lightgbm

    sides = [(name in RISES) - (name in FALLS) for name in names]
    parameters = PARAMETERS | {"monotone_constraints": sides}
    stored = lightgbm.Dataset(x, y, weight=weight, feature_name=list(names))
    return lightgbm.train(parameters, stored, num_boost_round=ROUNDS)


def steps_as_gains(root: Path, table: Table, names: Sequence[str], encoder: StaticEncoder) -> Table:
    """GSM8K's train questions, with the gain that their number of solution steps suggests.

    A first model predicts steps; on the rows with labels its predictions are set against the gain.
    """
    import lightgbm

    asked = data.steps(root)
    rows = [Row(turn, "gsm8k_steps", "", group, 0.0, 0.4, True) for turn, _, group in asked]
    more = table_of(rows, encoder)
    counts = np.array([min(count, 9) for _, count, _ in asked], float)
    model = lightgbm.train(
        PARAMETERS, lightgbm.Dataset(more.hand, counts, feature_name=list(names)), 120
    )
    known = table.take(table.where(lambda row: row.source == "gsm8k"))
    slope, base = np.polyfit(
        model.predict(known.hand), np.array([row.gain for row in known.rows]), 1
    )
    gains = base + slope * counts
    rows = [replace(row, gain=float(gain)) for row, gain in zip(rows, gains, strict=True)]
    return Table(rows, more.hand, more.vectors, more.spoken)


def joined(first: Table, second: Table) -> Table:
    """Both, one after the other."""
    return Table(
        first.rows + second.rows,
        np.vstack([first.hand, second.hand]),
        np.vstack([first.vectors, second.vectors]),
        np.concatenate([first.spoken, second.spoken]),
    )


@dataclass(frozen=True, slots=True)
class Fitted:
    """Topics and trees."""

    weights: npt.NDArray[np.float32]
    bias: npt.NDArray[np.float32]
    booster: Any

    def raw(self, table: Table) -> Floats:
        """The trees' values for each row."""
        x = design(table, table.vectors @ self.weights + self.bias)
        return np.asarray(self.booster.predict(x), float)


def fitted(table: Table) -> Fitted:
    """The model of all of `table`; topic scores that trees learn from are out of fold."""
    gain = np.array([row.gain for row in table.rows])
    weight = np.array([row.weight for row in table.rows])
    topics = np.array([topic_of(row) for row in table.rows])
    inner = folds_of(table.rows)
    scores = np.zeros((len(table.rows), len(TOPICS)))
    usable = table.spoken & (topics >= 0)
    for fold in range(FOLDS):
        at = inner == fold
        weights, bias = fit_topics(table.vectors[usable & ~at], topics[usable & ~at])
        scores[at] = table.vectors[at] @ weights + bias
    weights, bias = fit_topics(table.vectors[usable], topics[usable])
    booster = boosted(design(table, scores), gain, weight, names_of())
    return Fitted(weights, bias, booster)


def everything(root: Path, train: list[Row], encoder: StaticEncoder) -> Table:
    """The features of `train` and of GSM8K's train questions."""
    table = table_of(train, encoder)
    names = features.NAMES + difficulty.KNOWLEDGE
    return joined(table, steps_as_gains(root, table, names, encoder))


def out_of_fold(table: Table) -> Floats:
    """Each row's value by a model that was fitted without the row's fold."""
    folds, raw = folds_of(table.rows), np.zeros(len(table.rows))
    for fold in range(FOLDS):
        at = folds == fold
        raw[at] = fitted(table.take(~at)).raw(table.take(at))
    return raw


def without(table: Table, source: str) -> Floats:
    """The values of one source's rows by a model that has seen none of it, nor an equal stem."""
    own = table.where(lambda row: row.source.startswith(source))
    groups = {row.group for row, is_own in zip(table.rows, own, strict=True) if is_own}
    touched = own | table.where(lambda row: row.group in groups)
    return fitted(table.take(~touched)).raw(table.take(own))


def names_of() -> tuple[str, ...]:
    """All features in the order that trees see them."""
    return features.NAMES + difficulty.KNOWLEDGE + tuple(f"about_{name}" for name in TOPICS)


# ---- from the trees' sum to a probability


def mix_weights(rows: Sequence[Row]) -> Floats:
    """Weights that make a service mix: half simple requests, a quarter tasks, a quarter hard ones.

    The hard ones are MMLU, MMLU-Pro and GSM8K in equal shares.
    """
    part = {"llmrouter": 0.25, "mmlu": 0.083, "mmlu_pro": 0.084, "gsm8k": 0.083}
    part |= dict.fromkeys(data.INTENT_SETS, 0.125)
    counts = Counter(row.source for row in rows if not row.extra)
    return np.array(
        [0.0 if row.extra else part.get(row.source, 0.0) / counts[row.source] for row in rows]
    )


def calibration(raw: Floats, target: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """The knots (x, y) of a rising, piecewise linear map from `raw` to the mean target.

    Means over bins of equal weight, made monotone by pooling neighbours that fall (isotonic
    regression, Ayer et al. 1955); a slope of 1e-4 a knot keeps the order of scores.
    """
    order = np.argsort(raw, kind="stable")
    order = order[weight[order] > 0]
    share = np.cumsum(weight[order]) / weight[order].sum()
    place = np.minimum((share * KNOTS).astype(int), KNOTS - 1)
    pools: list[tuple[float, float, float]] = []  # (weight, mean x, mean y)
    for knot in range(KNOTS):
        at = order[place == knot]
        if not len(at):
            continue
        w = float(weight[at].sum())
        pools.append(
            (w, float(np.average(raw[at], weights=weight[at])),
             float(np.average(target[at], weights=weight[at])))
        )  # fmt: skip
        while len(pools) > 1 and pools[-2][2] >= pools[-1][2]:
            (w1, x1, y1), (w2, x2, y2) = pools[-2:]
            w = w1 + w2
            pools[-2:] = [(w, (w1 * x1 + w2 * x2) / w, (w1 * y1 + w2 * y2) / w)]
    x = np.array([pool[1] for pool in pools])
    y = np.array([pool[2] for pool in pools])
    low, high = float(raw.min()) - 0.1, float(raw.max()) + 0.1
    x = np.concatenate([[low], x, [high]])
    y = np.concatenate([[y[0] * 0.5], y, [y[-1] + (1 - y[-1]) * 0.2]])
    return x, np.clip(y + 1e-4 * np.arange(len(y)), 0.0, 1.0)


def weighted_quantiles(values: Floats, weight: Floats, count: int) -> Floats:
    """`count` evenly spaced quantiles, from the smallest to the largest."""
    order = np.argsort(values, kind="stable")
    order = order[weight[order] > 0]
    share = np.cumsum(weight[order]) / weight[order].sum()
    at = np.searchsorted(share, np.linspace(0, 1, count))
    return values[order[np.minimum(at, len(order) - 1)]]


def threshold_of(rows: Sequence[Row], score: Floats) -> float:
    """The smallest score that at most `LIGHT_SHARE` of the intent sets' utterances reach.

    Each intent counts the same, whatever the number of its utterances.
    """
    kept = [not row.extra and row.source in data.INTENT_SETS for row in rows]
    sizes = Counter(row.group for row, keep in zip(rows, kept, strict=True) if keep)
    weight = np.array(
        [1 / sizes[row.group] if keep else 0.0 for row, keep in zip(rows, kept, strict=True)]
    )
    order = np.argsort(-score, kind="stable")
    share = np.cumsum(weight[order]) / weight.sum()
    return float(score[order[np.searchsorted(share, LIGHT_SHARE)]])


def main() -> None:
    """Trains, writes the artefact and the model card, and prints the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--labels", type=Path, help="JSON lines with prompt, light and heavy")
    parser.add_argument("--out", type=Path, default=difficulty.ARTEFACT.parent)
    given = parser.parse_args()
    encoder, root = load_encoder(), data.folder()
    train, unseen = gathered(root, given.labels)
    table = everything(root, train, encoder)
    folds, raw = folds_of(table.rows), out_of_fold(table)
    mix = mix_weights(table.rows)
    target = np.array([row.wins for row in table.rows])
    x, y = calibration(raw, target, mix)
    score = np.interp(raw, x, y)
    threshold, prior = threshold_of(table.rows, score), float(np.average(target, weights=mix))
    quantiles = weighted_quantiles(score, mix, QUANTILES)
    final = fitted(table)

    given.out.mkdir(parents=True, exist_ok=True)
    meta = {
        "features": [*features.NAMES, *difficulty.KNOWLEDGE],
        "topics": [*TOPICS],
        "threshold": threshold,
        "prior": prior,
    }
    stored: dict[str, Any] = {
        **trees.flatten(final.booster.dump_model()),
        "topic_weights": final.weights,
        "topic_bias": final.bias,
        "map_x": x,
        "map_y": y,
        "quantiles": quantiles,
        "meta": np.frombuffer(json.dumps(meta).encode(), np.uint8),
    }
    np.savez_compressed(given.out / "difficulty.npz", **stored)
    shipped = difficulty.Difficulty(given.out / "difficulty.npz")
    tested = table_of(unseen, encoder)
    held_out = card.Scored(table.rows, score)
    never = card.Scored(tested.rows, judged(shipped, tested))
    rest = [row for row in unseen if row.source in data.INTENT_SETS]
    tables = {
        "routing": card.routing(held_out, never),
        "shares": card.shares(held_out, never, threshold),
        "calibration": errors(raw, target, mix, folds),
        "flips": card.flips([*train, *rest], card.judge_with(shipped, encoder), threshold),
        "intents": intents.measured(data.intents(root), load_intents(), encoder),
    }
    size = sum(file.stat().st_size for file in given.out.glob("*.npz"))
    shares = {f"{share:.0%}": shipped.reference_quantile(share) for share in (0.1, 0.2, 0.3, 0.5)}
    written = card.text(tables, threshold, prior, shares, size)
    (given.out / "MODEL_CARD.md").write_text(written, encoding="utf-8")
    print(written[written.index("## Held-out") : written.index("## Where")])


def errors(
    raw: Floats, target: Floats, mix: Floats, folds: npt.NDArray[np.intp]
) -> dict[str, dict[str, float]]:
    """The calibration error, each fold mapped by the others' map."""
    score = np.zeros(len(raw))
    for fold in range(FOLDS):
        at = folds == fold
        score[at] = np.interp(raw[at], *calibration(raw[~at], target[~at], mix[~at]))
    kept = mix > 0
    value = measure.ece(score[kept], target[kept], mix[kept])
    return {"the service mix": {"texts": float(kept.sum()), "ECE": value}}


def judged(model: difficulty.Difficulty, table: Table) -> Floats:
    """The calibrated difficulties that the shipped artefact gives."""
    x = design(table, table.vectors @ model.topics.weights + model.topics.bias)
    return np.array([model.of_row(row) for row in x])


if __name__ == "__main__":
    main()
