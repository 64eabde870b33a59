"""Where a request goes: each step by example, and what must hold for any request."""

import math
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tier_router.classify import Verdict
from tier_router.config import Config, parse
from tier_router.decide import Decision, Judged, Reason, decide
from tier_router.errors import (
    NoReplica,
    NotCapable,
    Overloaded,
    PromptTooLong,
    TierRouterError,
    UnknownTier,
)
from tier_router.pressure import DOWN, FULL
from tier_router.request import Kind, Need, Turn, View

CONFIG = parse("""
tiers:
  - {name: small, model: m8, replicas: [http://s0, http://s1], context: 1000}
  - {name: middle, model: m70, replicas: [http://m0], context: 8000, can: [tools, json]}
  - {name: large, model: m400, replicas: [http://l0, http://l1, http://l2], context: 32000,
     can: [tools, json, vision, reasoning]}
intents:
  balance: {tier: small, utterances: [balance]}
  contract: {tier: large, utterances: [contract]}
  label: {utterances: [label]}
rules:
  - {when: {header: {X-Plan: gold}}, tier: large}
  - {when: {keyword: [legal hold, "c++"]}, tier: middle}
  - {when: {regex: "^/sum"}, tier: small}
aliases: {gpt: auto, mini: small}
""")
LINES = (0.2, 0.5)
EASY, MIDDLE, HARD = Verdict(0.05), Verdict(0.3), Verdict(0.9)


def view(text: str = "hello there", **more: Any) -> View:
    given = {
        "kind": Kind.HUMAN,
        "turn": Turn(text, chars=len(text)),
        "earlier": (),
        "tokens": 20,
        "max_tokens": None,
        "needs": frozenset(),
        "model": None,
        "key": 1,
    }
    return View(**(given | more))


def go(
    verdict: Verdict = EASY,
    earlier: tuple[Verdict, ...] = (),
    loads: Mapping[str, float] | None = None,
    exclude: frozenset[str] = frozenset(),
    config: Config = CONFIG,
    scales: Mapping[str, float] | None = None,
    **more: Any,
) -> Decision:
    judged = Judged(verdict, earlier)
    return decide(view(**more), judged, config, LINES, loads or {}, exclude, scales or {})


def led(decision: Decision) -> tuple[str, list[str]]:
    return decision.tier, [reason.value for reason in decision.reasons]


# ---- want


@pytest.mark.parametrize(
    ("difficulty", "tier"),
    [
        (0.0, "small"),
        (0.19, "small"),
        (0.2, "middle"),
        (0.49, "middle"),
        (0.5, "large"),
        (1.0, "large"),
    ],
)
def test_the_smallest_tier_that_covers_the_difficulty(difficulty: float, tier: str) -> None:
    decision = go(Verdict(difficulty))
    assert decision.tier == tier
    assert decision.reasons == ((Reason.EASY,) if tier == "small" else (Reason.HARD,))
    assert (decision.difficulty, decision.threshold) == (difficulty, 0.2)


def test_what_cannot_be_judged_goes_up() -> None:
    decision = go(Verdict(0.05, abstain="language"))
    assert led(decision) == ("large", ["unsure"])
    assert (decision.abstain, decision.difficulty) == ("language", None)
    assert led(go(kind=Kind.NONE)) == ("large", ["unsure"])


def test_an_intent_with_a_tier_settles_it() -> None:
    assert led(go(Verdict(0.9, intent="balance"))) == ("small", ["intent"])
    assert led(go(Verdict(0.0, intent="contract"))) == ("large", ["intent"])
    assert led(go(Verdict(0.9, intent="label"))) == ("large", ["hard"])


def test_housekeeping_and_images_take_the_smallest() -> None:
    assert led(go(HARD, kind=Kind.HOUSEKEEPING)) == ("small", ["housekeeping"])
    needs = frozenset({Need.VISION})
    decision = go(Verdict(1, abstain="empty"), turn=Turn("", media=1), needs=needs)
    assert led(decision) == ("large", ["media", "needs_vision"])


# ---- pins and rules


@pytest.mark.parametrize(
    ("more", "tier"),
    [
        ({"model": "large"}, "large"),
        ({"model": "m70"}, "middle"),
        ({"model": "mini"}, "small"),
        ({"header": "large", "model": "small"}, "large"),
        ({"header": "auto", "model": "large"}, "large"),
    ],
)
def test_the_client_may_name_a_tier(more: dict[str, Any], tier: str) -> None:
    assert led(go(MIDDLE, **more)) == (tier, ["pinned"])


