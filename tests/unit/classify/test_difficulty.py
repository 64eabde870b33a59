"""The trees, the calibration map and the quantiles of the shipped artefact."""

import numpy as np
import pytest

from tier_router.classify import difficulty
from tier_router.classify.difficulty import ARTEFACT, Difficulty, Trees
from tier_router.classify.features import glance
from tier_router.encoder import load as load_encoder
from tier_router.turn import turn_of

TEXTS = [
    "what is my balance",
    "Prove that e is irrational",
    "x",
    "explain entropy\nA. one\nB. two",
    "证明",
]


@pytest.fixture(scope="module")
def model() -> Difficulty:
    return difficulty.load()


def row_of(model: Difficulty, text: str) -> np.ndarray:
    seen = glance(turn_of(text))
    return model.row(seen, load_encoder().encode(seen.text))


def walked(trees: Trees, row: np.ndarray) -> float:
    """The trees' sum, node by node."""
    total = 0.0
    for tree in range(trees.count):
        node = 0
        while node >= 0:
            right = row[trees.feature[node, tree]] > trees.threshold[node, tree]
            node = int(trees.child[node, tree, int(right)])
        total += trees.leaf[~node, tree]
    return total


@pytest.mark.parametrize("text", TEXTS)
def test_masks_give_what_walking_gives(model: Difficulty, text: str) -> None:
    row = row_of(model, text)
    assert model.trees.value(row) == pytest.approx(walked(model.trees, row), abs=1e-9)


def test_masks_give_what_walking_gives_anywhere(model: Difficulty) -> None:
    pick = np.random.default_rng(0)
    for _ in range(50):
        row = pick.normal(1, 3, len(model.names))
        assert model.trees.value(row) == pytest.approx(walked(model.trees, row), abs=1e-9)


@pytest.mark.parametrize("text", TEXTS)
def test_contributions_add_up(model: Difficulty, text: str) -> None:
    row = row_of(model, text)
    moved = model.trees.contributions(row)
    start = float(model.trees.mean[0].sum())
    assert start + moved.sum() == pytest.approx(model.trees.value(row), abs=1e-4)


def test_the_calibration_map_rises_and_stays_a_probability(model: Difficulty) -> None:
    raw = np.linspace(-1, 1.5, 2_001)
    found = [model.calibrated(float(value)) for value in raw]
    assert found == sorted(found)
    assert found[0] >= 0
    assert found[-1] <= 1
    assert model.calibrated(-1e9) == found[0]
    assert model.calibrated(1e9) == found[-1]


def test_quantiles_fall_with_the_share(model: Difficulty) -> None:
    found = [model.reference_quantile(share) for share in np.linspace(0, 1, 101)]
    assert found == sorted(found, reverse=True)
    assert 0 < model.prior < model.threshold < found[0]


def test_an_artefact_for_other_features_is_refused(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with np.load(ARTEFACT) as stored:
        arrays = {name: stored[name] for name in stored.files}
    text = arrays["meta"].tobytes().decode().replace('"words"', '"wards"')
    arrays["meta"] = np.frombuffer(text.encode(), np.uint8)
    np.savez_compressed(tmp_path / "other.npz", **arrays)
    with pytest.raises(ValueError, match="train again"):
        Difficulty(tmp_path / "other.npz")


def test_the_data_folder_is_small() -> None:
    assert sum(file.stat().st_size for file in ARTEFACT.parent.iterdir()) < 10_000_000


def test_trees_are_lightgbms() -> None:
    lightgbm = pytest.importorskip("lightgbm", reason="the train extra is not installed")
    from tier_router.train.trees import flatten

    pick = np.random.default_rng(1)
    x = pick.normal(size=(800, 6)).astype(np.float32).astype(np.float64)
    y = x[:, 0] * (x[:, 1] > 0) + pick.normal(size=800) * 0.1
    parameters = {
        "num_leaves": 16,
        "verbosity": -1,
        "num_threads": 1,
        "deterministic": True,
        "seed": 1,
    }
    booster = lightgbm.train(parameters, lightgbm.Dataset(x, y), 20)
    trees = Trees(flatten(booster.dump_model()))
    np.testing.assert_allclose(trees.values(x), booster.predict(x), atol=1e-5)
