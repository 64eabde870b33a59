"""What the tests of the LiteLLM door share."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import litellm
import yaml

from tier_router import Config, Decision, TierRouter, Verdict, parse
from tier_router.cli.litellm_config import document
from tier_router.litellm import TierCallback
from tier_router.litellm.groups import Deployment
from tier_router.testing import FakeVllm, Fault, FixedClassifier, Recorded
from tier_router.testing.exchange import JSON, Exchange

EASY, HARD = "What is my balance?", "Please prove it step by step."
RULES: Mapping[str, float | Verdict] = {"prove": 0.9, "yes": Verdict(0.1, continues=True)}


class Counting(FixedClassifier):
    """ "prove" is hard, all else is easy; counts what it was asked."""

    def __init__(self) -> None:
        super().__init__(0.1, RULES)
        self.asked = 0

    def classify(self, turn: Any) -> Verdict:
        self.asked += 1
        return super().classify(turn)


def router_of(config: Config, clock: Callable[[], float] | None = None) -> TierRouter:
    """A router that needs no artefact."""
    options = {} if clock is None else {"clock": clock}
    return TierRouter(config, lambda _: Counting(), **options)


def chat(text: str) -> list[dict[str, Any]]:
    """One human turn."""
    return [{"role": "user", "content": text}]


@dataclass(frozen=True, slots=True)
class Canned(Fault):
    """An answer of a path that the fake server has not."""

    content: Mapping[str, Any]

    async def answer(self, exchange: Exchange, stream: bool) -> bool:
        await exchange.respond(200, json.dumps(self.content).encode(), JSON)
        return True


EMBEDDING: dict[str, Any] = {
    "object": "list", "model": "m",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.1]}],
    "usage": {"prompt_tokens": 1, "total_tokens": 1},
}  # fmt: skip
RESPONSE: dict[str, Any] = {
    "id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "m",
    "output": [{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": "hello", "annotations": []}]}],
    "parallel_tool_calls": False, "tool_choice": "auto", "tools": [],
    "temperature": 1.0, "top_p": 1.0,
    "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2,
              "input_tokens_details": {"cached_tokens": 0},
              "output_tokens_details": {"reasoning_tokens": 0}},
}  # fmt: skip


@dataclass
class Stage:
    """Two light replicas, a heavy one, and `backup`, which is of no tier."""

    light: list[FakeVllm]
    heavy: FakeVllm
    backup: FakeVllm

    @classmethod
    async def of(cls, stack: AsyncExitStack) -> Stage:
        light = [await stack.enter_async_context(FakeVllm("m8")) for _ in range(2)]
        heavy = await stack.enter_async_context(FakeVllm("m70"))
        backup = await stack.enter_async_context(FakeVllm("other"))
        stage = cls(light, heavy, backup)
        for fake in stage.fakes:
            fake.faults.add(Canned(EMBEDDING), None, _path("/v1/embeddings"))
            fake.faults.add(Canned(RESPONSE), None, _path("/v1/responses"))
        return stage

    @property
    def fakes(self) -> list[FakeVllm]:
        return [*self.light, self.heavy, self.backup]

    def source(self, tiers: Mapping[str, Mapping[str, Any]] | None = None, **more: Any) -> str:
        """The text of a config.yaml; `tiers` adds to a tier, `more` are top-level keys."""
        added = tiers or {}
        light = {"name": "light", "model": "m8", "replicas": [fake.url for fake in self.light]}
        heavy = {"name": "heavy", "model": "m70", "replicas": [self.heavy.url]}
        ladder = [{**tier, **added.get(str(tier["name"]), {})} for tier in (light, heavy)]
        return yaml.safe_dump({"tiers": ladder, "aliases": {"gpt-4o": "auto"}, **more})

    def config(self, tiers: Mapping[str, Mapping[str, Any]] | None = None, **more: Any) -> Config:
        return parse(self.source(tiers, **more))

    def document(self, config: Config, **settings: Any) -> dict[str, Any]:
        """LiteLLM's configuration, with `backup`; `settings` are the router's."""
        made = document(config)
        made["model_list"].append(self.other())
        made["router_settings"] |= {"retry_after": 0} | settings
        return made

    def other(self) -> dict[str, Any]:
        """The deployment of the other group."""
        params = {"model": "hosted_vllm/other", "api_base": f"{self.backup.url}/v1",
                  "api_key": "none"}  # fmt: skip
        return {"model_name": "backup", "litellm_params": params, "model_info": {"id": "backup-0"}}

    def router(self, config: Config, **settings: Any) -> litellm.Router:
        """The real Router over this stage."""
        made = self.document(config, **settings)
        return litellm.Router(model_list=made["model_list"], **made["router_settings"])

    def served(self) -> dict[str, int]:
        """Requests that each server has seen, without those that saw none."""
        names = ("light-0", "light-1", "heavy-0", "backup-0")
        seen = {name: len(fake.requests) for name, fake in zip(names, self.fakes, strict=True)}
        return {name: count for name, count in seen.items() if count}

    def tiers(self) -> dict[str, int]:
        """As `served`, by tier."""
        found: dict[str, int] = {}
        for name, count in self.served().items():
            tier = name.rpartition("-")[0]
            found[tier] = found.get(tier, 0) + count
        return found

    def forget(self) -> None:
        for fake in self.fakes:
            fake.requests.clear()


def _path(path: str) -> Callable[[Recorded], bool]:
    return lambda request: request.route == path


async def eventually(condition: Callable[[], bool], seconds: float = 3.0) -> None:
    """Waits until `condition` holds."""
    for _ in range(int(seconds / 0.01)):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came about")


async def decide_through_litellm(
    router: TierRouter,
    body: Mapping[str, Any],
    headers: Mapping[str, str] | None = None,
    down: Collection[str] = (),
) -> Decision | None:
    """The decision that the callback makes of a chat request as LiteLLM's proxy hands it over;
    None where it leaves the request to LiteLLM.

    The deployments are those of `tier-router litellm-config`; `down` names replicas that cool
    down.  Loads are told to `router.ledger` before.
    """
    callback = TierCallback(router)
    everything: list[Deployment] = document(router.config)["model_list"]
    callback.brain.learn("auto", everything)
    model = body.get("model") or "auto"
    alias = None if model == "auto" else model
    kwargs = {name: value for name, value in body.items() if name not in ("messages", "model")} | {
        "metadata": {"model_group": "auto", "model_group_alias": alias},
        "proxy_server_request": {"headers": dict(headers or {}), "body": dict(body)},
    }
    healthy = [each for each in everything if each["model_info"]["id"] not in down]
    left = await callback.async_filter_deployments(
        "auto", healthy, body.get("messages"), request_kwargs=kwargs
    )
    decision = callback.decision(kwargs)
    assert left
    assert decision is None or {d["model_info"]["id"] for d in left} == {decision.replica}
    return decision
