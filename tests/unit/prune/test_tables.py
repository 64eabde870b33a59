"""Lists of like objects as tables: what becomes one, what does not, and that it can be undone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as runs
from hypothesis import strategies as st

from tests.unit.prune.tools import Body, called, chat, planned, pruned, settings, user
from tier_router.prune.steps.fold import folded
from tier_router.prune.tables import tabled, untabled

FLIGHTS = [
    {"number": f"HAT{n}", "seats": {"economy": n, "business": 2}, "stops": [], "price": 1.5 * n}
    for n in range(5)
]
TABLES = settings(fold={"mode": "on", "tables": True})

values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.text("ab.é", max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(["a", "b", "a.b", "columns", "rows"]), inner, max_size=3),
    ),
    max_leaves=12,
)
rows = st.lists(st.fixed_dictionaries({"a": values, "b": st.fixed_dictionaries({"a": values})}))


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def looked(value: Any, *, indent: int | None = 2) -> Body:
    return chat(user("hi"), called("1", "look", json.dumps(value, indent=indent)))


def test_the_keys_of_like_objects_are_written_once() -> None:
    assert tabled(compact(FLIGHTS)) == (
        '{"columns":["number","seats.economy","seats.business","stops","price"],"rows":['
        '["HAT0",0,2,[],0.0],["HAT1",1,2,[],1.5],["HAT2",2,2,[],3.0],["HAT3",3,2,[],4.5],'
        '["HAT4",4,2,[],6.0]]}'
    )


@runs(max_examples=200, deadline=None)
@given(st.one_of(values, rows))
def test_a_table_can_be_undone_and_is_made_once(value: Any) -> None:
    text = compact(value)
    made = tabled(text)
    if made is None:
        return
    assert len(made) < len(text)
    # as texts: 1 and true, and other orders of keys, are not the same
    assert compact(untabled(json.loads(made))) == text
    assert tabled(made) is None


@pytest.mark.parametrize(
    "text",
    [
        '[{"long":1.50,"key":1},{"long":2.50,"key":2},{"long":2.50,"key":2}]',
        '[{"key":1,"key":1,"b":1},{"key":2,"key":2,"b":1},{"key":3,"key":3,"b":1}]',
        '[{"a.b":1,"long":2},{"a.b":3,"long":4},{"a.b":3,"long":4}]',
        '[{"long":1,"key":2},{"key":3,"long":4},{"long":1,"key":2}]',
        '{"columns":["long"],"rows":[[{"key":1,"b":1},{"key":2,"b":1},{"key":2,"b":1}]]}',
        '[{"long":1,"key":2}]',
        '[{"long":1',
    ],
    ids=["a zero", "doubled keys", "a dot", "another order", "a table's keys", "one row", "broken"],
)
def test_what_would_not_come_out_as_it_went_in_stays(text: str) -> None:
    assert tabled(text) is None
    assert folded(text, tables=True) == folded(text)


def test_tables_are_made_only_where_they_are_asked_for() -> None:
    body = looked(FLIGHTS)
    assert pruned(body)["messages"][2]["content"] == compact(FLIGHTS)
    sent = pruned(body, TABLES)["messages"][2]["content"]
    assert untabled(json.loads(sent)) == FLIGHTS
    assert planned(body, TABLES).failed == ""


def test_a_table_that_was_sent_is_sent_again_as_it_is() -> None:
    once = pruned(looked(FLIGHTS), TABLES)
    assert pruned(once, TABLES) is once
