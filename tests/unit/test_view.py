"""What routing knows of a request."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tier_router.errors import RequestError
from tier_router.request import Kind, Need
from tier_router.view import EARLIER_TURNS, tokens_of, view_of

HARD = "Prove that every bounded monotone sequence converges."


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def chat(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "auto", "messages": list(messages), **more}


# ---- content in all its shapes


@pytest.mark.parametrize(
    "content",
    [
        "hi",
        [{"type": "text", "text": "hi"}],
        [{"type": "input_text", "text": "hi"}],
        ["hi"],
        {"type": "text", "text": "hi"},
        [{"type": "text", "text": "hi"}, {"type": "something_new", "x": 1}],
        [{"type": "text", "text": "hi"}, {"type": "text", "text": None}],
    ],
)
def test_text_is_found_in_every_shape(content: Any) -> None:
    view = view_of(chat(user(content)))
    assert (view.kind, view.turn.text.strip()) == (Kind.HUMAN, "hi")


@pytest.mark.parametrize("content", [None, "", [], [{"type": "text", "text": ""}], "  \n"])
def test_no_text_is_nothing_to_judge(content: Any) -> None:
    view = view_of(chat(user(content)))
    assert (view.kind, view.turn.text) == (Kind.NONE, "")


def test_several_parts_are_one_turn() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert view_of(chat(user(parts))).turn.text == "one\ntwo"


def test_an_image_alone_needs_vision_and_is_not_judged_by_older_text() -> None:
    image = [{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]
    view = view_of(chat(user(HARD), {"role": "assistant", "content": "."}, user(image)))
    assert (view.kind, view.turn.text, view.turn.media) == (Kind.HUMAN, "", 1)
    assert view.needs == {Need.VISION}
    assert [turn.text for turn in view.earlier] == [HARD]


def test_five_megabytes_of_image_are_not_text() -> None:
    url = "data:image/png;base64," + "iVBORw0KGgoAAAANSUhEUg" * 240_000
    parts = [
        {"type": "text", "text": "what is it?"},
        {"type": "image_url", "image_url": {"url": url}},
    ]
    view = view_of(chat(user(parts)))
    assert view.turn.text == "what is it?"
    assert view.tokens < 2_000


def test_an_anthropic_image_and_a_sound() -> None:
    parts = [
        {"type": "image", "source": {"type": "base64", "data": "x" * 1000}},
        {"type": "input_audio", "input_audio": {"data": "x" * 1000, "format": "wav"}},
    ]
    assert view_of(chat(user(parts))).needs == {Need.VISION, Need.AUDIO}


# ---- who speaks


def test_the_system_prompt_is_never_judged() -> None:
    system = "You implement distributed consensus. def prove(theorem): ..." * 50
    view = view_of(chat({"role": "system", "content": system}, user("hi")))
    assert (view.kind, view.turn.text) == (Kind.HUMAN, "hi")


@pytest.mark.parametrize("role", ["system", "developer"])
def test_system_only_is_nobody(role: str) -> None:
    assert view_of(chat({"role": role, "content": HARD})).kind is Kind.NONE


def test_an_assistant_call_without_content_and_its_tool_result() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    view = view_of(
        chat(
            user(HARD),
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "42"},
        )
    )
    assert (view.kind, view.turn.text) == (Kind.TOOL, HARD)


def test_a_tool_result_inside_a_user_turn() -> None:
    result = {"type": "tool_result", "tool_use_id": "t", "content": "npm ERR! code 1"}
    calls = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}],
    }
    view = view_of(chat(user(HARD), calls, user([result])))
    assert (view.kind, view.turn.text) == (Kind.TOOL, HARD)


def test_words_beside_a_tool_result_are_a_human_turn() -> None:
    result = {"type": "tool_result", "tool_use_id": "t", "content": "ok"}
    view = view_of(chat(user(HARD), user([result, {"type": "text", "text": "thanks!"}])))
    assert (view.kind, view.turn.text) == (Kind.HUMAN, "thanks!")


def test_a_reminder_beside_a_tool_result_is_not() -> None:
    parts = [
        {"type": "tool_result", "tool_use_id": "t", "content": "ok"},
        {"type": "text", "text": "<system-reminder>the file was changed</system-reminder>"},
    ]
    assert view_of(chat(user(HARD), user(parts))).kind is Kind.TOOL


def test_a_reminder_around_a_question() -> None:
    text = f"<system-reminder>{HARD * 20}</system-reminder>\nwhat time is it?"
    assert view_of(chat(user(text))).turn.text == "what time is it?"


def test_earlier_human_turns_come_oldest_first_and_bounded() -> None:
    turns = [user(f"question {n}") for n in range(20)]
    view = view_of(chat(*turns))
    assert view.turn.text == "question 19"
    assert [turn.text for turn in view.earlier] == [f"question {n}" for n in range(13, 19)]
    assert len(view.earlier) == EARLIER_TURNS


@pytest.mark.parametrize(
    "body",
    [
        chat(
            {"role": "system", "content": "You generate titles."},
            user(f"Generate a concise 5-word title for this conversation:\n\n{HARD * 30}"),
        ),
        chat(user(f"{HARD * 30}\n\nSuggest 3 follow-up questions based on the chat history.")),
        chat(
            {
                "role": "system",
                "content": "Analyze if this message indicates a new conversation topic. If it "
                "does, extract a 2-3 word title of the conversation.",
            },
            user(HARD),
        ),
        chat(user(f"Create a short title summarising the dialog below.\n{HARD}")),
    ],
)
def test_a_title_call_is_housekeeping(body: dict[str, Any]) -> None:
    assert view_of(body).kind is Kind.HOUSEKEEPING


@pytest.mark.parametrize(
    "text",
    [
        "What is the title of Kant's main work?",
        "Suggest three book titles about the history of chess and compare their theses.",
        "Prove the theorem and give the proof a name.",
    ],
)
def test_a_question_about_titles_is_not(text: str) -> None:
    assert view_of(chat(user(text))).kind is Kind.HUMAN


# ---- other shapes


def test_completions_take_text_texts_and_tokens() -> None:
    assert view_of({"prompt": HARD}).turn.text == HARD
    assert view_of({"prompt": ["a", "b"]}).turn.text == "a\nb"
    for prompt in ([1, 2, 3], [[1, 2], [3]]):
        view = view_of({"prompt": prompt})
        assert (view.kind, view.tokens) == (Kind.NONE, 3)


def test_responses_take_text_and_items() -> None:
    assert view_of({"input": HARD, "instructions": "be brief"}).turn.text == HARD
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": HARD}]},
        {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "1"},
        {"type": "function_call_output", "call_id": "1", "output": "42"},
    ]
    view = view_of({"input": items})
    assert (view.kind, view.turn.text) == (Kind.TOOL, HARD)


def test_messages_have_their_system_apart() -> None:
    body = {
        "system": [{"type": "text", "text": "x" * 400}],
        "messages": [user("hi")],
        "max_tokens": 9,
    }
    view = view_of(body)
    assert (view.turn.text, view.max_tokens) == ("hi", 9)
    assert view.tokens > 100


# ---- needs and numbers


@pytest.mark.parametrize(
    ("more", "need"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, Need.TOOLS),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, Need.JSON),
        ({"structured_outputs": {"choice": ["a", "b"]}}, Need.JSON),
        ({"logprobs": True, "top_logprobs": 3}, Need.LOGPROBS),
        ({"reasoning_effort": "high"}, Need.REASONING),
        ({"chat_template_kwargs": {"enable_thinking": True}}, Need.REASONING),
        ({"thinking": {"type": "enabled", "budget_tokens": 1000}}, Need.REASONING),
        ({"modalities": ["text", "audio"]}, Need.AUDIO),
    ],
)
def test_parameters_say_what_is_needed(more: dict[str, Any], need: Need) -> None:
    assert view_of(chat(user("hi"), **more)).needs == {need}


@pytest.mark.parametrize(
    "more",
    [
        {"tools": []},
        {"tools": [{"type": "function"}], "tool_choice": "none"},
        {"response_format": {"type": "text"}},
        {"logprobs": False},
        {"reasoning_effort": "none"},
    ],
)
def test_what_is_switched_off_is_not_needed(more: dict[str, Any]) -> None:
    assert view_of(chat(user("hi"), **more)).needs == frozenset()


def test_choices_and_limits() -> None:
    view = view_of(chat(user("hi"), n=3, stream=True, max_tokens=10, max_completion_tokens=20))
    assert (view.n, view.stream, view.max_tokens) == (3, True, 20)


def test_tokens_grow_with_the_scripts_density() -> None:
    assert tokens_of("word " * 400) == 500
    assert tokens_of("证明" * 100) >= 190
    assert tokens_of("") == 0


@pytest.mark.parametrize("text", ["证明 abc ", "é", "word слово ", "🙂 a"])
def test_a_long_texts_tokens_are_estimated_from_a_sample(text: str) -> None:
    short, long = tokens_of(text * 100), tokens_of(text * 100_000)
    assert long == pytest.approx(1_000 * short, rel=0.05)


def test_pins_and_headers_are_seen() -> None:
    view = view_of(chat(user("hi")), {"x-tier-router-tier": "heavy", "x-plan": "gold"})
    assert (view.model, view.header, view.headers["x-plan"]) == ("auto", "heavy", "gold")


def test_one_conversation_has_one_key() -> None:
    system = {"role": "system", "content": "You help."}
    first = view_of(chat(system, user("one")))
    later = view_of(chat(system, user("one"), {"role": "assistant", "content": "."}, user("two")))
    other = view_of(chat(system, user("uno")))
    assert first.key == later.key != other.key


def test_the_body_is_never_changed() -> None:
    body = chat(user([{"type": "text", "text": "hi"}]), tools=[{"type": "function"}])
    before = json.dumps(body)
    view_of(body)
    assert json.dumps(body) == before


# ---- what is refused


def test_limits_below_zero_are_no_limits_and_count_nothing() -> None:
    view = view_of({"prompt": "x", "n": -5, "max_tokens": -1})
    assert (view.n, view.max_tokens) == (1, None)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": ["hi"]}, "messages[0]"),
        ({"messages": [{"role": 1, "content": "x"}]}, "messages[0].role"),
        ({"messages": [user(5)]}, "messages[0].content"),
        ({"messages": [user([5])]}, "messages[0].content[0]"),
        ({"messages": [user([{"type": "text", "text": 5}])]}, "messages[0].content[0].text"),
        ({"messages": [user("x") | {"type": []}]}, "messages[0].type"),
        ({"messages": [user([{"type": {}}])]}, "messages[0].content[0].type"),
        ({"messages": [user("x")], "model": 5}, "model"),
        ({"messages": [user("x")], "stream": "yes"}, "stream"),
        ({"messages": [user("x")], "n": True}, "n"),
        ({"messages": [user("x")], "max_tokens": "9"}, "max_tokens"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": "x", "n": 16_385}, "n"),
        ({"prompt": "x", "max_tokens": 10**400}, "max_tokens"),
        ({"prompt": "x", "priority": -(2**63)}, "priority"),
        ({"prompt": "x", "max_completion_tokens": 5, "max_tokens": "x"}, "max_tokens"),
        ({"input": 5}, "input"),
    ],
)
def test_a_wrong_type_is_named(body: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        view_of(body)
    assert caught.value.param == param


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["role", "type", "text", "content", "tool_calls", "output", "input"])
            | st.text(max_size=5),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(
    st.dictionaries(
        st.sampled_from(
            ["messages", "input", "prompt", "system", "tools", "model", "n", "stream", "reasoning",
             "text", "response_format", "max_tokens", "modalities", "thinking", "logprobs"]
        ),
        JSON,
    )
)  # fmt: skip
def test_any_body_is_viewed_or_refused(body: dict[str, Any]) -> None:
    try:
        view = view_of(body)
    except RequestError as error:
        assert error.param  # noqa: PT017  either outcome is right; a refusal names the field
    else:
        assert view.tokens >= 0
        assert 0 <= view.key < 2**64


@pytest.mark.parametrize(
    "role", ["system", "developer", "user", "assistant", "tool", "function", "x"]
)
def test_a_plain_message_is_read_as_one_with_more_in_it(role: str) -> None:
    first = {"role": "user", "content": "what is my balance?"}
    plain = {"role": role, "content": "and one thing more, déjà vu"}
    more = plain | {"name": "somebody"}
    assert view_of({"messages": [first, plain]}) == view_of({"messages": [first, more]})