def test_auto_leaves_it_to_the_router() -> None:
    assert led(go(HARD, model="gpt")) == ("large", ["hard"])


@pytest.mark.parametrize(
    ("more", "param"), [({"model": "gpt-9"}, "model"), ({"header": "x"}, None)]
)
def test_an_unknown_name_lists_the_known_ones(more: dict[str, Any], param: str | None) -> None:
    with pytest.raises(UnknownTier, match="auto, small, middle, large, gpt, mini") as caught:
        go(**more)
    assert caught.value.param == (param or "x-tier-router-tier")


@pytest.mark.parametrize(
    ("more", "tier"),
    [
        ({"headers": {"x-plan": "gold"}}, "large"),
        ({"text": "put a LEGAL HOLD on it"}, "middle"),
        ({"text": "is C++ hard?"}, "middle"),
        ({"text": "/summary please"}, "small"),
    ],
)
def test_the_first_rule_that_fits_wins(more: dict[str, Any], tier: str) -> None:
    assert led(go(HARD, **more)) == (tier, ["rule"])


@pytest.mark.parametrize(
    "more",
    [{"headers": {"x-plan": "silver"}}, {"text": "illegal holding"}, {"text": "see /sum"}],
)
def test_a_rule_that_does_not_fit(more: dict[str, Any]) -> None:
    assert led(go(HARD, **more)) == ("large", ["hard"])


def test_a_pin_beats_a_rule() -> None:
    assert led(go(model="small", headers={"x-plan": "gold"})) == ("small", ["pinned"])


# ---- conversation

YES = Verdict(0.02, continues=True)
THANKS = Verdict(0.01, courtesy=True)


def test_yes_do_it_stays_where_the_hard_turn_was() -> None:
    assert led(go(YES, (HARD,))) == ("large", ["continues"])
    assert led(go(YES, (EASY,))) == ("small", ["continues"])
    assert led(go(YES, (HARD, YES))) == ("large", ["continues"])


def test_yes_alone_cannot_be_judged() -> None:
    assert led(go(YES)) == ("large", ["unsure"])


def test_thanks_after_a_hard_turn_goes_down() -> None:
    assert led(go(THANKS, (HARD,))) == ("small", ["easy"])


def test_thanks_stays_where_a_long_prefix_is_cached() -> None:
    config = parse("tiers: [{name: a, model: a, replicas: [http://a]},"
                   "{name: b, model: b, replicas: [http://b]},"
                   "{name: c, model: c, replicas: [http://c]}]")  # fmt: skip
    assert led(go(THANKS, (HARD,), tokens=20_000, config=config)) == ("b", ["held"])


def test_a_hold_fades_over_easy_turns() -> None:
    tiers = [go(EASY, (HARD, *[EASY] * n)).tier for n in range(4)]
    assert tiers == ["middle", "middle", "small", "small"]
    assert led(go(EASY, (HARD,)))[1] == ["held"]


def test_a_tools_result_stays_where_its_question_went() -> None:
    assert led(go(HARD, kind=Kind.TOOL)) == ("large", ["tool_turn", "hard"])
    loads = {"m0": 0.0, "large-0": 0.9, "large-1": 0.9, "large-2": 0.9}
    assert go(Verdict(0.51), kind=Kind.TOOL, loads=loads).tier == "large", "load moves no tool turn"


# ---- load


def busy(**loads: float) -> dict[str, float]:
    """Pressure by replica from pressure by tier."""
    return {
        replica.name or "": loads[tier.name]
        for tier in CONFIG.tiers
        for replica in tier.replicas
        if tier.name in loads
    }


def test_a_borderline_request_follows_the_shorter_queue() -> None:
    assert led(go(Verdict(0.55), loads=busy(large=0.9))) == ("middle", ["hard", "load_down"])
    assert led(go(Verdict(0.45), loads=busy(middle=0.9))) == ("large", ["hard", "load_up"])


def test_load_never_moves_a_clear_case_or_a_pin() -> None:
    assert led(go(HARD, loads=busy(large=0.99))) == ("large", ["hard"])
    assert led(go(EASY, loads=busy(small=0.99))) == ("small", ["easy"])
    assert led(go(EASY, model="large", loads=busy(large=0.99))) == ("large", ["pinned"])


