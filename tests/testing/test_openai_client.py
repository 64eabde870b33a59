"""OpenAI's own client against the fake."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from tier_router.testing import BUSY, TOO_MANY, Engine, FakeVllm, Speed

HELLO: Any = [{"role": "user", "content": "hello there"}]


@pytest.fixture
async def client(light: FakeVllm) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=f"{light.url}/v1", api_key="none", max_retries=0
    ) as opened:
        yield opened


async def test_chat(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model="light", messages=HELLO)
    assert answer.choices[0].message.content is not None
    assert answer.choices[0].message.content.startswith("light answers:")
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


async def test_a_stream_says_what_the_whole_answer_says(client: openai.AsyncOpenAI) -> None:
    whole = await client.chat.completions.create(model="light", messages=HELLO, max_tokens=12)
    stream = await client.chat.completions.create(
        model="light", messages=HELLO, max_tokens=12, stream=True,
        stream_options={"include_usage": True},
    )  # fmt: skip
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage or chunks[-1].usage is not None
    assert chunks[-2].choices[0].finish_reason == "length"
    assert len(chunks) == 14  # role, 12 tokens, usage
    assert len({chunk.id for chunk in chunks}) == 1


async def test_usage_in_every_chunk(client: openai.AsyncOpenAI) -> None:
    options: Any = {"include_usage": True, "continuous_usage_stats": True}
    stream = await client.chat.completions.create(
        model="light", messages=HELLO, max_tokens=3, stream=True, stream_options=options
    )
    counts = [chunk.usage.completion_tokens async for chunk in stream if chunk.usage]
    assert counts == [0, 1, 2, 3, 3]


async def test_several_choices(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model="light", messages=HELLO, n=3)
    texts = {choice.message.content for choice in answer.choices}
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len(texts) == 3
    stream = await client.chat.completions.create(model="light", messages=HELLO, n=3, stream=True)
    heard = {0: "", 1: "", 2: ""}
    async for chunk in stream:
        heard[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert set(heard.values()) == texts


async def test_tools(client: openai.AsyncOpenAI) -> None:
    tools: Any = [
        {
            "type": "function",
            "function": {
                "name": name,
                "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}},
            },
        }
        for name in ("first", "second")
    ]
    named = {"type": "function", "function": {"name": "second"}}
    choices: list[Any] = ["auto", "required", named]
    for choice, name in zip(choices, ("first", "first", "second"), strict=True):
        answer = await client.chat.completions.create(
            model="light", messages=HELLO, tools=tools, tool_choice=choice
        )
        calls: Any = answer.choices[0].message.tool_calls
        assert (calls[0].function.name, calls[0].function.arguments) == (name, '{"n": 1}')
        assert answer.choices[0].message.content is None
    stream = await client.chat.completions.create(
        model="light", messages=HELLO, tools=tools, stream=True
    )
    pieces: list[Any] = [
        call async for chunk in stream for call in chunk.choices[0].delta.tool_calls or ()
    ]
    assert pieces[0].id.startswith("chatcmpl-tool-")
    assert "".join(piece.function.arguments or "" for piece in pieces) == '{"n": 1}'
    none = await client.chat.completions.create(
        model="light", messages=HELLO, tools=tools, tool_choice="none"
    )
    assert none.choices[0].message.content


async def test_prescribed_forms(client: openai.AsyncOpenAI) -> None:
    schema = {"type": "object", "properties": {"tier": {"enum": ["light", "heavy"]}}}
    form: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    answer = await client.chat.completions.create(
        model="light", messages=HELLO, response_format=form
    )
    assert answer.choices[0].message.content == '{"tier": "light"}'
    answer = await client.chat.completions.create(
        model="light", messages=HELLO,
        extra_body={"structured_outputs": {"choice": ["heavy", "light"]}},
    )  # fmt: skip
    assert answer.choices[0].message.content == "heavy"


@pytest.mark.parametrize(
    "asked", [{"chat_template_kwargs": {"enable_thinking": True}}, {"reasoning_effort": "low"}]
)
async def test_reasoning(client: openai.AsyncOpenAI, asked: dict[str, Any]) -> None:
    answer = await client.chat.completions.create(model="light", messages=HELLO, extra_body=asked)
    message: Any = answer.choices[0].message
    assert message.reasoning.startswith("light thinks:")
    assert message.content.startswith("light answers:")
    assert answer.usage is not None
    assert answer.usage.completion_tokens_details is not None
    assert answer.usage.completion_tokens_details.reasoning_tokens == 32
    quiet = await client.chat.completions.create(
        model="light", messages=HELLO, extra_body={"reasoning_effort": "none"}
    )
    assert quiet.choices[0].message.content


async def test_completions_and_models(client: openai.AsyncOpenAI) -> None:
    answer = await client.completions.create(model="light", prompt=["a", "b"], max_tokens=3)
    assert len(answer.choices) == 2
    stream = await client.completions.create(model="light", prompt="a", max_tokens=3, stream=True)
    text = "".join([chunk.choices[0].text async for chunk in stream])
    assert text == answer.choices[0].text
    listed = await client.models.list()
    assert [model.id for model in listed.data] == ["light", "tiny-light", "alias-small"]


@pytest.mark.parametrize(
    ("more", "raises"),
    [
        ({"model": "nope"}, openai.NotFoundError),
        ({"max_tokens": 0}, openai.BadRequestError),
        ({"messages": []}, openai.BadRequestError),
        ({"messages": [{"role": "user", "content": "x" * 50_000}]}, openai.BadRequestError),
    ],
)
async def test_errors(client: openai.AsyncOpenAI, more: Any, raises: type[Exception]) -> None:
    with pytest.raises(raises):
        await client.chat.completions.create(**{"model": "light", "messages": HELLO, **more})


async def test_errors_on_demand(client: openai.AsyncOpenAI, light: FakeVllm) -> None:
    light.faults.add(BUSY)
    with pytest.raises(openai.InternalServerError, match="currently busy"):
        await client.chat.completions.create(model="light", messages=HELLO)
    light.faults.add(TOO_MANY)
    with pytest.raises(openai.RateLimitError):
        await client.chat.completions.create(model="light", messages=HELLO)
    assert (await client.with_options(max_retries=1).chat.completions.create(
        model="light", messages=HELLO
    )).choices  # fmt: skip


async def test_a_wrong_key() -> None:
    async with (
        FakeVllm(api_key="right") as fake,
        openai.AsyncOpenAI(base_url=f"{fake.url}/v1", api_key="wrong", max_retries=0) as client,
    ):
        with pytest.raises(openai.AuthenticationError):
            await client.models.list()


async def test_the_answer_can_be_given(ask: Any) -> None:
    def echo(body: dict[str, Any]) -> str:
        return f"you said: {body['messages'][-1]['content']}"

    async with (
        FakeVllm("light", answer=echo) as fake,
        openai.AsyncOpenAI(base_url=f"{fake.url}/v1", api_key="none") as client,
    ):
        answer = await client.chat.completions.create(model="light", messages=HELLO)
        assert answer.choices[0].message.content == "you said: hello there"
        assert answer.choices[0].finish_reason == "stop"


async def test_real_time_follows_the_model(ask: Any) -> None:
    speed = Speed(prefill=1e6, step=0.02)
    model = Engine(speed)
    alone = model.submit(10, 10)
    model.advance(10)
    async with (
        FakeVllm("light", speed=speed) as fake,
        openai.AsyncOpenAI(base_url=f"{fake.url}/v1", api_key="none") as client,
    ):
        answer: Any = await client.chat.completions.create(
            model="light", messages=HELLO, max_tokens=10, extra_body={"ignore_eos": True}
        )
        seen = fake.requests[0]
        assert seen.finished_at is not None
        assert alone.last_at is not None
        assert alone.last_at <= seen.finished_at - seen.started_at < alone.last_at + 1
        assert answer.metrics["mean_itl_ms"] == pytest.approx(20)


async def test_time_can_be_scaled() -> None:
    async with (
        FakeVllm("light", speed=Speed(step=0.1), scale=50) as fake,
        openai.AsyncOpenAI(base_url=f"{fake.url}/v1", api_key="none") as client,
    ):
        await client.chat.completions.create(
            model="light", messages=HELLO, max_tokens=20, extra_body={"ignore_eos": True}
        )
        seen = fake.requests[0]
        assert seen.finished_at is not None
        assert seen.finished_at - seen.started_at < 1
        assert fake.engine.now >= 2
