"""Fits the line and the difficulty to an operator's own traffic: what `tier-router calibrate` does.

Unlabelled prompts give a share: the threshold that so many of them lie above.  Labels (which tier
was right, or preferred) give a correction of the shipped difficulty: a logistic map with two
numbers (Platt 1999), shrunk towards no change, and on top of it, where it helps, pooled bins of its
errors (isotonic regression).  Cross-validation picks among no change and these.  Nothing is changed
where the order of the labels may be chance (the 90% interval of the area under the curve reaches
0.5), or where a constant is the better guess of labels that were not seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tier_router.train.measure import ece

Floats = npt.NDArray[np.float64]
Map = Callable[[Floats], Floats]

FOLDS = 5
SHRINK = 2.0
"""Weight of "no change" against the labels: that of about ten of them where half need the heavy
tier.  A choice."""
STEEPEST, FLATTEST = 8.0, 0.02
"""Bounds of the slope: it stays positive, so that the order of requests is kept."""
BIN, PULL = 50, 25.0
"""Labels of one pooled bin, and how many labels the logistic map counts for in each."""
EDGE = 1e-4
"""Probabilities stay this far from 0 and 1."""
DRAWS = 400
"""Bootstrap draws of each interval."""
LOW, HIGH = 0.05, 0.95
"""Ends of each interval: 90%."""
POINTS = 33
"""Points that a correction is written down as, evenly spaced in log-odds."""
BINS = 10
FEWEST = 20
"""Labels below which no fold says anything."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure and its 90% bootstrap interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


# ---- a share of traffic, without labels


@dataclass(frozen=True, slots=True)
class Line:
    """A threshold; `share` is what of the prompts lies above it, with what is to be expected of
    other prompts of the same traffic."""

    threshold: Interval
    share: Interval
    fixed_up: float
    """The share that goes up whatever the threshold is."""
    fixed_down: float


def line_for(levels: Sequence[float], share: float) -> Line:
    """The threshold above which `share` of `levels` lie.

    A level is the highest threshold at which a prompt still goes up: infinity for one that always
    does, minus infinity for one that never does.
    """
    sorted_levels = np.sort(np.asarray(levels, float))
    threshold = _cut(sorted_levels, share)
    pick = np.random.default_rng(0)
    cuts, shares = [], []
    for _ in range(DRAWS):
        drawn = pick.choice(sorted_levels, len(sorted_levels))
        cuts.append(_cut(np.sort(drawn), share))
        shares.append(float((drawn >= threshold).mean()))
    return Line(
        Interval(threshold, *_ends(cuts)),
        Interval(float((sorted_levels >= threshold).mean()), *_ends(shares)),
        float(np.isposinf(sorted_levels).mean()),
        float(np.isneginf(sorted_levels).mean()),
    )


def _cut(levels: Floats, share: float) -> float:
    """The threshold, half way between the levels beside it; equal ones stay on one side."""
    count = len(levels)
    first, last = int(np.isneginf(levels).sum()), count - int(np.isposinf(levels).sum())
    place = min(max(count - round(share * count), first), last)
    if first < place < last and levels[place - 1] == levels[place]:
        ends = [int(np.searchsorted(levels, levels[place], side)) for side in ("left", "right")]
        place = min(ends, key=lambda end: abs(end - place))
    under = levels[place - 1] if place > first else 0.0
    over = levels[place] if place < last else 1.0
    return float(under + over) / 2


def level_of(goes_up: Callable[[float], bool], rounds: int = 30) -> float:
    """The highest threshold at which `goes_up` holds; it must not begin to hold as it rises."""
    if goes_up(1.0):
        return math.inf
    low, high = 0.0, 1.0
    if not goes_up(EDGE / 10):
        return -math.inf
    for _ in range(rounds):
        middle = (low + high) / 2
        low, high = (middle, high) if goes_up(middle) else (low, middle)
    return low


# ---- a correction, from labels


@dataclass(frozen=True, slots=True)
class Correction:
    """What labels say of the shipped difficulty.

    `points` are (difficulty, corrected) pairs of a rising map, None where nothing is changed, with
    `kind` saying why: "logistic", "pooled", "prior" (the shipped one is as good), "chance" (not
    better than a constant guess) or "few".  Losses are held-out log losses; `noise` is the
    calibration error that so few labels show when nothing is wrong.
    """

    kind: str
    points: tuple[tuple[float, float], ...] | None
    labels: int
    needed: float
    losses: dict[str, float]
    auc: Interval
    ece_before: float
    ece_after: float
    noise: float


def correction_for(prior: Sequence[float], needed: Sequence[float], seed: int = 0) -> Correction:
    """The correction of `prior` difficulties by whether the heavy tier was `needed` (0..1)."""
    x, y = _odds(np.asarray(prior, float)), np.asarray(needed, float)
    ones = np.ones(len(x))
    if len(x) < FEWEST:
        none = Interval(math.nan, math.nan, math.nan)
        return Correction("few", None, len(x), float(y.mean()) if len(y) else 0.0, {}, none,
                          math.nan, math.nan, math.nan)  # fmt: skip
    guesses = _held_out(x, y, seed)
    losses = {name: float(_loss(p, y).mean()) for name, p in guesses.items()}
    kind = min(("prior", "logistic", "pooled"), key=lambda name: losses[name])
    auc = _auc_interval(x, y)
    if auc.low <= 0.5 or losses[kind] >= losses["constant"]:
        kind = "chance"
    used = kind if kind in FITS else "prior"
    points = _points(FITS[kind](x, y)) if kind in FITS else None
    return Correction(
        kind,
        points,
        len(x),
        float(y.mean()),
        losses,
        auc,
        ece(_chance(x), y, ones, BINS),
        ece(guesses[used], y, ones, BINS),
        _noise(guesses[used]),
    )


