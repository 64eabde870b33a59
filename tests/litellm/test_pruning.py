"""Pruned calls of LiteLLM: what replicas were sent, and what callers' own lists still hold."""

from __future__ import annotations

import asyncio
import copy
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("litellm", reason="needs pip install 'tier-router[litellm]'")

import litellm

from tests.litellm.tools import Stage, chat, eventually, router_of
from tests.unit.prune.tools import called, retrieved, user
from tier_router.litellm import TierCallback, install

PRETTY = json.dumps([{"id": n, "name": f"row {n}"} for n in range(40)], indent=4)
FOLDABLE = [user("which rows are there?"), *called("1", "look", PRETTY)]
ON: dict[str, Any] = {"mode": "on", "holdout": 0, "budget_ms": 2_000}
TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "parameters": {"$schema": "x", "type": "object", "properties": {}},
    },
}


def sent(stage: Stage) -> list[dict[str, Any]]:
    """The chats that replicas were sent."""
    return [json.loads(r.raw) for fake in stage.fakes for r in fake.requests if "chat" in r.route]


@pytest.mark.parametrize("how", ["strategy", "callback"])
@pytest.mark.parametrize("stream", [False, True])
async def test_asynchronous_calls_go_out_pruned(stage: Stage, how: str, stream: bool) -> None:
    config = stage.config(pruning=ON)
    router = stage.router(config)
    if how == "strategy":
        install(router, router_of(config))
    else:
        litellm.callbacks = [TierCallback(router_of(config))]
    mine = copy.deepcopy(FOLDABLE)
    answer = await router.acompletion(model="auto", messages=mine, tools=[TOOL], stream=stream)
    if stream:
        assert [chunk async for chunk in answer]
    (body,) = sent(stage)
    assert body["messages"][2]["content"] == json.dumps(json.loads(PRETTY), separators=(",", ":"))
    assert "$schema" not in body["tools"][0]["function"]["parameters"]
    assert mine == FOLDABLE, "a caller's own list stays"
    assert "$schema" in TOOL["function"]["parameters"]


async def test_synchronous_calls_go_out_pruned(stage: Stage) -> None:
    config = stage.config(pruning=ON)
    router = stage.router(config)
    install(router, router_of(config))
    mine = copy.deepcopy(FOLDABLE)
    await asyncio.to_thread(router.completion, model="auto", messages=mine)
    (body,) = sent(stage)
    assert len(body["messages"][2]["content"]) < len(PRETTY)
    assert mine == FOLDABLE


@pytest.mark.parametrize("asynchronous", [True, False])
async def test_thinking_is_switched_off_beside_the_callers_own_extras(
    stage: Stage, asynchronous: bool
) -> None:
    config = stage.config(pruning={**ON, "tiers": {"light": {"template": "tail"}}})
    router = stage.router(config)
    install(router, router_of(config))
    call = {"model": "auto", "messages": chat("hello"), "extra_body": {"top_k": 5}}
    if asynchronous:
        await router.acompletion(**call)
    else:
        await asyncio.to_thread(router.completion, **call)
    (body,) = sent(stage)
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert body["top_k"] == 5
    assert call["extra_body"] == {"top_k": 5}


async def test_off_sends_what_was_written(stage: Stage) -> None:
    router = stage.router(stage.config())
    strategy = install(router, router_of(stage.config()))
    await router.acompletion(model="auto", messages=FOLDABLE)
    assert sent(stage)[0]["messages"][2]["content"] == PRETTY
    assert strategy.brain.router.pruner.tally.counts == {}


async def test_an_answer_is_audited_and_its_line_says_what_came_of_it(
    stage: Stage, tmp_path: Path
) -> None:
    path, proofs = tmp_path / "d.jsonl", tmp_path / "proofs.json"
    pruning = {"mode": "observe", "budget_ms": 2_000, "proofs": str(proofs)}
    config = stage.config(pruning=pruning, log=str(path))
    router = stage.router(config)
    strategy = install(router, router_of(config))
    await router.acompletion(model="auto", messages=[user(retrieved("What is a Clarinet?"))])
    brain = strategy.brain
    names = ("light-0", "light-1", "heavy-0")
    await eventually(lambda: not any(brain.router.ledger.in_flight(name) for name in names))
    await asyncio.to_thread(brain.router.pruner.close)
    brain.book.close()
    (line,) = [json.loads(each) for each in path.read_text().splitlines()]
    assert [(each["step"], each["lost"]) for each in line["pruning"]["audit"]] == [("rag", False)]
    assert json.loads(proofs.read_text())["rows"][0]["audits"] == 1


async def test_what_fits_by_pruning_alone_stays_with_the_smaller_tier(stage: Stage) -> None:
    rows = json.dumps([{"id": n, "name": f"row {n}"} for n in range(150)], indent=16)
    messages = [user("which rows are there?"), *called("1", "look", rows)]
    tiers = {"light": {"context": 2_400}, "heavy": {"context": 60_000}}
    for pruning, tier in (({"mode": "off"}, "heavy"), (ON, "light")):
        stage.forget()
        config = stage.config(tiers, pruning=pruning)
        router = stage.router(config)
        install(router, router_of(config))
        await router.acompletion(model="auto", messages=messages)
        assert stage.tiers() == {tier: 1}
