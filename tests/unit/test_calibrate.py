"""The pure part of `tier-router calibrate`, on synthetic traffic of which the truth is known."""

from itertools import pairwise

import numpy as np
import pytest

from tier_router.calibrate import Correction, correction_for, level_of, line_for
from tier_router.classify import Signal, Verdict
from tier_router.classify.corrected import Corrected
from tier_router.request import Turn
from tier_router.train.measure import ece

SHARES = (0.1, 0.3, 0.5, 0.7)


def difficulties(pick: np.random.Generator, count: int) -> np.ndarray:
    """Two kinds of traffic, easy and hard, as the shipped model scores them."""
    easy = pick.random(count) < 0.6
    return np.where(easy, pick.beta(1.5, 30, count), pick.beta(4, 12, count))


def truth(prior: np.ndarray, slope: float, shift: float) -> np.ndarray:
    odds = np.log(prior / (1 - prior))
    return 1 / (1 + np.exp(-(slope * odds + shift)))


# ---- a share


@pytest.mark.parametrize("share", SHARES)
def test_200_prompts_hold_a_share_within_3_points(share: float) -> None:
    """On average: a sample of 200 by itself is off by 2.6 points at 30%."""
    pick = np.random.default_rng(1)
    future = difficulties(pick, 50_000)
    errors = []
    for _ in range(100):
        line = line_for(difficulties(pick, 200).tolist(), share)
        assert line.share.value == pytest.approx(share, abs=0.005)
        errors.append(abs((future >= line.threshold.value).mean() - share))
    assert np.mean(errors) <= 0.03


def test_the_interval_of_a_share_holds_as_often_as_it_says() -> None:
    pick = np.random.default_rng(2)
    future = difficulties(pick, 50_000)
    inside = 0
    for _ in range(100):
        line = line_for(difficulties(pick, 200).tolist(), 0.3)
        actual = float((future >= line.threshold.value).mean())
        inside += line.share.low <= actual <= line.share.high
    assert inside >= 80


@pytest.mark.parametrize(("share", "threshold"), [(0.0, 0.95), (1.0, 0.05), (0.5, 0.5)])
def test_the_ends_and_the_middle(share: float, threshold: float) -> None:
    line = line_for([0.1, 0.9], share)
    assert line.threshold.value == pytest.approx(threshold)
    assert line.share.value == share


def test_what_is_fixed_is_counted_and_a_share_below_it_is_not_reached() -> None:
    levels = [np.inf] * 40 + [-np.inf] * 20 + np.linspace(0.1, 0.5, 40).tolist()
    line = line_for(levels, 0.5)
    assert (line.fixed_up, line.fixed_down) == (0.4, 0.2)
    assert line.share.value == 0.5
    few = line_for(levels, 0.1)
    assert few.share.value == 0.4
    assert 0.5 < few.threshold.value <= 1


def test_equal_levels_stay_on_one_side() -> None:
    line = line_for([0.1] * 60 + [0.2] * 30 + [0.3] * 10, 0.25)
    assert line.share.value in (0.1, 0.4)
    assert line.share.value == pytest.approx(0.25, abs=0.16)


@pytest.mark.parametrize(("edge", "level"), [(0.3, 0.3), (2.0, np.inf), (-1.0, -np.inf)])
def test_the_level_is_where_a_request_stops_going_up(edge: float, level: float) -> None:
    assert level_of(lambda threshold: threshold <= edge) == pytest.approx(level, abs=1e-6)


# ---- a correction


def corrected(found: Correction, prior: np.ndarray) -> np.ndarray:
    assert found.points is not None
    xs, ys = zip(*found.points, strict=True)
    return np.interp(prior, xs, ys)


@pytest.mark.parametrize(("slope", "shift"), [(1.0, 1.5), (0.6, -0.5), (1.6, 1.0), (1.0, -1.2)])
def test_after_500_labels_the_calibration_error_is_at_most_3_points(
    slope: float, shift: float
) -> None:
    pick = np.random.default_rng(3)
    new = difficulties(pick, 40_000)
    actual = truth(new, slope, shift)
    errors = []
    for seed in range(6):
        prior = difficulties(pick, 500)
        needed = (pick.random(500) < truth(prior, slope, shift)).astype(float)
        found = correction_for(prior.tolist(), needed.tolist(), seed)
        errors.append(ece(corrected(found, new), actual, np.ones(len(new))))
    assert np.mean(errors) <= 0.03
    assert np.mean(errors) < ece(new, actual, np.ones(len(new)))


def test_a_pair_of_another_shape_is_met_by_pooled_bins_or_a_logistic_map() -> None:
    pick = np.random.default_rng(4)
    prior = difficulties(pick, 2_000)
    step = np.where(prior > 0.2, 0.7, 0.05)
    needed = (pick.random(2_000) < step).astype(float)
    found = correction_for(prior.tolist(), needed.tolist())
    assert found.kind in ("pooled", "logistic")
    assert ece(corrected(found, prior), step, np.ones(2_000)) < 0.06