def _held_out(x: Floats, y: Floats, seed: int) -> dict[str, Floats]:
    """What each way guesses of labels that it has not seen."""
    out = {name: np.zeros(len(x)) for name in (*FITS, "constant")}
    fold = np.random.default_rng(seed).permutation(len(x)) % FOLDS
    for part in range(FOLDS):
        at = fold == part
        for name, fit in FITS.items():
            out[name][at] = fit(x[~at], y[~at])(x[at])
        out["constant"][at] = (y[~at].sum() + 0.5) / ((~at).sum() + 1)
    return out | {"prior": _chance(x)}


def platt(x: Floats, y: Floats) -> Map:
    """The logistic map of log-odds `x` that fits `y`, shrunk towards no change, by Newton."""
    slope, constant = 1.0, 0.0
    for _ in range(25):
        p = _chance(slope * x + constant)
        error, spread = p - y, p * (1 - p)
        gradient = np.array([error @ x + SHRINK * (slope - 1), error.sum() + SHRINK * constant])
        bend = np.array([[spread @ x**2, spread @ x], [spread @ x, spread.sum()]])
        step = np.linalg.solve(bend + SHRINK * np.eye(2), gradient)
        slope, constant = slope - step[0], constant - step[1]
        slope = min(max(slope, FLATTEST), STEEPEST)
    return lambda at: _chance(slope * at + constant)


def pooled(x: Floats, y: Floats) -> Map:
    """`platt`, moved in each bin of labels towards what was seen there, and made to rise."""
    smooth = platt(x, y)
    order = np.argsort(x, kind="stable")
    parts = np.array_split(order, max(len(x) // BIN, 1))
    middles = np.array([x[part].mean() for part in parts])
    guess = smooth(middles)
    sums = np.array([(y[part] - smooth(x[part])).sum() / (len(part) + PULL) for part in parts])
    raised = _rising(np.clip(guess + sums, EDGE, 1 - EDGE))
    shift = _odds(raised) - _odds(guess)
    return lambda at: _chance(_odds(smooth(at)) + np.interp(at, middles, shift))


FITS: dict[str, Callable[[Floats, Floats], Map]] = {"logistic": platt, "pooled": pooled}


def _rising(values: Floats) -> Floats:
    """The nearest rising values: neighbours that fall are pooled (Ayer et al. 1955)."""
    pools: list[list[float]] = []
    for value in values.tolist():
        pools.append([value])
        while len(pools) > 1 and np.mean(pools[-2]) >= np.mean(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    return np.array([np.mean(pool) for pool in pools for _ in pool])


def _points(fitted: Map) -> tuple[tuple[float, float], ...]:
    """The map as points; each is above the one before."""
    at = np.linspace(_odds(np.array([EDGE]))[0], -_odds(np.array([EDGE]))[0], POINTS)
    y = np.maximum.accumulate(fitted(at)) + 1e-7 * np.arange(POINTS)
    ends = [(0.0, 0.0), *zip(_chance(at).tolist(), y.tolist(), strict=True), (1.0, 1.0)]
    return tuple((round(a, 7), round(min(b, 1.0), 7)) for a, b in ends)


def _auc_interval(x: Floats, y: Floats) -> Interval:
    """How often a request that needed the heavy tier was called harder than one that did not."""
    pick = np.random.default_rng(1)
    draws = []
    for _ in range(DRAWS):
        at = pick.integers(0, len(x), len(x))
        draws.append(_auc(x[at], y[at]))
    return Interval(_auc(x, y), *_ends(draws))


def _auc(x: Floats, y: Floats) -> float:
    """Area under the curve for labels between 0 and 1, ties half."""
    order = np.argsort(x, kind="stable")
    values, places = np.unique(x[order], return_inverse=True)
    up = np.bincount(places, y[order], len(values))
    down = np.bincount(places, 1 - y[order], len(values))
    total = up.sum() * down.sum()
    if total <= 0:
        return 0.5
    return float((up * (np.cumsum(down) - down / 2)).sum() / total)


def _noise(p: Floats) -> float:
    """The mean calibration error where labels are drawn from `p` itself."""
    pick = np.random.default_rng(2)
    ones = np.ones(len(p))
    return float(
        np.mean([ece(p, (pick.random(len(p)) < p).astype(float), ones, BINS) for _ in range(50)])
    )


def _loss(p: Floats, y: Floats) -> Floats:
    p = np.clip(p, EDGE, 1 - EDGE)
    out: Floats = -(y * np.log(p) + (1 - y) * np.log(1 - p))
    return out


def _odds(p: Floats) -> Floats:
    p = np.clip(p, EDGE, 1 - EDGE)
    out: Floats = np.log(p / (1 - p))
    return out


def _chance(odds: Floats) -> Floats:
    out: Floats = 1 / (1 + np.exp(-np.clip(odds, -30, 30)))
    return out


def _ends(draws: Sequence[float]) -> tuple[float, float]:
    low, high = np.quantile(np.nan_to_num(draws, posinf=1.0, neginf=0.0), (LOW, HIGH)).tolist()
    return low, high
