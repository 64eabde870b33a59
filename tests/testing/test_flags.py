"""The flags of `vllm serve` that show in answers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tier_router.testing import FakeVllm, Flags, Speed

TOOLS = [{"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}]
THINK = {"chat_template_kwargs": {"enable_thinking": True}}


async def answer(dial: Any, fake: FakeVllm, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    wire = await dial(fake)
    wire.send(body)
    status, _, content = await wire.answer()
    return status, json.loads(content)


async def test_without_a_tool_parser_the_model_may_not_choose(dial: Any, ask: Any) -> None:
    async with FakeVllm("light", flags=Flags(tool_choice=False)) as fake:
        for choice in ({}, {"tool_choice": "auto"}):
            status, told = await answer(dial, fake, ask(tools=TOOLS, **choice))
            assert status == 400
            assert told["error"]["message"] == (
                '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser '
                "to be set"
            )
        named = {"type": "function", "function": {"name": "now"}}
        for choice in ({"tool_choice": named}, {"tool_choice": "none"}):
            assert (await answer(dial, fake, ask(tools=TOOLS, **choice)))[0] == 200
    async with FakeVllm("light") as fake:
        assert (await answer(dial, fake, ask(tools=TOOLS)))[0] == 200


async def test_without_a_reasoning_parser_thoughts_are_content(dial: Any, ask: Any) -> None:
    async with FakeVllm("light", flags=Flags(reasoning_parser=False)) as fake:
        _, told = await answer(dial, fake, ask(**THINK))
        message = told["choices"][0]["message"]
        assert message["reasoning"] is None
        assert message["content"].startswith("<think>light thinks:")
        assert "</think>" in message["content"]


@pytest.mark.parametrize("there", [True, False])
async def test_prompt_details(dial: Any, ask: Any, there: bool) -> None:
    async with FakeVllm("light", flags=Flags(prompt_details=there)) as fake:
        _, told = await answer(dial, fake, ask())
        assert (told["usage"]["prompt_tokens_details"] is not None) is there


@pytest.mark.parametrize(("there", "counted"), [(True, 1), (False, 0)])
async def test_load_tracking(
    dial: Any, ask: Any, eventually: Any, there: bool, counted: int
) -> None:
    flags = Flags(load_tracking=there)
    async with FakeVllm("light", flags=flags, speed=Speed(step=0.05)) as fake:
        wire = await dial(fake)
        wire.send(ask(max_tokens=500, ignore_eos=True, stream=True))
        await eventually(lambda: fake.engine.running == 1)
        other = await dial(fake)
        other.send(path="/load", method="GET")
        assert json.loads((await other.answer())[2]) == {"server_load": counted}
        wire.hang_up()
        await asyncio.sleep(0)