def test_noise_changes_nothing() -> None:
    """A correction is let through by chance in one of twenty runs, not more."""
    pick = np.random.default_rng(5)
    kept = []
    for seed in range(20):
        prior = difficulties(pick, 300)
        noise = (pick.random(300) < 0.4).astype(float)
        found = correction_for(prior.tolist(), noise.tolist(), seed)
        kept.append(found.points is None)
        assert found.auc.low < 0.55
    assert sum(kept) >= 18


def test_a_wrong_order_changes_nothing() -> None:
    pick = np.random.default_rng(6)
    prior = difficulties(pick, 500)
    needed = (pick.random(500) < truth(prior, -1.5, -3.0)).astype(float)
    found = correction_for(prior.tolist(), needed.tolist())
    assert (found.kind, found.points) == ("chance", None)
    assert found.auc.high < 0.5


def test_a_prior_that_is_right_is_kept_or_hardly_moved() -> None:
    pick = np.random.default_rng(7)
    prior = difficulties(pick, 500)
    needed = (pick.random(500) < prior).astype(float)
    found = correction_for(prior.tolist(), needed.tolist())
    new = difficulties(pick, 20_000)
    after = new if found.points is None else corrected(found, new)
    assert ece(after, new, np.ones(len(new))) <= 0.03


def test_few_labels_change_nothing() -> None:
    found = correction_for([0.1, 0.9] * 5, [0.0, 1.0] * 5)
    assert (found.kind, found.points, found.labels) == ("few", None, 10)
    assert correction_for([], []).kind == "few"


def test_labels_of_one_kind_only_change_nothing() -> None:
    found = correction_for(np.linspace(0.01, 0.6, 50).tolist(), [0.0] * 50)
    assert found.kind in ("chance", "prior", "logistic", "pooled")
    assert found.auc.value == 0.5


def test_partial_scores_count_by_part() -> None:
    pick = np.random.default_rng(8)
    prior = difficulties(pick, 600)
    found = correction_for(prior.tolist(), truth(prior, 1.0, 1.0).tolist())
    assert found.kind in ("logistic", "pooled")
    assert found.ece_after < found.ece_before


def test_points_rise_from_nought_to_one() -> None:
    pick = np.random.default_rng(9)
    prior = difficulties(pick, 500)
    needed = (pick.random(500) < truth(prior, 1.5, 1.0)).astype(float)
    points = correction_for(prior.tolist(), needed.tolist()).points
    assert points is not None
    assert (points[0], points[-1]) == ((0.0, 0.0), (1.0, 1.0))
    assert all(x < next_x and y <= next_y for (x, y), (next_x, next_y) in pairwise(points))


# ---- the classifier that a correction makes


class Fixed:
    default_threshold = 0.2

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict

    def reference_quantile(self, share: float) -> float:
        return 1 - share

    def classify(self, turn: Turn) -> Verdict:
        return self.verdict

    def explain(self, turn: Turn) -> list[Signal]:
        return [Signal(turn.text, 1.0)]


POINTS = [(0.0, 0.0), (0.5, 0.1), (1.0, 1.0)]


@pytest.mark.parametrize(
    ("before", "after"), [(0.0, 0.0), (0.25, 0.05), (0.5, 0.1), (0.75, 0.55), (1.0, 1.0)]
)
def test_a_difficulty_is_corrected_between_points(before: float, after: float) -> None:
    found = Corrected(Fixed(Verdict(before)), POINTS)
    assert found.classify(Turn("x")).difficulty == pytest.approx(after)


def test_the_rest_of_a_verdict_stays() -> None:
    inner = Fixed(Verdict(0.5, 0.9, "balance", "what is my balance"))
    found = Corrected(inner, POINTS)
    assert found.classify(Turn("x")) == Verdict(0.1, 0.9, "balance", "what is my balance")
    assert found.explain(Turn("x")) == [Signal("x", 1.0)]
    assert found.default_threshold == 0.2
    assert found.reference_quantile(0.5) == pytest.approx(0.1)


def test_who_abstains_is_left_alone() -> None:
    inner = Fixed(Verdict(0.5, 0.0, abstain="empty"))
    assert Corrected(inner, POINTS).classify(Turn("")) == inner.verdict


async def test_waiting_is_the_inner_classifiers() -> None:
    asked = []

    class Waits(Fixed):
        async def ahead(self, turns: object) -> None:
            asked.append(turns)

    await Corrected(Waits(Verdict(0.5)), POINTS).ahead((Turn("x"),))
    await Corrected(Fixed(Verdict(0.5)), POINTS).ahead((Turn("x"),))
    assert asked == [(Turn("x"),)]
