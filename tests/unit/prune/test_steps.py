"""Each step on small inputs that a person wrote."""

from __future__ import annotations

import json

import pytest

from tests.unit.prune.tools import (
    ALL_KNOWN,
    Router,
    called,
    chat,
    planned,
    pruned,
    settings,
    tier,
    user,
)
from tier_router.config.pruning import Caps, Step
from tier_router.prune.plan import Known, Template, apply
from tier_router.prune.steps.caps import Lengths
from tier_router.prune.steps.fold import folded
from tier_router.prune.steps.reasoning import misfired, template_of
from tier_router.prune.steps.schema import slim
from tier_router.view import view_of

PRETTY = json.dumps([{"id": n, "price": 1.50, "note": "a  b"} for n in range(6)], indent=4)


def test_json_loses_the_white_space_between_values_and_nothing_else() -> None:
    text = '{"a" : 1.50, "a": 2e5,\n "s" : "x  \\u00e9 y"}'
    assert folded(text) == '{"a":1.50,"a":2e5,"s":"x  \\u00e9 y"}'
    assert json.loads(folded(PRETTY)) == json.loads(PRETTY)


@pytest.mark.parametrize("text", ['{"a": NaN}', "[1, 2", '{"a": 1} {"b": 2}', "{not json}"])
def test_what_is_no_json_keeps_its_inner_blanks(text: str) -> None:
    assert folded(text) == text


def test_blanks_at_line_ends_go_and_code_stays() -> None:
    assert folded("one  \ntwo\t\n\n\n\n\n\nthree ") == "one\ntwo\n\n\nthree"
    code = "def f():  \n    return 1  \nimport x\nclass A:  \n"
    assert folded(code) == code


def test_folding_reaches_tool_results_only() -> None:
    body = chat(user(PRETTY), called("1", "look", PRETTY), {"role": "assistant", "content": PRETTY})
    sent = pruned(body)
    changed = [old != new for old, new in zip(body["messages"], sent["messages"], strict=True)]
    assert changed == [False, False, True, False]
    assert sent["messages"][2]["content"] == folded(PRETTY)


def test_anthropics_tool_results_are_folded_too() -> None:
    use = {"type": "tool_use", "id": "1", "name": "look", "input": {"q": 1}}
    result = {"type": "tool_result", "tool_use_id": "1",
              "content": [{"type": "text", "text": PRETTY}]}  # fmt: skip
    body = chat(user("hi"), {"role": "assistant", "content": [use]}, user([result]), system="Be.")
    sent = pruned(body)
    assert sent["messages"][2]["content"][0]["content"][0]["text"] == folded(PRETTY)
    assert body["messages"][2]["content"][0]["content"][0]["text"] == PRETTY


def test_a_protected_tool_keeps_its_result() -> None:
    body = chat(user("hi"), called("1", "memory_read", PRETTY))
    config = settings().model_copy(
        update={"protect": settings().protect.model_copy(update={"tools": ("memory_*",)})}
    )
    assert pruned(body, config) is body


SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Args",
    "type": "object",
    "properties": {"title": {"title": "Title", "type": "string", "enum": ["title", "$id"]}},
    "required": ["title"],
}


def test_schemas_lose_keywords_but_no_property_of_that_name() -> None:
    drop = frozenset({"$schema", "title"})
    assert slim(SCHEMA, drop) == {
        "type": "object",
        "properties": {"title": {"type": "string", "enum": ["title", "$id"]}},
        "required": ["title"],
    }


def test_slim_schemas_are_sent_and_the_callers_stay() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": dict(SCHEMA)}}]
    body = chat(user("hi"), tools=tools)
    sent = pruned(body)
    assert "$schema" not in sent["tools"][0]["function"]["parameters"]
    assert tools[0]["function"]["parameters"] == SCHEMA  # type: ignore[index]


