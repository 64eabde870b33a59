"""Fake tiers in a thread of their own, so that synchronous code can call them."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("langchain_openai", reason="the extra `langchain` is not installed")

from tier_router import testing
from tier_router.config import Config, parse
from tier_router.testing import FakeVllm


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

    def forget(self) -> None:
        """Nothing has arrived, and nothing is to go wrong."""
        for fake in self.fakes:
            fake.requests.clear()
            fake.faults.clear()

    def asked(self) -> list[Any]:
        """The bodies that arrived, in order."""
        found = [each for fake in self.fakes for each in fake.requests]
        return [each.body for each in sorted(found, key=lambda each: each.started_at)]


@pytest.fixture(scope="session")
def running() -> Iterator[Stage]:
    light = [FakeVllm("m8"), FakeVllm("m8")]
    heavy = FakeVllm("m70", multimodal=True)
    with testing.running(*light, heavy):
        yield Stage(light, heavy)


@pytest.fixture
def stage(running: Stage) -> Stage:
    """The running tiers, with nothing left of the test before."""
    running.forget()
    return running


@pytest.fixture(autouse=True, scope="module")
def no_leftovers() -> Iterator[None]:
    """OpenAI's clients leave kept connections to the garbage collector, which would tell some
    later test about them: they are collected here."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
