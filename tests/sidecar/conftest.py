"""A sidecar in front of fake vLLM servers, all on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import yaml

from tier_router.classify import Verdict
from tier_router.config import Config, parse
from tier_router.testing import FakeVllm, FixedClassifier
from tier_router_proxy.sidecar import Sidecar

RULES: Mapping[str, float | Verdict] = {"prove": 0.9, "yes": Verdict(0.1, continues=True)}


def fixed(_: Config) -> FixedClassifier:
    """A classifier that needs no artefact: "prove" is hard, all else is easy."""
    return FixedClassifier(0.1, RULES)


@dataclass
class Stage:
    """Two light replicas, one heavy one, and the sidecar in front of them."""

    light: list[FakeVllm]
    heavy: FakeVllm
    stack: AsyncExitStack
    settings: dict[str, Any] = field(default_factory=dict)
    sidecar: Sidecar | None = None
    http: httpx.AsyncClient | None = None

    def config(self, **more: Any) -> Config:
        """The configuration of this stage; `more` replaces top-level keys."""
        tiers = [
            {"name": "light", "model": "m8", "replicas": [fake.url for fake in self.light]},
            {"name": "heavy", "model": "m70", "replicas": [self.heavy.url]},
        ]
        server = {"port": 0} | self.settings.pop("server", {})
        written = {"tiers": tiers, "server": server} | self.settings | more
        # so that tests may count requests; those that are about polls ask for them
        written["load"] = {"poll": False} | written.get("load", {})
        return parse(yaml.safe_dump(written))

    async def serve(self, **settings: Any) -> httpx.AsyncClient:
        """Starts the sidecar; gives a client of it."""
        self.settings = settings
        self.sidecar = Sidecar(self.config(), fixed)
        await self.stack.enter_async_context(self.sidecar)
        self.http = httpx.AsyncClient(base_url=self.sidecar.url, timeout=10, trust_env=False)
        await self.stack.enter_async_context(self.http)
        return self.http

    async def ask(self, text: str = "hello", **more: Any) -> httpx.Response:
        """One chat answer."""
        assert self.http is not None
        headers = more.pop("headers", {})
        return await self.http.post(
            "/v1/chat/completions", json=chat(text, **more), headers=headers
        )

    @property
    def fakes(self) -> list[FakeVllm]:
        """All fake servers."""
        return [*self.light, self.heavy]

    def served(self) -> dict[str, int]:
        """Chat requests that each replica has seen."""
        names = ["light-0", "light-1", "heavy-0"]
        return {
            name: sum(request.path == "/v1/chat/completions" for request in fake.requests)
            for name, fake in zip(names, self.fakes, strict=True)
        }


def chat(text: str, **more: Any) -> dict[str, Any]:
    """A chat request body."""
    return {"model": "auto", "messages": [{"role": "user", "content": text}], **more}


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        light = [await stack.enter_async_context(FakeVllm("m8")) for _ in range(2)]
        heavy = await stack.enter_async_context(FakeVllm("m70"))
        yield Stage(light, heavy, stack)


@pytest.fixture
def eventually() -> Callable[..., Any]:
    """Waits until a condition holds; fails after two seconds."""

    async def wait(condition: Callable[[], bool], seconds: float = 2.0) -> None:
        for _ in range(int(seconds / 0.01)):
            if condition():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("it never came about")

    return wait
