"""One request's way over the replicas, without any I/O."""

from collections.abc import Mapping

import pytest

from tier_router.config import parse
from tier_router.decide import Decision, Reason
from tier_router.dispatch import (
    FREE_RETRIES,
    Dispatch,
    Failure,
    RetryBudget,
    failure_of_answer,
    failure_of_event,
)
from tier_router.errors import NoReplica, TierRouterError, UpstreamError, UpstreamTimeout
from tier_router.ledger import Lease, Ledger, Outcome
from tier_router.pace import Usage
from tier_router.pressure import DOWN

CONFIG = parse("tiers: [{name: t, model: m, replicas: [http://a, http://b, http://c]}]")
NAMES = ["t-0", "t-1", "t-2"]
LEARNT: list[tuple[str, Usage | None, float]] = []
BUSY = b'{"error":{"message":"The engine is currently busy","type":"Service Unavailable"}}'


def dispatch(ledger: Ledger, attempts: int = 3, budget: RetryBudget | None = None) -> Dispatch:
    def choose(exclude: frozenset[str]) -> Decision:
        left = [name for name in NAMES if name not in exclude]
        if not left:
            raise NoReplica("none")
        return Decision("t", left[0], "http://x", "m", (Reason.EASY,))

    learnt = LEARNT
    learnt.clear()

    def learn(decision: Decision, lease: Lease, usage: Usage | None, now: float) -> None:
        learnt.append((decision.replica, usage, now))

    return Dispatch(choose, ledger, 10, attempts, budget or RetryBudget(0.0), learn)


def test_it_walks_over_the_replicas_and_keeps_the_books() -> None:
    ledger = Ledger(CONFIG)
    way = dispatch(ledger)
    assert way.begin(0).replica == "t-0"
    assert way.failed(Failure(Outcome.FAILED, "refused"), 1).replica == "t-1"
    assert way.failed(Failure(Outcome.BUSY, "503", 5.0), 2).replica == "t-2"
    assert [ledger.in_flight(name) for name in NAMES] == [0, 0, 1]
    way.first_token(3.0)
    way.closed(Outcome.DONE, 4)
    assert ledger.in_flight("t-2") == 0
    assert list(way.failures) == ["t-0", "t-1"]


def test_a_request_that_breaks_one_replica_after_the_other_rests_the_first_alone() -> None:
    ledger = Ledger(CONFIG)
    way, broke = dispatch(ledger), Failure(Outcome.FAILED, "connection closed", suspect=True)
    way.begin(0)
    way.failed(broke, 0)
    way.failed(broke, 0)
    with pytest.raises(UpstreamError):
        way.failed(broke, 0)
    loads = ledger.pressures(0.1)
    assert [loads[name] == DOWN for name in NAMES] == [True, False, False]


def test_replicas_that_refuse_to_connect_all_rest() -> None:
    ledger = Ledger(CONFIG)
    way, refused = dispatch(ledger), Failure(Outcome.FAILED, "refused")
    way.begin(0)
    way.failed(refused, 0)
    way.failed(refused, 0)
    with pytest.raises(UpstreamError):
        way.failed(refused, 0)
    assert set(ledger.pressures(0.1).values()) == {DOWN}


def test_the_error_tells_what_every_replica_said() -> None:
    way = dispatch(Ledger(CONFIG))
    way.begin(0)
    way.failed(Failure(Outcome.FAILED, "connection refused"), 0)
    way.failed(Failure(Outcome.BUSY, "503 busy"), 0)
    with pytest.raises(UpstreamError, match=r"t-0: connection refused; t-1: 503 busy; t-2: reset"):
        way.failed(Failure(Outcome.FAILED, "reset"), 0)


def test_attempts_are_bounded() -> None:
    way = dispatch(Ledger(CONFIG), attempts=1)
    way.begin(0)
    with pytest.raises(UpstreamError):
        way.failed(Failure(Outcome.FAILED, "x"), 0)


@pytest.mark.parametrize(
    ("failures", "kind", "status"),
    [
        ([Failure(Outcome.BUSY, "x", 9.0), Failure(Outcome.DRAINING, "y", 4.0)], NoReplica, 503),
        ([Failure(Outcome.BUSY, "x"), Failure(Outcome.FAILED, "y")], UpstreamError, 502),
        ([Failure(Outcome.FAILED, "x", timeout=True)], UpstreamTimeout, 504),
    ],
)
def test_the_kind_of_error(
    failures: list[Failure], kind: type[TierRouterError], status: int
) -> None:
    way = dispatch(Ledger(CONFIG), attempts=len(failures))
    way.begin(0)
    for failure in failures[:-1]:
        way.failed(failure, 0)
    with pytest.raises(kind) as caught:
        way.failed(failures[-1], 0)
    assert type(caught.value) is kind
    assert caught.value.status == status
    if isinstance(caught.value, NoReplica):
        assert caught.value.retry_after == 4.0


