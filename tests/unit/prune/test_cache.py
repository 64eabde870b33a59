"""Never worse for the prefix cache: the way through it, tier switches, what is known of it."""

from __future__ import annotations

import json
import random

import pytest

from tests.unit.prune.tools import ON, Body, Router, called, chat, settings, user
from tier_router.config.pruning import Step, TierPruning
from tier_router.ledger import Lease
from tier_router.pace import Pace, Usage
from tier_router.prune.plan import Plan
from tier_router.prune.speeds import Speeds, speeds_of
from tier_router.prune.walk import BLOCK
from tier_router.prune.warm import Caches
from tier_router.view import view_of

PRETTY = json.dumps([{"id": n, "name": f"row {n}"} for n in range(40)], indent=4)


def steps(made: Plan) -> set[tuple[Step, int]]:
    return {(edit.step, edit.message) for edit in made.sent}


def test_a_prefix_that_went_out_whole_stays_whole_while_it_is_warm() -> None:
    router = Router(settings(fold="off"))
    body = chat(user("hi"), called("1", "look", PRETTY))
    router.send(body)
    router.config = ON
    later = chat(*body["messages"], *called("2", "look", PRETTY + " ", n=2))
    made, sent = router.send(later)
    assert sent["messages"][2]["content"] == PRETTY, "warm: an edit would cost the prefix"
    assert sent["messages"][4]["content"] != PRETTY, "new: nothing there is cached"
    _, cold = router.send(later, after=1_000)
    assert cold["messages"][2]["content"] != PRETTY, "after a pause it is read anew anyway"
    assert made.uncached_after < made.uncached_before


def test_a_prefix_that_went_out_pruned_stays_pruned() -> None:
    router = Router()
    body = chat(user("hi"), called("1", "look", PRETTY))
    _, first = router.send(body)
    made, then = router.send(chat(*body["messages"], user("and?")))
    assert then["messages"][:3] == first["messages"]
    assert made.uncached_after < 40


OLD = [called(str(n), "look", f"row of {n} " * 300, n=n) for n in range(8)]
RESULTS = settings(results={"mode": "on", "keep_last": 2, "clear_at_least": 500})


def test_old_results_are_cleared_at_a_tier_switch_and_stay_so() -> None:
    router = Router(RESULTS)
    body = chat(user("go"), *OLD)
    made, _ = router.send(body)
    assert not [s for s in steps(made) if s[0] is Step.RESULTS], "nobody knows this conversation"
    body = chat(*body["messages"], user("next"))
    made, _ = router.send(body)
    assert not [s for s in steps(made) if s[0] is Step.RESULTS], "warm"
    made, sent = router.send(body, "b")
    cleared = {s for s in steps(made) if s[0] is Step.RESULTS}
    assert {place for _, place in cleared} == {2, 4, 6, 8, 10, 12}
    assert sent["messages"][2]["content"].startswith("[Result of look left out here")
    body = chat(*body["messages"], *called("9", "look", "new row " * 300, n=9), user("more"))
    made, _ = router.send(body, "b")
    assert {s for s in steps(made) if s[0] is Step.RESULTS} == cleared, "it does not slide"
    assert made.uncached_after < 700
    made, _ = router.send(chat(*body["messages"], user("last")), "a", after=5)
    assert not [s for s in steps(made) if s[0] is Step.RESULTS], "the first tier has it whole"


def test_what_late_messages_name_and_errors_stay() -> None:
    results = [
        called("0", "look", "Error: no such user" * 40),
        called("1", "look", "reservation OBUT9V, flight" * 40),
        *OLD,
    ]
    router = Router(RESULTS)
    body = chat(user("go"), *results, user("Cancel OBUT9V please"))
    router.send(body)
    made, sent = router.send(body, "b")
    assert made.sent
    assert sent["messages"][2] is body["messages"][2]
    assert sent["messages"][4] is body["messages"][4]


def test_a_result_that_was_cleared_is_pointed_to_no_more() -> None:
    router = Router(RESULTS)
    body = chat(user("go"), *OLD)
    router.send(body)
    router.send(body, "b")
    again = chat(*body["messages"], *called("x", "look", "row of 0 " * 300, n=0))
    made, sent = router.send(again, "b")
    assert sent["messages"][2]["content"].startswith("[Result of look left out here")
    assert sent["messages"][-1]["content"].startswith("row of 0")
    assert made.uncached_after < 1_000


