"""The pruner as doors use it: a plan for each replica, and what answers teach it."""

from __future__ import annotations

import copy
import json
import threading
from typing import Any

import pytest
import yaml

from tests.unit.prune.tools import Body, called, chat, retrieved, user
from tier_router.classify import Verdict
from tier_router.config import parse
from tier_router.config.pruning import Step, Template
from tier_router.decide import Decision, Reason
from tier_router.errors import PromptTooLong
from tier_router.pace import Usage
from tier_router.prune.answers import answer_of
from tier_router.prune.plan import apply
from tier_router.pruner import Pruned, Trimming
from tier_router.pruner.pruner import AT_ONCE
from tier_router.router import TierRouter
from tier_router.testing import FixedClassifier, ManualClock

PRETTY = json.dumps([{"id": n, "name": f"row {n}"} for n in range(40)], indent=4)
FOLDABLE = chat(user("which rows?"), called("1", "look", PRETTY))
RULES = {"prove": 0.9, "balance": Verdict(0.1, intent="balance", confidence=1.0)}


def router(clock: ManualClock | None = None, *, light: Any = None, **pruning: Any) -> TierRouter:
    written = {"mode": "on", "holdout": 0, "budget_ms": 60_000, **pruning}
    config = {
        "tiers": [
            {"name": "light", "model": "m8", "replicas": ["http://a:1", "http://b:1"],
             "context": 2_400, **(light or {})},
            {"name": "heavy", "model": "m70", "replicas": ["http://c:1"], "context": 60_000},
        ],
        "intents": {"balance": {"tier": "light", "utterances": ["my balance"]}},
        "pruning": written,
    }  # fmt: skip
    made = parse(yaml.safe_dump(config))
    return TierRouter(made, lambda _: FixedClassifier(0.1, RULES), clock or ManualClock())


def sent(
    router: TierRouter, body: Body, replica: str | None = None, headers: Any = None
) -> tuple[Pruned, Decision]:
    """What goes out of `body`, on its way to its own replica or to `replica`."""
    view = router.view(body, headers or {})
    trimming = router.trimming(view, body)
    assert trimming is not None
    exclude = frozenset({"light-0", "light-1"} - {replica}) if replica else frozenset()
    decision = router.decide(view, exclude, trimming)
    return trimming.to(decision), decision


def test_off_makes_nothing_and_asks_nothing() -> None:
    off = router(mode="off")
    assert off.trimming(off.view(FOLDABLE), FOLDABLE) is None
    assert off.pruner.tally.counts == {}


def test_the_changes_are_the_fields_that_differ_and_the_body_stays() -> None:
    before = copy.deepcopy(FOLDABLE)
    pruned, _ = sent(router(), FOLDABLE)
    assert set(pruned.changes) == {"messages"}
    assert pruned.changes["messages"][0] is FOLDABLE["messages"][0]
    assert before == FOLDABLE
    assert pruned.header.startswith("fold=-")


def test_each_replica_has_its_own_past() -> None:
    made = router()
    off = {"x-tier-router-pruning": "off"}
    pruned, home = sent(made, FOLDABLE, headers=off)
    assert pruned.changes == {}
    here, _ = sent(made, FOLDABLE, home.replica)
    assert here.changes == {}, "it went out whole, and is warm"
    there, _ = sent(made, FOLDABLE, "light-1" if home.replica == "light-0" else "light-0")
    assert "messages" in there.changes


def test_a_replica_that_says_it_has_nothing_cached_is_believed() -> None:
    made = router(light={"context": 60_000})
    long = chat(user("which rows?"), *(called(str(n), "look", PRETTY, n=n) for n in range(5)))
    pruned, home = sent(made, long, headers={"x-tier-router-pruning": "off"})
    made.pruner.answered(pruned, Usage(2_000, 9, 0))
    assert sent(made, long, home.replica)[0].changes == {}, "it never says what is cached"
    pruned, _ = sent(made, long, home.replica)
    made.pruner.answered(pruned, Usage(2_000, 9, 1_900))
    assert sent(made, long, home.replica)[0].changes == {}
    pruned, _ = sent(made, long, home.replica)
    made.pruner.answered(pruned, Usage(2_000, 9, 0))
    assert "messages" in sent(made, long, home.replica)[0].changes, "it was dropped there"


