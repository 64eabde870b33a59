"""The parts of training that need neither data nor LightGBM."""

import numpy as np
import pytest

from tier_router.request import Turn
from tier_router.train import card, data, difficulty, intents, measure
from tier_router.train.data import Row
from tier_router.train.topics import TOPICS, fit_topics, topic_of


def test_own_prompts_are_written_out() -> None:
    rows = data.own()
    assert {row.subset.split("/")[0] for row in rows} == {"easy", "hard"}
    assert all("{" not in row.turn.text or "|" not in row.turn.text for row in rows)
    texts = [row.turn.text for row in rows if row.subset.startswith("easy")]
    hard = {row.turn.text for row in rows if row.subset.startswith("hard")}
    assert not hard & set(texts)
    assert rows == data.own()


def test_a_groups_rows_share_a_fold() -> None:
    rows = data.own()
    folds: dict[str, set[int]] = {}
    for row, fold in zip(rows, difficulty.folds_of(rows), strict=True):
        folds.setdefault(row.group, set()).add(int(fold))
    assert all(len(found) == 1 for found in folds.values())
    assert {fold for found in folds.values() for fold in found} == set(range(difficulty.FOLDS))


def test_labels_of_ones_own(tmp_path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "labels.jsonl"
    file.write_text('{"prompt": "prove it", "light": 0, "heavy": 1}\n\n', encoding="utf-8")
    (row,) = data.labelled(file)
    assert (row.gain, row.wins, row.turn.text) == (1.0, 1.0, "prove it")


def test_apgr_of_a_perfect_a_useless_and_a_wrong_score() -> None:
    light, heavy = np.array([1.0, 1, 0, 0]), np.array([1.0, 1, 1, 1])
    assert measure.apgr(np.array([0.0, 0, 1, 1]), light, heavy) == pytest.approx(0.75)
    assert measure.apgr(np.array([1.0, 1, 0, 0]), light, heavy) == pytest.approx(0.25)
    assert measure.cpt(np.array([0.0, 0, 1, 1]), light, heavy, 0.5) == 25
    row = measure.table_row(np.array([0.0, 0, 1, 1]), light, heavy, rounds=20)
    assert row["rows"] == 4
    assert row["cpt80"] == 50


def test_ece() -> None:
    p = np.array([0.2] * 500 + [0.8] * 500)
    y = np.array([1.0] * 100 + [0.0] * 400 + [1.0] * 400 + [0.0] * 100)
    ones = np.ones(1_000)
    assert measure.ece(p, y, ones, 2) == pytest.approx(0, abs=2e-3)
    assert measure.ece(p, 1 - y, ones, 2) == pytest.approx(0.6, abs=2e-3)


def test_calibration_is_monotone_and_unbiased() -> None:
    pick = np.random.default_rng(2)
    raw = pick.normal(size=5_000)
    target = (pick.random(5_000) < 1 / (1 + np.exp(-2 * raw))).astype(float)
    x, y = difficulty.calibration(raw, target, np.ones(5_000))
    assert (np.diff(x) > 0).all()
    assert (np.diff(y) > 0).all()
    mapped = np.interp(raw, x, y)
    assert measure.ece(mapped, target, np.ones(5_000)) < 0.03


def test_quantiles_are_weighted() -> None:
    values, weight = np.arange(4.0), np.array([0.0, 1.0, 1.0, 2.0])
    found = difficulty.weighted_quantiles(values, weight, 5)
    assert found.tolist() == [1.0, 1.0, 2.0, 3.0, 3.0]


def test_the_threshold_counts_each_intent_the_same() -> None:
    rows = [Row(Turn("a"), "clinc150", "train/a", "clinc150/a", 0.0)] * 990
    rows += [Row(Turn("b"), "banking77", "train/b", "banking77/b", 0.0)] * 10
    score = np.array([0.1] * 990 + [0.2] * 9 + [0.3])
    assert difficulty.threshold_of(rows, score) == pytest.approx(0.3)


def test_topics_are_found_again() -> None:
    pick = np.random.default_rng(3)
    topics = pick.integers(0, len(TOPICS), 2_000)
    vectors = (np.eye(len(TOPICS), 32)[topics] + pick.normal(size=(2_000, 32)) * 0.2).astype(
        np.float32
    )
    weights, bias = fit_topics(vectors, topics)
    assert ((vectors @ weights + bias).argmax(1) == topics).mean() > 0.95


def test_topic_of_a_row() -> None:
    assert TOPICS[topic_of(Row(Turn(""), "mmlu", "professional_law", "", 0.0))] == "law"
    assert TOPICS[topic_of(Row(Turn(""), "mmlu_pro", "computer science", "", 0.0))] == "computing"
    assert TOPICS[topic_of(Row(Turn(""), "banking77", "train/x", "", 0.0))] == "banking"
    assert topic_of(Row(Turn(""), "arena", "anything", "", 0.0)) == -1


def test_logistic_regression() -> None:
    pick = np.random.default_rng(4)
    x = pick.normal(size=(4_000, 2))
    y = (pick.random(4_000) < 1 / (1 + np.exp(-(1.5 * x[:, 0] - x[:, 1] + 0.5)))).astype(float)
    np.testing.assert_allclose(intents.logistic(x, y), [1.5, -1.0, 0.5], atol=0.2)


def test_auroc() -> None:
    assert intents.auroc(np.array([2.0, 3.0]), np.array([0.0, 1.0])) == 1.0
    assert intents.auroc(np.array([1.0]), np.array([1.0])) == 0.5


def test_every_change_of_the_flip_table_changes_a_text() -> None:
    import random

    text = "Compare the two proofs and explain, which one is constructive?"
    for name, change in card.CHANGES.items():
        assert change(text, random.Random(1)) != text, name
