"""Fake tiers in a thread of their own, so that synchronous code can call them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("langchain_openai", reason="the extra `langchain` is not installed")

from tier_router.classify import Verdict
from tier_router.config import Config, parse
from tier_router.testing import FakeVllm, FixedClassifier


def fixed(_: Config) -> FixedClassifier:
    """A classifier that needs no artefact: "prove" is hard, all else is easy."""
    return FixedClassifier(0.1, {"prove": 0.9, "yes": Verdict(0.1, continues=True)})


@dataclass
class Stage:
    """Two light replicas and one heavy one on loopback."""

    light: list[FakeVllm]
    heavy: FakeVllm

    def config(self, more: str = "") -> Config:
        urls = ", ".join(fake.url for fake in self.light)
        return parse(
            f"tiers:\n- {{name: light, model: m8, replicas: [{urls}]}}\n"
            f"- {{name: heavy, model: m70, replicas: [{self.heavy.url}], "
            f"can: [tools, json, logprobs, reasoning, vision, audio]}}\n{more}"
        )

    @property
    def fakes(self) -> list[FakeVllm]:
        return [*self.light, self.heavy]

    def asked(self) -> list[Any]:
        """The bodies that arrived, in order."""
        found = [each for fake in self.fakes for each in fake.requests]
        return [each.body for each in sorted(found, key=lambda each: each.started_at)]


def _serve(ready: threading.Event, stop: list[Any], stage: list[Stage]) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            light = [await stack.enter_async_context(FakeVllm("m8")) for _ in range(2)]
            heavy = await stack.enter_async_context(FakeVllm("m70", multimodal=True))
            stage.append(Stage(light, heavy))
            event = asyncio.Event()
            stop.extend((asyncio.get_running_loop(), event))
            ready.set()
            await event.wait()

    asyncio.run(main())


@pytest.fixture(scope="session")
def running() -> Iterator[Stage]:
    ready, stop, stage = threading.Event(), [], []
    thread = threading.Thread(target=_serve, args=(ready, stop, stage), daemon=True)
    thread.start()
    assert ready.wait(20)
    yield stage[0]
    loop, event = stop
    loop.call_soon_threadsafe(event.set)
    thread.join(20)


@pytest.fixture
def stage(running: Stage) -> Stage:
    """The running tiers, with nothing left of the test before."""
    for fake in running.fakes:
        fake.requests.clear()
        fake.faults.clear()
    return running
