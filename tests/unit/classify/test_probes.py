"""The probes: what they are, that nothing was trained on them, and how many are right."""

import importlib.util
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from tier_router.classify.native import NativeClassifier
from tier_router.train.data import own
from tier_router.turn import turn_of

RIGHT = 0.95


def _load() -> ModuleType:
    path = Path(__file__).parents[2] / "probes" / "probes.py"
    spec = importlib.util.spec_from_file_location("probes", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["probes"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


PROBES = _load().load()


def bare(text: str) -> str:
    return text.lower().rstrip(".?!？。 ")


def test_they_are_many_balanced_and_of_many_languages() -> None:
    assert len(PROBES) >= 200
    assert len({bare(probe.text) for probe in PROBES}) == len(PROBES)
    sides = Counter(probe.hard for probe in PROBES)
    assert abs(sides[True] - sides[False]) <= 0.1 * len(PROBES)
    assert len({probe.language for probe in PROBES}) >= 8
    assert all(probe.reason for probe in PROBES)


def test_none_was_trained_on() -> None:
    trained = {bare(row.turn.text) for row in own()}
    assert [probe.text for probe in PROBES if bare(probe.text) in trained] == []


@pytest.mark.parametrize("change", [str, str.lower, str.upper])
@pytest.mark.parametrize("part", ["looked at", "held back"])
def test_most_are_right(native: NativeClassifier, part: str, change: type[str]) -> None:
    wrong = []
    asked = [probe for probe in PROBES if probe.part == part]
    for probe in asked:
        verdict = native.classify(turn_of(change(probe.text)))
        up = verdict.abstain is not None or verdict.difficulty >= native.default_threshold
        if up != probe.hard:
            wrong.append(probe.text)
    assert len(wrong) <= (1 - RIGHT) * len(asked), wrong