class Blocks:
    """vLLM's prefix cache over a flat text: whole blocks, each known by all before it."""

    def __init__(self) -> None:
        self.seen: dict[int, float] = {}

    def prefill(self, body: Body, now: float) -> int:
        text = json.dumps(body.get("tools", "")) + "".join(
            f"<{m['role']}>{m['content']}{m.get('tool_calls')}" for m in body["messages"]
        )
        link, cached, missed, size = 0, 0, False, 4 * BLOCK
        for at in range(0, len(text) - size + 1, size):
            link = hash((link, text[at : at + size]))
            missed = missed or now - self.seen.get(link, -1e9) > 300
            cached += 0 if missed else size
            self.seen[link] = now
        return (len(text) - cached) // 4


def session(chance: random.Random) -> list[tuple[Body, str, float]]:
    """A conversation that grows, sometimes goes back, and changes tiers."""
    out: list[tuple[Body, str, float]] = []
    messages: list[Body] = [user("start " * chance.randrange(1, 40))]
    pool = [PRETTY, PRETTY[: -chance.randrange(5, 500)], "word " * 90]
    place = "a"
    for number in range(chance.randrange(2, 14)):
        if chance.random() < 0.2:
            place = "b" if place == "a" else "a"
        if chance.random() < 0.1 and len(messages) > 3:
            messages = [*messages[:-2], user("no, I meant this " * 5)]
        pause = chance.choice((1.0, 9.0, 400.0))
        out.append(({"model": "m", "messages": messages}, place, pause))
        name, rows = chance.choice("xy"), chance.randrange(3)
        messages = [*messages, *called(f"c{number}", name, chance.choice(pool), n=rows)]
        if chance.random() < 0.5:
            messages = [*messages, {"role": "assistant", "content": "so"}, user("and then? " * 9)]
    return out


@pytest.mark.parametrize("seed", range(60))
def test_no_session_ever_prefills_more_than_unpruned(seed: int) -> None:
    router = Router(settings(results={"mode": "on", "keep_last": 1, "clear_at_least": 50}))
    ours, plain = {"a": Blocks(), "b": Blocks()}, {"a": Blocks(), "b": Blocks()}
    spent = without = 0
    for body, place, pause in session(random.Random(seed)):
        made, sent = router.send(body, place, pause)
        spent += ours[place].prefill(sent, router.now)
        without += plain[place].prefill(body, router.now)
        assert made.uncached_after <= made.uncached_before + BLOCK
    assert spent <= without + BLOCK


def test_what_a_replica_turns_out_to_have_lost_is_forgotten() -> None:
    caches = Caches()
    chain = tuple(range(100, 120))
    caches.sent("a", chain, chain, 0.0)
    caches.heard("a", chain, believed=2_000, cached=1_900)
    assert caches.at("a", 1.0, 300).has(119)
    caches.heard("a", chain, believed=2_000, cached=500)
    now = caches.at("a", 1.0, 300)
    assert now.has(104)
    assert not now.has(105)
    caches.lost("a")
    assert not caches.at("a", 1.0, 300).has(100)


def test_prefixes_age_and_are_bounded() -> None:
    caches = Caches(entries=10)
    caches.sent("a", range(8), range(8), 0.0)
    assert caches.at("a", 299.0, 300).has(3)
    assert not caches.at("a", 301.0, 300).has(3)
    assert caches.at("a", 9_999.0, 300).seen(3)
    caches.sent("a", range(100, 108), (), 1.0)
    assert not caches.at("a", 1.0, 300).has(3), "the oldest went"
    assert caches.at("a", 1.0, 300).has(107)
    assert not caches.at("b", 1.0, 300).has(107)
    assert repr(caches) == "<Caches a: 10, b: 0>"


def test_speeds_are_those_written_down_else_those_of_the_answers() -> None:
    pace, view = Pace(), view_of({"messages": [user("hi")]})
    assert speeds_of(TierPruning(), pace) == speeds_of(TierPruning(), None) == Speeds()
    for number in range(20):
        lease = Lease("a", 0.0, number, 1e9, alone=True, first_at=number + 0.4)
        pace.answered(view, lease, Usage(2_500, 101, 500), number + 1.4)
    learned = speeds_of(TierPruning(), pace)
    assert learned.prefill_tps == pytest.approx(5_000)
    assert learned.itl == pytest.approx(0.01)
    given = TierPruning(prefill_tps=1.0, itl_ms=2.0, kv_bytes=3.0)
    assert speeds_of(given, pace) == Speeds(1.0, 0.002, 3.0)


def test_what_a_plan_is_worth() -> None:
    speeds = Speeds(prefill_tps=1_000, itl=0.01, kv_bytes=0)
    assert speeds.saved(500, 500, 100) == pytest.approx(0.5)
    assert speeds.saved(-500, 500, 100) == pytest.approx(-0.5)
    assert speeds.saved(0, 0, 0, output=600) == pytest.approx(6.0)
