"""Figures for the model card: APGR and CPT (Ong et al. 2024, RouteLLM), ECE, shares."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def recovered(score: Floats, light: Floats, heavy: Floats) -> tuple[Floats, Floats]:
    """(share of heavy calls, share of the quality gap recovered), highest scores first."""
    order = np.argsort(-score, kind="stable")
    gained = np.concatenate([[0.0], np.cumsum((heavy - light)[order])])
    gap = heavy.sum() - light.sum()
    return np.arange(len(score) + 1) / len(score), gained / gap


def apgr(score: Floats, light: Floats, heavy: Floats) -> float:
    """The average performance gap recovered: the area under the curve."""
    share, gain = recovered(score, light, heavy)
    return float(np.trapezoid(gain, share))


def cpt(score: Floats, light: Floats, heavy: Floats, level: float) -> float:
    """The smallest share of heavy calls, in percent, that recovers `level` of the gap."""
    share, gain = recovered(score, light, heavy)
    return float(share[np.argmax(gain >= level)]) * 100


def table_row(score: Floats, light: Floats, heavy: Floats, rounds: int = 200) -> dict[str, float]:
    """APGR with its bootstrap error, CPT50, CPT80 and CPT95."""
    pick = np.random.default_rng(0)
    draws = []
    for _ in range(rounds):
        at = pick.integers(0, len(score), len(score))
        if abs(heavy[at].sum() - light[at].sum()) > 1e-9:
            draws.append(apgr(score[at], light[at], heavy[at]))
    return {
        "rows": float(len(score)),
        "apgr": apgr(score, light, heavy),
        "se": float(np.std(draws)),
        **{f"cpt{int(p * 100)}": cpt(score, light, heavy, p) for p in (0.5, 0.8, 0.95)},
    }


def ece(predicted: Floats, actual: Floats, weight: Floats, bins: int = 15) -> float:
    """The expected calibration error over bins of equal weight."""
    order = np.argsort(predicted, kind="stable")
    p, y, w = predicted[order], actual[order], weight[order]
    total = np.cumsum(w) / w.sum()
    place = np.minimum((total * bins).astype(int), bins - 1)
    error = 0.0
    for b in range(bins):
        at = place == b
        if at.any():
            error += w[at].sum() * abs(
                np.average(p[at], weights=w[at]) - np.average(y[at], weights=w[at])
            )
    return float(error / w.sum())