@pytest.mark.parametrize(
    ("text", "quiet"),
    [("hello", True), ("my balance", True), ("prove it", False)],
)
def test_thinking_is_switched_off_where_routing_found_it_easy(text: str, quiet: bool) -> None:
    made = router(tiers={t: {"template": "tail"} for t in ("light", "heavy")})
    pruned, _ = sent(made, chat(user(text)))
    assert pruned.quiet is quiet
    assert pruned.changes == ({"chat_template_kwargs": {"enable_thinking": False}} if quiet else {})


def test_a_pin_says_nothing_of_how_easy_it_is() -> None:
    made = router(tiers={"light": {"template": "tail"}})
    pruned, decision = sent(made, {**chat(user("hello")), "model": "light"})
    assert decision.reasons == (Reason.PINNED,)
    assert not pruned.quiet


def test_the_tiers_own_defaults_come_before_pruning() -> None:
    defaults = {"chat_template_kwargs": {"enable_thinking": True}}
    made = router(light={"defaults": defaults}, tiers={"light": {"template": "tail"}})
    assert not sent(made, chat(user("hello")))[0].quiet


def test_another_hosts_models_get_no_thinking_fields() -> None:
    budget = {"reasoning": {"easy": {"thinking_token_budget": 2_048}}}
    assert sent(router(steps=budget), chat(user("hello")))[0].changes == {
        "thinking_token_budget": 2_048
    }
    other = router(light={"kind": "openai", "api_key": "k"}, steps=budget)
    assert sent(other, chat(user("hello")))[0].changes == {}


def test_what_a_probe_told_holds_until_it_misfires() -> None:
    made = router()
    assert not sent(made, chat(user("hello")))[0].quiet
    made.pruner.probed("light", Template.TAIL, thinks=True)
    pruned, _ = sent(made, chat(user("hello")))
    assert pruned.quiet
    assert pruned.plan.net_seconds > 1, "hundreds of tokens of thinking"
    made.pruner.misfired("light")
    assert not sent(made, chat(user("hello")))[0].quiet


def test_a_fault_of_ours_fails_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    made = router()

    def broken(*_: Any, **__: Any) -> Any:
        raise KeyError("x")

    with monkeypatch.context() as patched:
        patched.setattr(made.pruner, "_known", broken)
        pruned, decision = sent(made, FOLDABLE)
        assert (pruned.changes, pruned.plan.failed) == ({}, "error: KeyError")
        assert sent(made, rows(150))[1].tier == "heavy", "nothing is known to be to spare"
        patched.setattr(made.pruner, "_learn", broken)
        records: list[Any] = []
        made.pruner.answered(pruned, Usage(1, 1), then=records.append)
        assert records[0]["failed"] == "error: KeyError"
    assert sent(made, FOLDABLE, decision.replica)[0].changes == {}, "it went out whole"


def test_a_lock_that_nobody_gives_back_costs_the_budget_and_no_more() -> None:
    made = router(budget_ms=1)
    ready = made.pruner._ready
    assert ready is not None
    with ready.scorer.lock:
        pruned, _ = sent(made, FOLDABLE)
    assert (pruned.changes, pruned.plan.failed, pruned.plan.unread) == ({}, "budget", 3)


# ---- the context guard


def rows(count: int) -> Body:
    """A request that folding makes small: `count` rows, 20 tokens each of which 14 are blanks."""
    text = json.dumps([{"id": n, "name": f"row {n}"} for n in range(count)], indent=16)
    return chat(user("which rows?"), called("1", "look", text))


def test_pruning_is_asked_about_only_where_a_prompt_does_not_fit() -> None:
    made = router()
    asked: list[str] = []

    class Asked(Trimming):
        def spare(self, tier: Any) -> int:
            asked.append(tier.name)
            return super().spare(tier)

    def decided(body: Body) -> Decision:
        view = made.view(body)
        return made.decide(view, trimming=Asked(made.pruner, body, view, made._tier, made.changes))

    assert decided(rows(20)).tier == "light"
    assert asked == []
    assert decided(rows(150)).tier == "light"
    assert asked == ["light"]
    assert decided(chat(user("word " * 2_500))).tier == "heavy"
    assert asked == ["light", "light"]
    assert decided(chat(user("prove it " * 2_500))).tier == "heavy"
    assert asked == ["light", "light"], "it was meant for the heavy tier anyway"