def test_an_id_that_a_reference_may_mean_stays() -> None:
    schema = {"$id": "x", "type": "object", "properties": {"a": {"$ref": "x#/a"}}}
    body = chat(user("hi"), tools=[{"function": {"name": "f", "parameters": schema}}])
    assert pruned(body) is body


LONG = ("row of a table with words " * 60).strip()


def test_the_same_result_again_is_a_pointer_to_the_first() -> None:
    body = chat(user("hi"), called("1", "look", LONG, n=1), called("2", "look", LONG, n=1))
    sent = pruned(body)["messages"]
    assert sent[2]["content"] == LONG
    assert sent[4]["content"].startswith('[Same as the earlier result of look({"n": 1}), about 390')


def test_a_small_equal_result_of_another_call_stays() -> None:
    small = "the answer is forty-two, as ever" * 5
    body = chat(user("hi"), called("1", "look", small, n=1), called("2", "look", small, n=2))
    assert pruned(body) is body


def test_equal_ids_are_matched_in_order() -> None:
    body = chat(user("hi"), called("1", "one", LONG, n=1), called("1", "two", LONG, n=2))
    assert "result of one(" in pruned(body)["messages"][4]["content"]


EASY = Known(easy=True, template=Template.TAIL, thinks=True)


def test_an_easy_request_goes_without_thinking() -> None:
    body = chat(user("What is my balance?"), chat_template_kwargs={"other": 1})
    sent = pruned(body, known=EASY)
    assert sent["chat_template_kwargs"] == {"other": 1, "enable_thinking": False}
    assert body["chat_template_kwargs"] == {"other": 1}


@pytest.mark.parametrize(
    "more",
    [
        {"reasoning_effort": "high"},
        {"thinking_token_budget": 5_000},
        {"reasoning": {"effort": "low"}},
        {"chat_template_kwargs": {"enable_thinking": True}},
        {"chat_template_kwargs": {"thinking": True}},
        {"chat_template_kwargs": "broken"},
    ],
)
def test_what_the_client_said_of_thinking_stays(more: dict[str, object]) -> None:
    body = chat(user("What is my balance?"), **more)
    assert pruned(body, known=EASY) is body


def test_a_switch_in_the_text_is_the_clients_word() -> None:
    body = chat(user("What is my balance? /think"))
    assert pruned(body, known=EASY) is body


def test_hard_requests_and_unprobed_templates_keep_thinking() -> None:
    body = chat(user("Prove it."))
    assert pruned(body, known=Known(easy=False, template=Template.TAIL)) is body
    made = planned(body, known=Known(easy=True))
    assert [each.reason for each in made.abstained] == ["template"]


def test_other_requests_may_get_a_budget() -> None:
    config = settings(reasoning={"mode": "on", "other": {"thinking_token_budget": 8192}})
    sent = pruned(chat(user("Prove it.")), config)
    assert sent["thinking_token_budget"] == 8192


def test_a_switch_at_the_head_of_the_template_never_flips_a_warm_conversation() -> None:
    router = Router()
    hard = Known(template=Template.HEAD)
    easy = Known(easy=True, template=Template.HEAD)
    first = chat(user("Prove that there are infinitely many primes. " * 20))
    router.send(first, known=hard)
    then = chat(*first["messages"], {"role": "assistant", "content": "ok"}, user("thanks"))
    made, sent = router.send(then, known=easy)
    assert sent is then
    assert [each.reason for each in made.abstained] == ["warm"]
    _, elsewhere = router.send(then, "b", known=easy)
    assert elsewhere["chat_template_kwargs"] == {"enable_thinking": False}


def test_a_template_is_told_by_where_its_tokens_part() -> None:
    words = list(range(100))
    assert template_of(words, words) is Template.NONE
    assert template_of([*words, 7], [*words, 8, 9, 9]) is Template.TAIL
    assert template_of([1, *words], [2, *words]) is Template.HEAD


