"""What holds for every body: nothing that matters changes, and nothing ever raises."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import HealthCheck, assume, given
from hypothesis import settings as runs
from hypothesis import strategies as st

from tests.unit.prune.tools import (
    ALL_KNOWN,
    ON,
    PASSAGES,
    VIEW,
    Body,
    called,
    chat,
    planned,
    retrieved,
    tier,
    user,
)
from tier_router.config.pruning import Pruning, Step
from tier_router.prune.pipeline import plan
from tier_router.prune.plan import Known, Template, apply
from tier_router.prune.recognise import LEFT_OUT
from tier_router.prune.warm import COLD

QUICK = runs(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
OFF = Pruning.model_validate({"mode": "off"})
EASY = Known(easy=True, template=Template.TAIL, cap=100, proven=ALL_KNOWN.proven)

lines = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
questions = st.sampled_from([title for title, _ in PASSAGES])
results = st.one_of(
    lines,
    st.builds(lambda rows: json.dumps(rows, indent=2), st.lists(st.dictionaries(lines, lines))),
    st.builds(
        lambda word, n: word * n, st.sampled_from(["row ", "漢字", "x = 1\n"]), st.integers(1, 400)
    ),
    questions.map(lambda title: retrieved(f"What is a {title}?")),
)
humans = st.one_of(lines, questions.map(lambda title: retrieved(f"What is a {title}?")))
turns = st.one_of(
    humans.map(lambda text: [user(text)]),
    lines.map(lambda text: [{"role": "assistant", "content": text}]),
    st.builds(lambda n, text, q: called(f"c{n}", "look", text, q=q),
              st.integers(0, 3), results, st.integers(0, 2)),
)  # fmt: skip
bodies = st.builds(
    lambda system, parts: chat(
        *([{"role": "system", "content": system}] if system else []), *parts
    ),
    st.one_of(st.none(), lines),
    st.lists(turns, min_size=1, max_size=8),
)

junk = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["role", "content", "type", "text", "tool_calls", "function", "name",
                             "arguments", "id", "tool_call_id", "cache_control"]),
            inner, max_size=4),
    ),
    max_leaves=12,
)  # fmt: skip
broken = st.fixed_dictionaries(
    {"messages": st.one_of(junk, st.lists(junk, max_size=4))},
    optional={"tools": junk, "system": junk, "chat_template_kwargs": junk, "max_tokens": junk},
)


@QUICK
@given(bodies)
def test_calls_keep_their_results_and_humans_their_words(body: Body) -> None:
    before = copy.deepcopy(body)
    made = planned(body)
    sent = apply(made, body)
    assert made.failed == ""
    assert body == before, "the caller's own body is never changed"
    assert len(sent["messages"]) == len(body["messages"])
    for old, new in zip(body["messages"], sent["messages"], strict=True):
        same = {key: value for key, value in new.items() if key != "content"}
        assert same == {key: value for key, value in old.items() if key != "content"}
        if old["role"] in ("system", "assistant") or (
            old["role"] == "user" and LEFT_OUT not in new["content"]
        ):
            assert new["content"] == old["content"]


@QUICK
@given(bodies)
def test_nothing_grows(body: Body) -> None:
    made = planned(body)
    sent = apply(made, body)
    for old, new in zip(body["messages"], sent["messages"], strict=True):
        assert len(new["content"] or "") <= len(old["content"] or "")
    assert made.tokens_after <= made.tokens_before
    assert made.uncached_after <= made.uncached_before


@QUICK
@given(bodies)
def test_twice_is_once(body: Body) -> None:
    once = apply(planned(body, known=EASY), body)
    assert apply(planned(once, known=EASY), once) is once


@QUICK
@given(bodies, st.integers(1, 8))
def test_what_is_sent_of_a_prefix_does_not_depend_on_what_follows(body: Body, count: int) -> None:
    messages = body["messages"]
    assume("<!-- keep -->" not in json.dumps(messages))  # a mark freezes what is before it
    start = {**body, "messages": messages[:count]}
    whole, part = apply(planned(body), body), apply(planned(start), start)
    assert part["messages"] == whole["messages"][: len(start["messages"])]


@QUICK
@given(st.one_of(bodies, broken))
def test_off_is_the_very_same_body(body: Body) -> None:
    assert apply(plan(body, VIEW, tier(), COLD, OFF), body) is body


@QUICK
@given(st.one_of(bodies, broken))
def test_observing_is_the_very_same_body(body: Body) -> None:
    made = plan(body, VIEW, tier(), COLD, Pruning(), known=EASY)
    assert apply(made, body) is body


@runs(QUICK, max_examples=300)
@given(broken)
def test_no_body_ever_raises(body: Any) -> None:
    made = plan(body, VIEW, tier(context=1_000), COLD, ON, known=EASY)
    sent = apply(made, body)
    if made.failed:
        assert sent is body
    assert not made.failed.startswith("invariant")


@QUICK
@given(bodies, st.integers(0, 8), st.booleans())
def test_nothing_before_a_mark_changes(body: Body, at: int, by_marker: bool) -> None:
    messages = list(body["messages"])
    if by_marker:
        mark: Body = user("this <!-- keep --> stays")
    else:
        mark = user([{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}])
    at = min(at, len(messages))
    messages.insert(at, mark)
    marked = {**body, "messages": messages}
    sent = apply(planned(marked), marked)
    assert sent["messages"][: at + 1] == messages[: at + 1]


@QUICK
@given(bodies)
def test_the_record_of_a_plan_holds_no_text(body: Body) -> None:
    from tier_router.prune.report import record

    secret = "zyxwv-secret"
    messages = [*body["messages"], user(f"{secret} " + retrieved("What is a Clarinet?"))]
    made = planned({**body, "messages": messages}, Pruning(), clock=lambda: 0.0)
    assert made.observed
    assert secret not in json.dumps(record(made))
    assert {edit.step for edit in made.observed} >= {Step.RAG}