@pytest.mark.parametrize(
    ("status", "body", "outcome"),
    [
        (503, BUSY, Outcome.BUSY),
        (429, b"", Outcome.BUSY),
        (502, b"<html>", Outcome.FAILED),
        (504, b"", Outcome.FAILED),
        (
            500,
            b'{"error":{"message":"cannot schedule new futures after shutdown"}}',
            Outcome.DRAINING,
        ),
        (500, b'{"error":{"message":"EngineCore encountered an issue"}}', Outcome.FAILED),
        (500, b'{"error":{"message":"list index out of range"}}', None),
        (400, b"{}", None),
        (404, b"{}", None),
        (401, b'{"error":"Unauthorized"}', None),
        (200, b"{}", None),
    ],
)
def test_which_answers_are_failures(status: int, body: bytes, outcome: Outcome | None) -> None:
    failure = failure_of_answer(status, body)
    assert (failure and failure.outcome) == outcome


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("3", 3.0), ("0.5", 0.5), (None, None), ("soon", None), ("-1", None), ("1e9", None)],
)
def test_retry_after_is_read_in_seconds(header: str | None, seconds: float | None) -> None:
    failure = failure_of_answer(503, BUSY, header)
    assert failure is not None
    assert failure.retry_after == seconds
    assert failure.message == "503 The engine is currently busy"


EVENTS: Mapping[bytes, Outcome | None] = {
    b'{"error":{"message":"EngineCore encountered an issue","code":500}}': Outcome.FAILED,
    b'{"error": {"message": "cannot schedule new futures after shutdown"}}': Outcome.DRAINING,
    b'{"object":"error","message":"old shape"}': Outcome.FAILED,
    b'{"id":"chatcmpl-1","choices":[{"delta":{"content":"{\\"error\\""}}]}': None,
    b"[DONE]": None,
}


@pytest.mark.parametrize("data", EVENTS)
def test_an_error_as_first_event_is_a_failure(data: bytes) -> None:
    failure = failure_of_event(data)
    assert (failure and failure.outcome) == EVENTS[data]


def test_what_an_answer_said_of_itself_is_learnt_once() -> None:
    way = dispatch(Ledger(CONFIG))
    way.begin(0)
    way.failed(Failure(Outcome.FAILED, "x"), 0)
    way.closed(Outcome.DONE, 4, usage=Usage(10, 20))
    way.closed(Outcome.DONE, 5, usage=Usage(10, 20))
    assert [("t-1", Usage(10, 20), 4)] == LEARNT


def test_retries_are_a_share_of_the_traffic() -> None:
    budget = RetryBudget(0.5)
    for _ in range(int(FREE_RETRIES)):
        assert budget.take(0)
    assert not budget.take(0)
    for _ in range(4):
        budget.request(0)
    assert [budget.take(0) for _ in range(3)] == [True, True, False]
    assert budget.take(60)  # what is long past counts no more


def test_a_request_ends_with_its_error_when_the_budget_is_spent() -> None:
    budget = RetryBudget(0.0)
    while budget.take(0):
        pass
    way = dispatch(Ledger(CONFIG), budget=budget)
    way.begin(0)
    with pytest.raises(UpstreamError, match="t-0: refused"):
        way.failed(Failure(Outcome.FAILED, "refused"), 0)


def test_a_replica_that_serves_another_model_has_failed() -> None:
    body = b'{"error":{"message":"The model `m` does not exist.","param":"model","code":404}}'
    failure = failure_of_answer(404, body)
    assert failure is not None
    assert failure.outcome is Outcome.FAILED
    assert failure_of_answer(404, b'{"detail":"Not Found"}') is None
    assert failure_of_answer(404, b"nothing here") is None


# ---- hedging


def rivals(ledger: Ledger) -> Dispatch:
    way = dispatch(ledger)
    way.begin(0)
    second = way.hedge(1)
    assert second is not None
    assert (second.replica, second.reasons) == ("t-1", (Reason.EASY, Reason.HEDGED))
    assert [ledger.in_flight(name) for name in NAMES] == [1, 1, 0]
    return way


@pytest.mark.parametrize("winner", ["t-0", "t-1"])
def test_the_first_token_tells_which_of_two_replicas_goes_on(winner: str) -> None:
    ledger = Ledger(CONFIG)
    way = rivals(ledger)
    way.first_token(2, winner)
    assert [ledger.in_flight(name) for name in NAMES[:2]] == [winner == "t-0", winner == "t-1"]
    assert way.decision is not None
    assert way.decision.replica == winner
    way.closed(Outcome.DONE, 3)
    assert [ledger.in_flight(name) for name in NAMES] == [0, 0, 0]
    assert [entry[0] for entry in LEARNT] == [winner]
    assert all(load == 0.0 for load in ledger.pressures(3).values())


@pytest.mark.parametrize("lost", ["t-0", "t-1"])
def test_when_one_of_two_replicas_fails_the_other_goes_on(lost: str) -> None:
    ledger = Ledger(CONFIG)
    way = rivals(ledger)
    left = way.failed(Failure(Outcome.FAILED, "reset"), 2, lost)
    assert left.replica == ("t-1" if lost == "t-0" else "t-0")
    assert way.failed(Failure(Outcome.FAILED, "reset"), 3, left.replica).replica == "t-2"
    with pytest.raises(UpstreamError, match="t-0: reset"):
        way.failed(Failure(Outcome.FAILED, "reset"), 4)


def test_there_is_no_hedge_without_budget_attempts_or_a_second_replica() -> None:
    spent = RetryBudget(0.0)
    while spent.take(0):
        pass
    for way in (dispatch(Ledger(CONFIG), budget=spent), dispatch(Ledger(CONFIG), attempts=1)):
        way.begin(0)
        assert way.hedge(0) is None
    way = dispatch(Ledger(CONFIG), attempts=9)
    way.begin(0)
    assert [way.hedge(0) is None for _ in range(3)] == [False, False, True]


def test_a_client_that_leaves_closes_both() -> None:
    ledger = Ledger(CONFIG)
    rivals(ledger).closed(Outcome.ABANDONED, 2)
    assert [ledger.in_flight(name) for name in NAMES] == [0, 0, 0]