def test_an_easy_request_leaves_a_full_tier() -> None:
    assert led(go(EASY, loads=busy(small=FULL))) == ("middle", ["easy", "spilled"])
    assert led(go(EASY, loads=busy(small=FULL, middle=FULL))) == ("large", ["easy", "spilled"])


def test_where_all_are_full_it_waits_in_its_own_queue() -> None:
    full = busy(small=FULL, middle=1.2, large=FULL)
    assert led(go(EASY, loads=full)) == ("small", ["easy"])
    assert led(go(HARD, loads=full)) == ("large", ["hard"])


def test_a_tier_that_is_down_hands_over() -> None:
    assert led(go(EASY, loads=busy(small=DOWN))) == ("middle", ["easy", "tier_down"])
    assert led(go(HARD, loads=busy(large=DOWN))) == ("middle", ["hard", "tier_down"])
    assert go(HARD, loads=busy(large=DOWN, middle=DOWN)).tier == "small"


def test_nothing_up_is_an_error_that_says_so() -> None:
    with pytest.raises(NoReplica, match="small, middle, large"):
        go(loads=busy(small=DOWN, middle=DOWN, large=DOWN))


def test_a_pinned_tier_that_is_down_is_not_replaced() -> None:
    with pytest.raises(NoReplica, match="large"):
        go(model="large", loads=busy(large=DOWN))


# ---- guards


def test_a_long_prompt_moves_up() -> None:
    assert led(go(EASY, tokens=1_500)) == ("middle", ["easy", "needs_context"])
    assert led(go(EASY, tokens=900, max_tokens=400)) == ("middle", ["easy", "needs_context"])


def test_a_prompt_that_fits_nowhere() -> None:
    with pytest.raises(PromptTooLong, match="32000 tokens"):
        go(EASY, tokens=100_000)
    with pytest.raises(PromptTooLong, match="1000 tokens"):
        go(EASY, tokens=100_000, model="small")


def test_an_estimate_that_is_a_little_over_is_sent_all_the_same() -> None:
    assert go(EASY, tokens=33_000).tier == "large"


@pytest.mark.parametrize(
    ("needs", "tier"),
    [({Need.VISION}, "large"), ({Need.TOOLS}, "small"), ({Need.REASONING}, "small")],
)
def test_a_need_moves_up_to_who_can(needs: set[Need], tier: str) -> None:
    assert go(EASY, needs=frozenset(needs)).tier == tier


def test_a_need_that_nobody_has() -> None:
    with pytest.raises(NotCapable, match="audio"):
        go(EASY, needs=frozenset({Need.AUDIO}))


def test_log_probabilities_are_dropped_where_nobody_has_them() -> None:
    config = parse("tiers: [{name: a, model: a, can: [tools], replicas: [http://a]}]")
    needs = frozenset({Need.LOGPROBS})
    assert decide(view(needs=needs), Judged(EASY), config, (), {}).tier == "a"


def test_failover_excludes_and_says_so() -> None:
    first = go(EASY)
    second = go(EASY, exclude=frozenset({first.replica}))
    assert second.replica != first.replica
    assert led(second) == ("small", ["easy", "failover"])
    third = go(EASY, exclude=frozenset({"small-0", "small-1"}))
    assert led(third) == ("middle", ["easy", "tier_down", "failover"])


# ---- replica


def test_a_conversation_keeps_its_replica_until_that_has_much_more_to_do() -> None:
    homes = {key: go(HARD, key=key).replica for key in range(300)}
    assert set(homes.values()) == {"large-0", "large-1", "large-2"}
    assert all(list(homes.values()).count(name) > 60 for name in set(homes.values()))
    loads = {"large-0": 0.55, "large-1": 0.6, "large-2": 0.45}
    assert {key: go(HARD, key=key, loads=loads).replica for key in homes} == homes
    loads = {"large-0": 0.5, "large-1": 0.1, "large-2": 0.4}
    now = {key: go(HARD, key=key, loads=loads).replica for key in homes}
    assert all(now[key] == home for key, home in homes.items() if home != "large-0")
    assert "large-0" not in now.values()
    loads = {"large-0": 0.9, "large-1": 0.1, "large-2": 0.8}
    assert {go(HARD, key=key, loads=loads).replica for key in homes} == {"large-1"}


