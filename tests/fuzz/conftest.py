"""A sidecar with every kind of tier behind it, in a thread of its own: real HTTP on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import yaml

from tests.fuzz.replica import Picky
from tier_router.config import parse
from tier_router.testing.thread import in_thread

pytest.importorskip("httptools", reason="the extra `proxy` is not installed")

from tier_router_proxy.sidecar import Sidecar

LADDER = ("m8", "m70")


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Sidecar]:
    """The sidecar and what is behind it."""
    fakes = [
        *(Picky(model, multimodal=True, record=False) for model in LADDER),
        Picky("bge", pooling=True, record=False),
    ]
    async with AsyncExitStack() as stack:
        for fake in fakes:
            await stack.enter_async_context(fake)
        settings = parse(config([fake.url for fake in fakes], folder))
        yield await stack.enter_async_context(Sidecar(settings))


def config(urls: list[str], folder: Path) -> str:
    light, heavy, pool = urls
    written = {
        "tiers": [
            {"name": "light", "model": "m8", "replicas": [light]},
            {"name": "heavy", "model": "m70", "replicas": [heavy]},
            {"name": "vectors", "model": "bge", "replicas": [pool], "can": ["embeddings"]},
        ],
        "intents": {"balance": {"tier": "light", "utterances": ["what is my balance"]}},
        "aliases": {"gpt-4o": "auto", "big/one": "heavy"},
        "server": {"port": 0, "api_keys": ["ours"]},
        "load": {"poll": False},
        "feedback": str(folder / "feedback.jsonl"),
        "log": str(folder / "decisions.jsonl"),
    }
    return yaml.safe_dump(written)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    """A sidecar for all tests of a module; its key is `ours`."""
    with in_thread(serving(tmp_path_factory.mktemp("fuzz"))) as sidecar:
        yield sidecar