def test_an_answer_that_is_all_reasoning_misfired() -> None:
    def answer(**message: object) -> dict[str, object]:
        return {"choices": [{"message": message}]}

    assert misfired(answer(content=None, reasoning_content="42"))
    assert misfired(answer(content="", reasoning="42"))
    assert not misfired(answer(content="42", reasoning="hm"))
    assert not misfired(answer(content=None, reasoning="hm", tool_calls=[{}]))
    assert not misfired({"choices": []})
    assert not misfired({})


CAPPED = settings(caps="on")


def capped(cap: int, **more: object) -> Known:
    return Known(cap=cap, proven=frozenset({Step.CAPS}), **more)  # type: ignore[arg-type]


def test_a_cap_is_set_where_the_client_set_none() -> None:
    sent = pruned(chat(user("hi")), CAPPED, known=capped(300))
    assert sent["max_completion_tokens"] == 300
    for field in ("max_tokens", "max_completion_tokens"):
        body = chat(user("hi"), **{field: 5})
        assert pruned(body, CAPPED, known=capped(300)) is body


def test_no_cap_where_half_an_answer_is_none() -> None:
    for more in ({"tools": [{"x": 1}]}, {"response_format": {"type": "json_object"}}):
        body = chat(user("hi"), **more)
        made = planned(body, CAPPED, known=capped(300))
        assert apply(made, body) is body
        assert "shaped" in [each.reason for each in made.abstained]
    body = chat(user("hi"))
    assert pruned(body, CAPPED, known=capped(300, thinks=True)) is body


def test_a_cap_without_proof_is_only_observed() -> None:
    made = planned(chat(user("hi")), CAPPED, known=Known(cap=300))
    assert not made.changes
    assert [edit.step for edit in made.observed] == [Step.CAPS]


def test_caps_are_learned_from_enough_answers_and_doubled_when_they_cut() -> None:
    lengths = Lengths(Caps(need=600))
    for written in range(599):
        lengths.answered("light", None, written, None, False)
    assert lengths.cap("light", None) is None
    lengths.answered("light", None, 599, None, False)
    cap = lengths.cap("light", None)
    assert cap == 896  # the 99.5 % quantile, 597, times 1.5, rounded up
    assert lengths.cap("heavy", None) is None
    for _ in range(198):
        lengths.answered("light", None, 10, cap, False)
    for _ in range(2):
        lengths.answered("light", None, 896, cap, True)
    doubled = lengths.cap("light", None)
    assert doubled is not None
    assert doubled > 1_700


def test_caps_are_not_below_a_floor() -> None:
    lengths = Lengths(Caps(need=100))
    for _ in range(100):
        lengths.answered("light", "yes_no", 1, None, False)
    assert lengths.cap("light", "yes_no") == 64


def turn(number: int) -> list[dict[str, object]]:
    return [user(f"question {number} " * 40), {"role": "assistant", "content": "answer " * 60}]


def test_old_turns_go_only_where_a_request_would_not_fit() -> None:
    body = chat({"role": "system", "content": "Be."}, *map(turn, range(6)), user("and now?"))
    config = settings(turns="on")
    assert pruned(body, config, tier=tier(context=100_000)) is body
    made = planned(body, config, tier=tier(context=1_200))
    sent = apply(made, body)
    assert made.fits
    assert sent["messages"][0] == body["messages"][0]
    assert sent["messages"][1] == body["messages"][1], "the first human turn stays"
    assert sent["messages"][-3:] == body["messages"][-3:]
    assert 0 < len(made.turns) < 10
    assert pruned(body, tier=tier(context=1_200)) is body, "off unless asked for"


def test_turns_go_with_their_tool_calls() -> None:
    parts = [[user(f"q{n} " * 50), *called(str(n), "look", "row " * 100, n=n)] for n in range(5)]
    body = chat(*parts, user("and now?"))
    made = planned(body, settings(turns="on", results="off"), tier=tier(context=900))
    sent = apply(made, body)
    asked = [c["id"] for m in sent["messages"] for c in m.get("tool_calls", ())]
    given = [m["tool_call_id"] for m in sent["messages"] if m["role"] == "tool"]
    assert made.turns
    assert asked == given