def test_a_request_that_is_here_since_it_is_pruned_is_pruned() -> None:
    """Even where its prefix is warm as it was written, and where the second plan fails."""
    made = router(tiers={"light": {"mode": "on"}})
    body = rows(150)
    view = made.view(body)
    trimming = made.trimming(view, body)
    assert trimming is not None
    decision = made.decide(view, trimming=trimming)
    cold = trimming._cold["light"]
    made.pruner._caches.sent(decision.replica, cold.asked, cold.asked, 0.0)
    pruned = trimming.to(decision)
    assert pruned.plan.fits
    assert pruned.changes["messages"] == apply(cold, body)["messages"]
    assert pruned.plan.tokens_after < 2_400
    made.pruner.answered(pruned, None)
    assert made.pruner.tally.counts["escalations_avoided", "light", ""] == 1


def test_a_pinned_tier_takes_what_fits_by_pruning() -> None:
    body = {**rows(190), "model": "light"}
    off, made = router(mode="off"), router()
    with pytest.raises(PromptTooLong):
        off.decide(off.view(body))
    assert sent(made, body)[0].plan.fits


def test_observing_makes_no_room() -> None:
    made = router(mode="observe")
    assert sent(made, rows(150))[1].tier == "heavy"


# ---- audits


QUESTION = chat(user(retrieved("What is a Clarinet?")))


def answer(text: str) -> Any:
    return answer_of({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]})


def test_an_audit_reads_the_prompt_as_it_was_sent_not_as_the_caller_left_it() -> None:
    made = router(mode="observe")
    body = copy.deepcopy(QUESTION)
    pruned, _ = sent(made, body)
    says = "It lies on the east coast of Sicily, in Italy."
    body["messages"].append({"role": "assistant", "content": says})
    records: list[Any] = []
    made.pruner.answered(pruned, None, lambda: answer(says), records.append)
    made.pruner.close()
    (record,) = records
    assert [(each["step"], each["lost"]) for each in record["audit"]] == [("rag", True)]


def test_only_so_many_answers_are_audited() -> None:
    clock = ManualClock()
    made = router(clock, mode="observe")
    audited = sum(sent(made, QUESTION)[0].audited for _ in range(int(AT_ONCE) + 30))
    assert audited == AT_ONCE
    clock.advance(1.0)
    assert sum(sent(made, QUESTION)[0].audited for _ in range(30)) == 5


def test_without_an_audit_the_record_comes_at_once() -> None:
    made, records = router(), []
    pruned, _ = sent(made, FOLDABLE)
    made.pruner.answered(pruned, None, then=records.append)
    assert records[0]["steps"][0]["step"] == "fold"
    nothing, _ = sent(made, chat(user("hi")))
    made.pruner.answered(nothing, None, then=records.append)
    assert records[1:] == [None], "there is nothing to tell"


def test_a_record_comes_whatever_an_answer_does() -> None:
    def broken() -> Any:
        raise ValueError("x")

    made, records = router(mode="observe"), []
    pruned, _ = sent(made, QUESTION)
    made.pruner.answered(pruned, None, broken, records.append)
    made.pruner.close()
    assert records[0]["steps"]
    assert "audit" not in records[0]


def test_a_cap_is_learned_from_answers() -> None:
    caps = {"caps": {"mode": "on", "need": 100}}
    made = router(steps=caps, promote={"unproven": ["caps"]})
    for number in range(200):
        pruned, _ = sent(made, chat(user("hello")))
        made.pruner.answered(pruned, Usage(10, 50 + number % 50))
    assert sent(made, chat(user("hello")))[0].changes == {"max_completion_tokens": 149}


def test_threads_may_ask_all_at_once() -> None:
    made = router(mode="observe")
    failed: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for n in range(40):
                body = chat(user(f"{seed} {n % 7}"), called("1", "look", PRETTY, n=n))
                pruned, _ = sent(made, body)
                assert not pruned.plan.failed
                made.pruner.answered(pruned, Usage(100, 9, 50), lambda: answer("x"))
        except BaseException as error:  # noqa: BLE001  a thread's own would be lost
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    made.pruner.close()
    assert failed == []
    assert made.pruner.tally.counts["pruning_requests", "light", ""] == 160
    assert Step.FOLD in {edit.step for edit in sent(made, FOLDABLE)[0].plan.observed}
