"""What was sent is remembered whatever the plan was: else a warm prefix is edited later."""

from __future__ import annotations

import copy
import itertools
import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.prune.test_cache import Blocks, session
from tests.unit.prune.tools import ALL_KNOWN, Body, Router, called, chat, settings, user
from tier_router.config.pruning import Pruning
from tier_router.prune import pipeline
from tier_router.prune.plan import Known
from tier_router.prune.units import PIECE

PRETTY = json.dumps([{"id": n, "name": f"row {n}"} for n in range(40)], indent=4)
FIRST = chat(user("hi"), called("1", "look", PRETTY))
LATER = chat(*FIRST["messages"], *called("2", "look", PRETTY + " ", n=2))
OFF_BY_CLIENT = Known(header="off", proven=ALL_KNOWN.proven)


def jumping(after: int) -> Callable[[], float]:
    """A clock that stands still, and after so many looks is an hour later."""
    looks = itertools.count()
    return lambda: 3_600.0 if next(looks) >= after else 0.0


def tail_only(sent: Body) -> bool:
    """Whether the first result stands as it was written and the second is folded."""
    results = [m["content"] for m in sent["messages"] if m["role"] == "tool"]
    return results[0] == PRETTY and results[1] != PRETTY + " "


def test_what_a_client_sent_with_pruning_off_is_not_edited_while_it_is_warm() -> None:
    router = Router()
    router.send(FIRST, known=OFF_BY_CLIENT)
    made, sent = router.send(LATER)
    assert tail_only(sent)
    assert made.uncached_after < made.uncached_before


def test_what_went_out_pruned_is_known_to_be_cold_as_it_was_written() -> None:
    router = Router()
    router.send(FIRST)
    made, sent = router.send(LATER, known=OFF_BY_CLIENT)
    assert sent is LATER
    assert made.chain == made.asked
    made, sent = router.send(chat(*LATER["messages"], user("and?")))
    assert made.uncached_after < 50, "whole or pruned, whichever is longer in the cache"


def test_what_a_tier_without_pruning_was_sent_is_not_edited_later() -> None:
    tiers = {"light": {"mode": "off"}}
    router = Router(Pruning.model_validate({"mode": "on", "holdout": 0, "tiers": tiers}))
    router.send(FIRST)
    router.config = settings()
    _, sent = router.send(LATER)
    assert tail_only(sent)


@pytest.mark.parametrize("looks", [5, 6, 7, 8])
def test_what_went_out_since_time_was_up_is_not_edited_later(looks: int) -> None:
    router = Router()
    made, sent = router.send(FIRST, may_fail=("budget",), clock=jumping(looks))
    assert sent is FIRST
    assert made.failed == "budget"
    assert made.chain == made.asked != ()
    _, sent = router.send(LATER)
    assert tail_only(sent)


@pytest.mark.parametrize("looks", [1, 2, 4])
def test_what_went_out_unread_is_not_edited_later(looks: int) -> None:
    router = Router()
    made, sent = router.send(FIRST, may_fail=("budget",), clock=jumping(looks))
    assert sent is FIRST
    assert (made.chain, made.unread) == ((), 3)
    _, sent = router.send(LATER)
    assert tail_only(sent)
    _, elsewhere = router.send(LATER, "b")
    assert not tail_only(elsewhere), "another replica never had it"
    _, cold = router.send(LATER, after=1_000.0)
    assert not tail_only(cold), "after a pause it is read anew anyway"


def test_what_went_out_since_an_invariant_was_broken_is_not_edited_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    router = Router()
    with monkeypatch.context() as patched:
        patched.setattr(pipeline, "violated", lambda *_: "I4")
        made, sent = router.send(FIRST, may_fail=("invariant: I4",))
    assert sent is FIRST
    assert made.chain == made.asked
    assert made.tokens_after == made.tokens_before
    _, sent = router.send(LATER)
    assert tail_only(sent)


def test_what_went_out_since_a_step_raised_is_not_edited_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(_: Any) -> None:
        raise KeyError("x")

    router = Router()
    with monkeypatch.context() as patched:
        patched.setattr(pipeline.fold, "run", broken)
        router.send(FIRST, may_fail=("error: KeyError",))
    _, sent = router.send(LATER)
    assert tail_only(sent)


@pytest.mark.parametrize("seed", range(60))
def test_no_plan_costs_more_than_sending_whole_however_often_pruning_is_off_or_fails(
    seed: int,
) -> None:
    chance = random.Random(seed)
    router = Router(settings(results={"mode": "on", "keep_last": 1, "clear_at_least": 50}))
    ours = {"a": Blocks(), "b": Blocks()}
    for body, place, pause in session(random.Random(1_000 + seed)):
        more: dict[str, Any] = {}
        kind = chance.randrange(4)
        if kind == 0:
            more["known"] = OFF_BY_CLIENT
        elif kind == 1:
            more["clock"] = jumping(chance.randrange(1, 9))
        _, sent = router.send(body, place, pause, may_fail=("", "budget"), **more)
        whole = copy.deepcopy(ours[place]).prefill(body, router.now)
        assert ours[place].prefill(sent, router.now) <= whole + PIECE // 4