TOOLS = [
    {"type": "function", "function": {"name": f"{what}_tool", "description": f"{what} {what}s"}}
    for what in ("weather", "calendar", "email", "music", "stock", "map", "recipe", "flight",
                 "hotel", "news", "photo", "note", "timer", "joke", "quote", "poem")
]  # fmt: skip


def test_tool_lists_are_ranked_and_cut_only_by_a_calibrated_number() -> None:
    body = chat(user("what is the weather in Rome"), tools=TOOLS)
    made = planned(body)
    assert made.ranking[0] == "weather_tool"
    assert not made.changes
    config = settings(tools={"mode": "on", "keep": 5, "always_keep": ["poem*"]})
    names = [tool["function"]["name"] for tool in pruned(body, config)["tools"]]
    assert "weather_tool" in names
    assert "poem_tool" in names
    assert len(names) <= 6
    assert names == [n for n in (t["function"]["name"] for t in TOOLS) if n in names]  # type: ignore[index]


def test_a_cut_tool_list_stays_the_same_through_a_conversation() -> None:
    config = settings(tools={"mode": "on", "keep": 5})
    first = chat(user("what is the weather in Rome"), tools=TOOLS)
    later = chat(*first["messages"], *called("1", "music_tool", "ok"), user("play"), tools=TOOLS)
    one, two = (pruned(body, config)["tools"] for body in (first, later))
    assert [t for t in two if t in one] == one
    assert "music_tool" in [tool["function"]["name"] for tool in two], "called before"


def test_a_shared_list_that_is_warm_is_left_whole() -> None:
    router = Router(settings(tools="off"))
    whole = chat(user("play some music please " * 30), tools=TOOLS)
    router.send(whole)
    router.config = settings(tools={"mode": "on", "keep": 3})
    made, sent = router.send(chat(user("what is the weather"), tools=TOOLS))
    assert sent["tools"] is TOOLS
    assert "warm" in [each.reason for each in made.abstained]


def test_tools_need_a_number_before_they_are_on() -> None:
    with pytest.raises(ValueError, match="keep"):
        settings(tools="on")


def test_a_forced_tool_choice_keeps_the_list() -> None:
    config = settings(tools={"mode": "on", "keep": 3})
    body = chat(user("weather"), tools=TOOLS, tool_choice="required")
    assert pruned(body, config) is body


def test_context_that_is_nearly_full_is_no_reason_to_read_a_warm_prompt_again() -> None:
    results = [called(str(n), "look", f"row {n} of it " * 400, n=n) for n in range(8)]
    config = settings(results={"mode": "on", "keep_last": 2, "clear_at_least": 500})
    router, small = Router(config), tier(context=10_000)
    body = chat(user("go on"), *results)
    made, _ = router.send(body, tier=small)
    cleared = [edit.message for edit in made.sent if edit.step is Step.RESULTS]
    assert cleared, "nothing was warm, and the context is over four fifths full"
    again, _ = router.send(chat(*body["messages"], user("more")), tier=small)
    assert again.uncached_after < 100
    assert [e.message for e in again.sent if e.step is Step.RESULTS] == cleared


def test_a_written_limit_counts_as_need_of_room() -> None:
    body = chat(*map(turn, range(6)), user("and now?"), max_tokens=2_000)
    made = planned(body, settings(turns="on"), view=view_of(body), tier=tier(context=2_500))
    assert made.turns


def test_known_is_asked_for_proof_of_each_lossy_step() -> None:
    made = planned(chat(user("hi")), settings(caps="on"), known=Known(cap=9))
    assert made.modes[Step.RAG] == "observe"
    assert planned(chat(user("hi")), known=ALL_KNOWN).modes[Step.RAG] == "on"
