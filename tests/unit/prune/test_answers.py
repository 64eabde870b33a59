"""Answers put together from streams: as if they had not been streamed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tier_router.prune.answers import answer_in, is_empty, whole_of
from tier_router.prune.audit import Answer


def events(*bodies: Any, done: bool = True) -> bytes:
    lines = [f"data: {json.dumps(body)}\n\n" for body in bodies]
    return "".join([*lines, "data: [DONE]\n\n"] if done else lines).encode()


def delta(index: int = 0, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": more, "finish_reason": finish}]}


def test_deltas_calls_and_usage_are_joined() -> None:
    details = {"cached_tokens": 16}
    usage = {"prompt_tokens": 20, "completion_tokens": 9, "prompt_tokens_details": details}
    text = events(
        delta(role="assistant", content=""),
        delta(content="It is "),
        delta(content="42."),
        delta(tool_calls=[{"index": 0, "id": "a", "function": {"name": "look"}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": '{"n"'}}]),
        delta(tool_calls=[{"index": 1, "id": "b", "function": {"name": "go", "arguments": "{}"}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": ": 1}"}}]),
        delta(finish="length"),
        {"choices": [], "usage": usage},
    )
    assert answer_in(text, stream=True) == Answer(
        text="It is 42.", calls=(("look", '{"n": 1}'), ("go", "{}")), completion_tokens=9,
        cached_tokens=16, prompt_tokens=20, at_limit=True,
    )  # fmt: skip


@given(st.lists(st.text(), max_size=8))
def test_a_stream_says_what_the_whole_says(parts: list[str]) -> None:
    text = events(*(delta(content=part) for part in parts), delta(finish="stop"))
    body = {"choices": [{"message": {"content": "".join(parts)}, "finish_reason": "stop"}]}
    whole = answer_in(json.dumps(body).encode(), stream=False)
    assert answer_in(text, stream=True) == whole


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"data: {",
        events(delta(content="half"), done=False),
        events({"error": {"message": "died"}}),
        events(delta(content="x"), {"error": {"message": "died"}}),
        events([], {"choices": 3}, {"choices": [None]}),
    ],
)
def test_what_is_not_whole_is_no_answer(text: bytes) -> None:
    assert answer_in(text, stream=True) is None


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b'{"object": "error"}', b"[" * 100_000])
def test_what_is_no_chat_completion_is_no_answer(text: bytes) -> None:
    assert whole_of(text, stream=False) is None
    assert not is_empty(text, stream=False)


def test_only_thoughts_are_no_answer_and_calls_are_one() -> None:
    call = {"index": 0, "function": {"name": "f", "arguments": "{}"}}
    assert is_empty(events(delta(reasoning="hm"), delta(finish="stop")), stream=True)
    assert not is_empty(events(delta(content="yes"), delta(finish="stop")), stream=True)
    calling = events(delta(reasoning="hm", tool_calls=[call]), delta(finish="tool_calls"))
    assert not is_empty(calling, stream=True)
