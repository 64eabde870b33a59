"""Servers for all tests of a run; without vLLM they are left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.servers import FLAGS, HERE, MODELS, PYTHON, Vllm, serving


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and not (PYTHON and MODELS):
            reason = "TIER_ROUTER_VLLM is not set (see tests/real/README.md)"
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vllm")


@pytest.fixture(scope="session")
def flagged(folder: Path) -> Iterator[Vllm]:
    """A server with every flag that the router makes use of."""
    with serving(folder, "light", *FLAGS) as server:
        yield server


@pytest.fixture(scope="session")
def bare(folder: Path) -> Iterator[Vllm]:
    """A server as `vllm serve MODEL` starts it."""
    with serving(folder, "light") as server:
        yield server