def test_only_the_conversations_of_a_lost_replica_move() -> None:
    homes = {key: go(HARD, key=key).replica for key in range(300)}
    for key, home in homes.items():
        now = go(HARD, key=key, loads={"large-1": DOWN}).replica
        assert now == home or home == "large-1"


# ---- for any request

PRESSURES = st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0, 1.5, math.inf])
NAMES = [replica.name or "" for tier in CONFIG.tiers for replica in tier.replicas]
VERDICTS = st.builds(
    Verdict,
    difficulty=st.floats(0, 1),
    intent=st.sampled_from([None, None, "balance", "contract", "label", "gone"]),
    abstain=st.sampled_from([None, None, None, "empty"]),
    continues=st.booleans(),
    courtesy=st.booleans(),
)
REQUESTS = st.builds(
    view,
    text=st.sampled_from(["", "hello", "legal hold"]),
    kind=st.sampled_from(Kind),
    tokens=st.sampled_from([0, 10, 900, 5_000, 31_000, 40_000, 200_000]),
    max_tokens=st.sampled_from([None, 1, 500, 50_000]),
    needs=st.frozensets(st.sampled_from([Need.TOOLS, Need.VISION, Need.REASONING, Need.LOGPROBS])),
    model=st.sampled_from([None, None, "auto", "small", "large", "gpt"]),
    key=st.integers(0, 2**64 - 1),
)
LOADS = st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, PRESSURES))
JUDGED = st.builds(Judged, VERDICTS, st.lists(VERDICTS, max_size=4).map(tuple))


def attempt(
    request: View, judged: Judged, loads: Mapping[str, float], exclude: frozenset[str] = frozenset()
) -> Decision | TierRouterError:
    try:
        return decide(request, judged, CONFIG, LINES, loads, exclude)
    except TierRouterError as error:
        return error


@given(REQUESTS, JUDGED, LOADS, st.frozensets(st.sampled_from(NAMES)))
def test_the_replica_is_up_allowed_and_able(
    request: View, judged: Judged, loads: dict[str, float], exclude: frozenset[str]
) -> None:
    decision = attempt(request, judged, loads, exclude)
    if not isinstance(decision, Decision):
        return
    tier = CONFIG.tiers[CONFIG.ladder[decision.tier]]
    assert decision.replica in {replica.name for replica in tier.replicas}
    assert decision.replica not in exclude
    assert loads.get(decision.replica, 0.0) < DOWN
    assert decision.reasons
    if Reason.PINNED not in decision.reasons:
        assert Need.VISION not in request.needs or Need.VISION in tier.can
        assert Need.TOOLS not in request.needs or Need.TOOLS in tier.can


@given(REQUESTS, JUDGED, LOADS)
def test_the_same_question_gets_the_same_answer(
    request: View, judged: Judged, loads: dict[str, float]
) -> None:
    first, second = attempt(request, judged, loads), attempt(request, judged, loads)
    assert first == second or str(first) == str(second)


@given(REQUESTS, JUDGED, LOADS)
def test_nobody_gets_a_full_replica_while_the_tiers_other_one_has_room(
    request: View, judged: Judged, loads: dict[str, float]
) -> None:
    decision = attempt(request, judged, loads)
    if isinstance(decision, Decision) and loads.get(decision.replica, 0.0) >= FULL:
        tier = CONFIG.tiers[CONFIG.ladder[decision.tier]]
        assert all(loads.get(replica.name or "", 0.0) >= FULL for replica in tier.replicas)


@given(REQUESTS, JUDGED, LOADS, st.sampled_from(NAMES), st.floats(0.2, 2))
def test_more_load_on_a_replica_of_the_tier_that_lost_changes_no_winner(
    request: View, judged: Judged, loads: dict[str, float], loser: str, more: float
) -> None:
    decision = attempt(request, judged, loads)
    if not isinstance(decision, Decision) or loser == decision.replica:
        return
    tier = CONFIG.tiers[CONFIG.ladder[decision.tier]]
    if loser not in {replica.name for replica in tier.replicas}:
        return
    least = min(loads.get(replica.name or "", 0.0) for replica in tier.replicas)
    if loads.get(loser, 0.0) == least:
        return  # the tier's own pressure would change, and with it the tier
    after = attempt(request, judged, {**loads, loser: loads.get(loser, 0.0) + more})
    assert isinstance(after, Decision)
    assert after.replica == decision.replica


