"""LiteLLM in front of fake vLLM servers, all on loopback."""

from __future__ import annotations

import os
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else importing it asks the network

HERE = Path(__file__).parent
LITELLM = find_spec("litellm") is not None
PROXY = LITELLM and all(find_spec(name) for name in ("fastapi", "apscheduler", "uvicorn"))

if LITELLM:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own deprecations, and those of what it imports
        import litellm

    from tests.litellm.tools import Stage


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "litellm: starts the real LiteLLM proxy as a process")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE not in item.path.parents:
            continue
        # LiteLLM and what it imports warn in many ways, each version in others: a warning counts
        # here where our own modules earn it.  (The mark that comes last is looked at first.)
        item.add_marker(pytest.mark.filterwarnings("ignore"))
        item.add_marker(pytest.mark.filterwarnings("error:::tier_router"))
        if item.get_closest_marker("litellm") and not PROXY:
            item.add_marker(pytest.mark.skip(reason="needs pip install 'litellm[proxy]'"))


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    """LiteLLM's lists of callbacks belong to the process: each test gets them empty."""
    if not LITELLM:
        yield
        return
    names = ("callbacks", "success_callback", "failure_callback", "_async_success_callback",
             "_async_failure_callback", "input_callback")  # fmt: skip
    for name in names:
        setattr(litellm, name, [])
    yield
    for name in names:
        setattr(litellm, name, [])


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """Two light replicas and a heavy one, and a server of another group."""
    async with AsyncExitStack() as stack:
        yield await Stage.of(stack)
