"""One classifier for all tests here: it does not change."""

import pytest

from tier_router.classify.native import NativeClassifier


@pytest.fixture(scope="session")
def native() -> NativeClassifier:
    return NativeClassifier()
