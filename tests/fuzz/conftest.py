"""A sidecar with every kind of tier behind it, in a thread of its own: real HTTP on loopback."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import yaml

from tests.fuzz.replica import Picky
from tier_router.config import parse

pytest.importorskip("httptools", reason="the extra `proxy` is not installed")

from tier_router_proxy.sidecar import Sidecar

LADDER = ("m8", "m70")


class Running:
    """The thread; `url` is the sidecar's once `start` has returned."""

    def __init__(self, folder: Path) -> None:
        self.url = ""
        self._feedback = str(folder / "feedback.jsonl")
        self._log = str(folder / "decisions.jsonl")
        self._failure: BaseException | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sidecar")

    def start(self) -> None:
        """Returns when it serves; raises what kept it from that."""
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Returns when it has stopped."""
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as failure:  # noqa: BLE001  raised again by `start` or `stop`
            self._failure = failure
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        async with AsyncExitStack() as stack:
            fakes = [
                *(Picky(model, multimodal=True, record=False) for model in LADDER),
                Picky("bge", pooling=True, record=False),
            ]
            for fake in fakes:
                await stack.enter_async_context(fake)
            sidecar = Sidecar(parse(self._config([fake.url for fake in fakes])))
            await stack.enter_async_context(sidecar)
            self.url = sidecar.url
            self._ready.set()
            await self._over.wait()

    def _config(self, urls: list[str]) -> str:
        light, heavy, pool = urls
        config = {
            "tiers": [
                {"name": "light", "model": "m8", "replicas": [light]},
                {"name": "heavy", "model": "m70", "replicas": [heavy]},
                {"name": "vectors", "model": "bge", "replicas": [pool], "can": ["embeddings"]},
            ],
            "intents": {"balance": {"tier": "light", "utterances": ["what is my balance"]}},
            "aliases": {"gpt-4o": "auto", "big/one": "heavy"},
            "server": {"port": 0, "api_keys": ["ours"]},
            "load": {"poll": False},
            "feedback": self._feedback,
            "log": self._log,
        }
        return yaml.safe_dump(config)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A sidecar for all tests of a module; its key is `ours`."""
    thread = Running(tmp_path_factory.mktemp("fuzz"))
    thread.start()
    yield thread
    thread.stop()