@given(REQUESTS, st.floats(0, 1), st.floats(0, 1))
def test_a_harder_turn_never_goes_to_a_smaller_tier(request: View, one: float, two: float) -> None:
    easy, hard = sorted((one, two))
    lower = attempt(request, Judged(Verdict(easy)), {})
    upper = attempt(request, Judged(Verdict(hard)), {})
    if isinstance(lower, Decision) and isinstance(upper, Decision):
        assert CONFIG.ladder[lower.tier] <= CONFIG.ladder[upper.tier]


# ---- learned token counts


def test_a_tier_whose_tokens_were_found_to_be_more_is_too_small_sooner() -> None:
    assert led(go(tokens=600)) == ("small", ["easy"])
    assert led(go(tokens=600, scales={"small": 1.5})) == ("middle", ["easy", "needs_context"])
    assert led(go(tokens=900, scales={"small": 0.5})) == ("small", ["easy"])


# ---- priority and shedding


@pytest.mark.parametrize(
    ("how", "priority"),
    [
        ({}, -1),
        ({"verdict": HARD}, 0),
        ({"verdict": MIDDLE}, 0),
        ({"verdict": Verdict(0.9, intent="balance", confidence=0.9)}, -1),
        ({"verdict": Verdict(0.1, intent="contract", confidence=0.9)}, 0),
        ({"verdict": Verdict(0.5, abstain="no signal")}, 0),
        ({"kind": Kind.HOUSEKEEPING}, 1),
        ({"header": "small"}, 0),
        ({"priority": 7}, 7),
        ({"priority": 0}, 0),
        ({"loads": {"s0": DOWN, "small-0": DOWN, "small-1": DOWN}}, -1),
    ],
)
def test_easy_requests_are_stamped_to_overtake(how: dict[str, Any], priority: int) -> None:
    assert go(**how).priority == priority


def test_nothing_is_stamped_where_the_operator_says_so() -> None:
    quiet = CONFIG.model_copy(update={"load": CONFIG.load.model_copy(update={"stamp": 0})})
    assert go(config=quiet).priority == 0


def test_one_tier_has_a_queue_to_order_too() -> None:
    one = parse("tiers: [{name: only, model: m, replicas: [http://a]}]")
    easy = decide(view(), Judged(EASY), one, (0.5,), {})
    hard = decide(view(), Judged(HARD), one, (0.5,), {})
    assert (easy.tier, easy.reasons, easy.priority) == ("only", (Reason.EASY,), -1)
    assert (hard.tier, hard.reasons, hard.priority) == ("only", (Reason.HARD,), 0)


ALL = ["small-0", "small-1", "middle-0", "large-0", "large-1", "large-2"]


@pytest.mark.parametrize(
    ("priority", "load", "shed"),
    [
        (None, 4.0, False),  # easy: it is stamped with -1
        (0, 3.9, False),
        (0, 4.0, True),
        (1, 1.9, False),
        (1, 2.0, True),
        (-1, 7.9, False),
        (-1, 8.0, True),
    ],
)
def test_the_lowest_priority_is_shed_first(priority: int | None, load: float, shed: bool) -> None:
    loads = dict.fromkeys(ALL, load)
    if not shed:
        assert go(loads=loads, priority=priority).tier == "small"
        return
    with pytest.raises(Overloaded, match="tier `small` is at") as caught:
        go(loads=loads, priority=priority)
    assert caught.value.tier == "small"


def test_what_would_be_shed_goes_up_where_there_is_room() -> None:
    loads = dict.fromkeys(ALL, 9.0) | {"large-1": 3.0}
    assert led(go(loads=loads)) == ("large", ["easy", "spilled"])
    with pytest.raises(Overloaded):
        go(loads=loads, header="middle")
    free = dict.fromkeys(ALL, 0.0) | {"large-0": 5.0, "large-1": 5.0, "large-2": 5.0}
    with pytest.raises(Overloaded, match="large"):
        go(HARD, loads=free)  # a hard request is not answered by less than it needs


def test_the_share_that_must_end_first_is_told() -> None:
    with pytest.raises(Overloaded) as caught:
        go(HARD, loads=dict.fromkeys(ALL, 16.0))
    assert caught.value.excess == 0.75


def test_nothing_is_shed_where_the_operator_says_so() -> None:
    load = CONFIG.load.model_copy(update={"shed": None})
    patient = CONFIG.model_copy(update={"load": load})
    assert go(HARD, loads=dict.fromkeys(ALL, 99.0), config=patient).tier == "large"
