"""Observe as proof: audits, bounds, what may be on, and what is told of it."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests.unit.prune.tools import (
    ALL_KNOWN,
    VIEW,
    Body,
    called,
    chat,
    planned,
    retrieved,
    settings,
    tier,
    user,
)
from tier_router.config.pruning import HEADER, Mode, Promote, Pruning, Step
from tier_router.prune.audit import (
    Answer,
    Audit,
    Audits,
    Count,
    Finding,
    answer_of,
    audit,
    overrides,
    ready,
    refusals,
)
from tier_router.prune.bound import enough, upper
from tier_router.prune.check import violated
from tier_router.prune.pipeline import plan
from tier_router.prune.plan import Edit, Known, Plan, Template, apply
from tier_router.prune.report import Tally, book_of, header, record
from tier_router.prune.score import Scorer
from tier_router.prune.steps.tools import described, ranked
from tier_router.prune.units import read
from tier_router.prune.warm import COLD
from tier_router.view import view_of


@pytest.mark.parametrize(
    ("lost", "audits", "bound"),
    [  # 1 - 0.05 ** (1 / n) for none lost; the others from the beta distribution's quantile
        (0, 600, 0.0049804),
        (0, 300, 0.0099360),
        (0, 1, 0.95),
        (1, 100, 0.0465598),
        (5, 50, 0.1988330),
        (10, 10, 1.0),
        (0, 0, 1.0),
    ],
)
def test_bounds_are_clopper_and_pearsons(lost: int, audits: int, bound: float) -> None:
    assert upper(lost, audits) == pytest.approx(bound, abs=2e-6)


def test_bounds_stand_for_many_audits() -> None:
    assert 0.005 < upper(5_000, 1_000_000) < 0.0052
    assert upper(1, 100, 0.99) > upper(1, 100, 0.95)


def test_a_tool_list_is_cut_only_where_the_loss_is_shown() -> None:
    chance = random.Random(4)
    good = [chance.randrange(1, 6) for _ in range(2_000)]
    assert enough(good, 0.005) == 5
    assert enough([*good, 90, 91, 92], 0.005) == 5, "3 of 2,003: up to 0.39 %"
    assert enough(good[:500], 0.005) is None, "too few to show it"
    assert enough([], 0.005) is None
    bad = [chance.randrange(1, 300) for _ in range(2_000)]
    number = enough(bad, 0.005)
    assert number is not None
    assert number >= 297


def test_tools_with_names_in_one_word_are_found() -> None:
    named = tuple(described({"name": name}) for name in ("CalcProduct", "get_weather"))
    assert ranked(Scorer(), "the product", named) == (0, 1)
    assert ranked(Scorer(), "获取天气", named) == (), "another language"
    assert ranked(Scorer(), "xyz quux", named) == (), "not a word of it"


def observed(question: str = "What is a Clarinet?") -> tuple[Plan, str]:
    text = retrieved(question)
    return planned(chat(user(text)), known=Known()), text


@pytest.mark.parametrize(
    ("said", "lost"),
    [
        ("A woodwind instrument with a single reed.", False),
        ("It is made by coagulation of the milk protein casein, I think.", True),
        ("As passage 2 says, it is made of milk.", True),
        ("See [7].", False),
        ("", False),
    ],
)
def test_an_answer_that_uses_a_dropped_passage_is_a_loss(said: str, lost: bool) -> None:
    made, text = observed()
    found = audit(made, Answer(said), text)
    assert [(each.step, each.lost) for each in found.findings] == [(Step.RAG, lost)]
    assert bool(found.findings[0].evidence) is lost
    assert found.losses == lost


def test_a_result_whose_id_is_used_later_is_a_loss() -> None:
    old = [called(str(n), "look", f"reservation ABC{n}Q7 of row {n} " * 60) for n in range(8)]
    body = chat(user("go"), *old)
    config = settings(results={"mode": "observe", "keep_last": 2, "clear_at_least": 0})
    made = planned(body, config, tier=tier(context=2_000))
    assert {edit.step for edit in made.observed} == {Step.RESULTS}
    text = json.dumps(body)
    uses = Answer(calls=(("cancel", '{"id": "ABC1Q7"}'),))
    assert audit(made, uses, text).losses == 1
    assert audit(made, Answer(calls=(("cancel", '{"id": "ABC7Q7"}'),)), text).losses == 0


def test_a_longer_answer_than_the_cap_and_a_dropped_tool_are_losses() -> None:
    edits = (
        Edit(Step.CAPS, "set", ("max_completion_tokens",), 100, 0, 0, False),
        Edit(Step.TOOLS, "drop", ("tools",), [], 900, 300, False, labels=("mail",)),
    )
    made = Plan("light", edits=edits, ranking=("a", "b", "mail"))
    found = audit(made, Answer(calls=(("mail", "{}"),), completion_tokens=101))
    assert [each.lost for each in found.findings] == [True, True]
    assert found.rank == 3
    found = audit(made, Answer(calls=(("b", "{}"),), completion_tokens=100))
    assert [each.lost for each in found.findings] == [False, False]


def test_answers_of_both_kinds_are_read() -> None:
    chat_answer = answer_of({
        "choices": [{"finish_reason": "length", "message": {"content": None, "tool_calls": [
            {"function": {"name": "f", "arguments": '{"a":1}'}}, "broken"]}}],
        "usage": {"completion_tokens": 7, "prompt_tokens": 90,
                  "prompt_tokens_details": {"cached_tokens": 64},
                  "completion_tokens_details": {"reasoning_tokens": 3}},
    })  # fmt: skip
    assert chat_answer == Answer("", (("f", '{"a":1}'),), 7, 3, 64, 90, True)
    message = answer_of({
        "content": [{"type": "text", "text": "hi"}, {"type": "tool_use", "name": "g", "input": {}}],
        "stop_reason": "end_turn", "usage": {"output_tokens": 2, "cache_read_input_tokens": 5},
    })  # fmt: skip
    assert message == Answer("hi", (("g", "{}"),), 2, None, 5, None, False)
    assert answer_of({"choices": "broken", "usage": None}) == Answer()


def audited(step: Step, count: int, lost: int = 0) -> Audits:
    book = Audits()
    book.count(step, "light", "balance", "", Count(count, lost, count * 100))
    return book


def test_a_step_is_proven_by_600_audits_without_a_loss() -> None:
    needed = Promote()
    assert not ready(Count(599, 0), needed)
    assert ready(Count(600, 0), needed)
    assert not ready(Count(600, 1), needed)
    assert ready(Count(949, 1), needed)
    assert audited(Step.RAG, 600).proven("light", needed) == {Step.RAG}
    assert audited(Step.RAG, 600).proven("heavy", needed) == frozenset()
    assert audited(Step.FOLD, 600).proven("light", needed) == frozenset()


def test_a_lossy_step_without_proof_is_refused_by_name() -> None:
    config = settings(results="observe")
    lines = refusals(config, ["light", "heavy"], audited(Step.RAG, 600))
    assert len(lines) == 1
    assert lines[0].startswith("pruning.steps.rag: `on` for tier `heavy` needs 600 audits")
    assert refusals(Pruning(), ["light"], Audits()) == []


def test_an_override_is_allowed_and_told() -> None:
    config = settings(results="observe").model_copy(
        update={"promote": Promote(unproven=frozenset({Step.RAG}))}
    )
    assert refusals(config, ["light"], Audits()) == []
    assert len(overrides(config, ["light"], Audits())) == 1
    assert overrides(config, ["light"], audited(Step.RAG, 600)) == []
    made = planned(chat(user(retrieved("What is a Clarinet?"))), config, known=Known())
    assert made.changes


def test_a_share_of_conversations_is_held_out_and_only_observed() -> None:
    config = settings().model_copy(update={"holdout": 0.05})
    heldout = 0
    for number in range(400):
        body = chat(user(f"conversation {number}"), called("1", "look", "[1,    2]" * 1))
        made = planned(body, config, view=view_of(body))
        heldout += made.heldout
        assert made.changes is not made.heldout
        later = chat(*body["messages"], user("more"))
        assert planned(later, config, view=view_of(later)).heldout is made.heldout
    assert 5 <= heldout <= 45


def test_too_late_is_as_if_nothing_was_found() -> None:
    ticks = iter(range(1_000))
    body = chat(user("hi"), called("1", "look", "[1,    2]"))
    made = planned(body, clock=lambda: next(ticks))
    assert made.failed == ""
    config = settings().model_copy(update={"budget_ms": 10.0})
    made = planned(body, config, clock=lambda: float(next(ticks)))
    assert made.failed == "budget"
    assert apply(made, body) is body


def test_an_error_in_a_step_sends_the_original() -> None:
    class Broken:
        def encode(self, text: str) -> Any:
            raise RuntimeError("no vectors today")

        def vocabulary(self) -> list[str]:
            return []

    scorer = Scorer()
    scorer.weighed = Broken().encode  # type: ignore[method-assign]
    body = chat(user(retrieved("What is a Clarinet?")))
    made = planned(body, scorer=scorer)
    assert made.failed == "error: TypeError"
    assert apply(made, body) is body


def changed(body: Body, made: Plan) -> str:
    sent = apply(made, body)
    before, after = read(body, "<!-- keep -->"), read(sent, "<!-- keep -->")
    return violated(made, before, body, after, sent)


@pytest.mark.parametrize(
    ("step", "path", "value", "broken"),
    [
        (Step.FOLD, ("messages", 0, "content"), "Be evil.", "I1"),
        (Step.FOLD, ("messages", 1, "content"), "other", "I2"),
        (Step.FOLD, ("messages", 2, "content"), "other", "I2"),
        (Step.FOLD, ("messages", 3, "content"), "[2]", "I4"),
        (Step.DUPES, ("messages", 3, "content"), "note", "I11"),
        (Step.FOLD, ("messages", 3, "tool_call_id"), "other", "I3"),
        (Step.FOLD, ("messages", 1, "role"), "assistant", "I3"),
        (Step.FOLD, ("response_format",), None, "I5"),
        (Step.TOOLS, ("tools",), [], "I8"),
    ],
)
def test_the_verifier_sees_what_no_plan_may_do(
    step: Step, path: tuple[Any, ...], value: Any, broken: str
) -> None:
    body = chat({"role": "system", "content": "Be good."}, user("hi"),
                called("1", "look", "[1, 2]"), tools=[{}], response_format={})  # fmt: skip
    edit = Edit(step, "set", path, value, 9, 1, True, message=3)
    assert changed(body, Plan("light", edits=(edit,))) in (broken, "I3", "I5")
    assert changed(body, Plan("light")) == ""


def test_the_verifier_counts_tokens_to_prefill() -> None:
    body = chat(user("hi"), called("1", "look", "[1,   2]"))
    edit = Edit(Step.FOLD, "fold", ("messages", 2, "content"), "[1,2]", 3, 2, True, message=2)
    good = Plan("light", edits=(edit,), uncached_before=100, uncached_after=100)
    assert changed(body, good) == ""
    bad = Plan("light", edits=(edit,), uncached_before=100, uncached_after=200)
    assert changed(body, bad) == "I7"


def test_a_header_lowers_the_mode_and_never_raises_it() -> None:
    assert HEADER == "x-tier-router-pruning"
    body = chat(user("hi"), called("1", "look", "[1,   2]"))
    assert planned(body, known=Known(header="off")).edits == ()
    assert planned(body, known=Known(header="observe")).observed
    assert planned(body, known=Known(header="banana")).changes
    assert not planned(body, Pruning(), known=Known(header="on")).changes


def test_modes_are_the_lowest_of_all() -> None:
    config = Pruning.model_validate({
        "mode": True, "steps": {"fold": False, "rag": "on"},
        "tiers": {"heavy": {"mode": "observe", "steps": {"dupes": False}}},
    })  # fmt: skip
    light, heavy = config.modes("light"), config.modes("heavy")
    assert (light[Step.FOLD], light[Step.RAG], light[Step.DUPES]) == (Mode.OFF, Mode.ON, Mode.ON)
    assert (heavy[Step.RAG], heavy[Step.DUPES]) == (Mode.OBSERVE, Mode.OFF)
    assert Pruning.model_validate(False).mode is Mode.OFF
    assert Pruning.model_json_schema()["properties"]["steps"]


def test_what_a_plan_leaves_behind() -> None:
    body = chat(user(retrieved("What is a Clarinet?")), called("1", "look", "[1,       2]"))
    made = planned(body)
    assert header(made).startswith("fold=-")
    assert ";rag=-" in header(made)
    told = record(made)
    assert json.loads(json.dumps(told))["invariants"] == "ok"
    assert {step["step"] for step in told["steps"]} == {"rag", "fold"}
    assert header(planned(chat(user("hi")))) == ""


def test_records_make_the_book_again() -> None:
    made, text = observed()
    book = Audits()
    records = []
    for said in ("casein coagulation of the milk protein casein cheese", "a reed"):
        found = audit(made, Answer(said), text)
        book.add(found)
        records.append(json.loads(json.dumps(record(made, found))))
    again = book_of(iter([*records, {"tier": "light"}, {"audit": [3, {"lost": "x"}]}]))
    assert list(again.groups()) == list(book.groups())
    assert next(iter(again.totals()))[1].audits == 2
    assert repr(again) == "<Audits 2>"


def test_numbers_for_metrics() -> None:
    tally = Tally()
    body = chat(user("hi"), called("1", "look", json.dumps([1] * 400, indent=8)))
    made = planned(body, known=ALL_KNOWN)
    tally.planned(made)
    tally.answered(made)
    tally.planned(Plan("light", failed="budget"))
    tally.audited(Audit("light", None, (Finding(Step.RAG, True),)))
    tally.regressed(made, cached=0)
    assert tally.counts["uncached_tokens_avoided", "light", ""] > 100
    assert tally.counts["tokens_removed", "light", "fold"] > 100
    assert tally.counts["pruning_failed", "light", "budget"] == 1
    assert tally.counts["audit_loss", "light", "rag"] == 1
    assert tally.counts["prefix_regressions", "light", ""] == 0


@pytest.mark.parametrize("body", [{"prompt": "hi"}, {"input": "hi"}, {"messages": "hi"}, {}])
def test_bodies_of_other_shapes_go_as_they_are(body: Body) -> None:
    known = Known(easy=True, cap=90, template=Template.TAIL, proven=frozenset({Step.CAPS}))
    made = plan(body, VIEW, tier(), COLD, settings(caps="on"), known=known)
    assert made.failed == ""
    assert apply(made, body) is body
