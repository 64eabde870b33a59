"""Requests that leave no choice of tier: embeddings, and what one replica keeps."""

from typing import Any

import pytest

from tier_router.classify import Verdict
from tier_router.config import parse
from tier_router.decide import Decision, Judged, Reason, decide
from tier_router.errors import NoReplica, NotCapable, RequestError
from tier_router.pressure import DOWN
from tier_router.request import Kind, Need, Turn, View
from tier_router.view import bare_view, pooling_view, view_of

CONFIG = parse("""
tiers:
  - {name: small, model: m8, replicas: [http://s0, http://s1], context: 1000}
  - {name: large, model: m400, kind: openai, replicas: [http://l0/v1], context: 32000}
  - {name: bge, model: BAAI/bge-m3, replicas: [http://b0, http://b1], context: 512,
     can: [embeddings]}
  - {name: e5, model: e5, replicas: [http://e0], can: [embeddings]}
rules:
  - {when: {header: {x-plan: gold}}, tier: large}
""")


def go(view: View, verdict: Verdict | None = None, **loads: float) -> Decision:
    named = {name.replace("_", "-"): load for name, load in loads.items()}
    return decide(view, Judged(verdict or Verdict(0.05)), CONFIG, (0.5,), named)


def chat(text: str = "hello", **more: Any) -> View:
    return view_of({"messages": [{"role": "user", "content": text}], **more})


@pytest.mark.parametrize("model", [None, "auto", "bge", "BAAI/bge-m3"])
def test_embeddings_go_to_the_named_tier_or_the_first(model: str | None) -> None:
    body = {"input": ["a" * 4_000] * 50, **({} if model is None else {"model": model})}
    decision = go(pooling_view(body), x=0.0)
    assert decision.tier == "bge", "all texts together need not fit the context"
    assert decision.alternatives == ()


def test_rules_and_difficulty_do_not_move_them() -> None:
    view = pooling_view({"input": "prove it"}, {"x-plan": "gold"})
    assert go(view, Verdict(0.99)).reasons == (Reason.EMBEDDINGS,)


def test_a_tier_of_embeddings_that_is_down_has_no_stand_in() -> None:
    with pytest.raises(NoReplica, match=r"no replica is up \(bge\)"):
        go(pooling_view({"input": "x"}), bge_0=DOWN, bge_1=DOWN)
    assert go(pooling_view({"input": "x"}), bge_0=DOWN).replica == "bge-1"


@pytest.mark.parametrize("model", ["bge", "e5"])
def test_a_chat_is_no_embedding(model: str) -> None:
    with pytest.raises(NotCapable, match=f"`{model}` only makes embeddings"):
        go(chat(model=model))


def test_what_cannot_be_judged_stops_at_the_top_of_the_ladder() -> None:
    assert go(chat(), Verdict(0.5, abstain="unreadable")).tier == "large"
    assert go(bare_view({})).tier == "large"
    alone = CONFIG.model_copy(update={"tiers": (CONFIG.tiers[0], *CONFIG.tiers[2:])})
    fresh = type(CONFIG).model_validate(alone.model_dump(include={"tiers"}))
    decision = decide(chat(), Judged(Verdict(0.99)), fresh, (0.5,), {"small-0": 0.9})
    assert decision.tier == "small", "a ladder of one, whatever stands beside it"


def test_a_tier_that_is_down_is_not_replaced_by_embeddings() -> None:
    with pytest.raises(NoReplica):
        go(chat(), small_0=DOWN, small_1=DOWN, large_0=DOWN)


def kept(name: str) -> View:
    view = chat("prove it", model="large")
    return View(**{slot: getattr(view, slot) for slot in View.__slots__} | {"keeper": name})


@pytest.mark.parametrize("name", ["small-0", "small-1", "large-0"])
def test_what_one_replica_keeps_goes_there_whatever_else_is_asked(name: str) -> None:
    decision = go(kept(name), Verdict(0.99), **{name.replace("-", "_"): 0.9})
    assert (decision.replica, decision.reasons) == (name, (Reason.STORED,))


def test_the_keeper_being_down_is_the_end() -> None:
    with pytest.raises(NoReplica):
        go(kept("small-1"), small_1=DOWN)
    with pytest.raises(NoReplica):
        decide(kept("small-1"), Judged(Verdict(0.1)), CONFIG, (0.5,), {}, {"small-1"})


def test_other_hosts_are_told_no_priority() -> None:
    assert go(chat(priority=5)).priority == 5
    assert go(chat(priority=5, model="large")).priority == 0


def test_a_view_without_a_talk() -> None:
    view = pooling_view(
        {"query": "a" * 40, "documents": ["b" * 40, "c" * 40], "model": "e5"},
        {"x-tier-router-tier": "bge", "x-vllm-priority": "3"},
    )
    assert (view.kind, view.turn, view.needs) == (Kind.NONE, Turn(""), {Need.EMBEDDINGS})
    assert (view.model, view.header, view.priority) == ("e5", "bge", 3)
    assert 25 <= view.tokens <= 40
    with pytest.raises(RequestError, match="`model` must be a string"):
        pooling_view({"input": "x", "model": 5})
