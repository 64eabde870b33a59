"""What is in flight where, and which replicas are up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tier_router.config import parse
from tier_router.ledger import FIRST_BREAK, LIFETIME, LONGEST_BREAK, Ledger, Outcome, Report
from tier_router.pressure import DOWN, FULL, Reading

TEXT = """
tiers:
  - name: light
    model: m
    limits: {requests: 4, tokens: 1000}
    replicas: [http://a, {url: http://b, weight: 2}]
"""
CONFIG = parse(TEXT)


def ledger() -> Ledger:
    return Ledger(CONFIG)


def test_requests_and_tokens_make_the_pressure() -> None:
    book = ledger()
    assert dict(book.pressures(0)) == {"light-0": 0.0, "light-1": 0.0}
    one = book.opened("light-0", 100, 0)
    assert book.pressures(0)["light-0"] == 0.25
    two = book.opened("light-0", 700, 0)
    assert book.pressures(0)["light-0"] == 0.8
    book.opened("light-1", 700, 0)
    assert book.pressures(0)["light-1"] == 0.35
    book.closed(two, Outcome.DONE, 1)
    book.closed(one, Outcome.ABANDONED, 1)
    assert book.pressures(1)["light-0"] == 0.0


def test_a_lease_closes_once() -> None:
    book = ledger()
    kept, lease = book.opened("light-0", 10, 0), book.opened("light-0", 10, 0)
    for _ in range(3):
        book.closed(lease, Outcome.DONE, 1)
    assert book.in_flight("light-0") == 1
    book.closed(kept, Outcome.DONE, 1)
    assert book.in_flight("light-0") == 0


def test_a_lease_that_nobody_closed_expires() -> None:
    book = ledger()
    book.opened("light-0", 10, 0)
    book.pressures(LIFETIME - 1)
    assert book.in_flight("light-0") == 1
    book.pressures(LIFETIME)
    assert book.in_flight("light-0") == 0


def test_time_to_first_token() -> None:
    book = ledger()
    lease = book.opened("light-0", 10, 5.0)
    assert lease.ttft is None
    book.first_token(lease, 5.5)
    book.first_token(lease, 9.0)
    assert lease.ttft == 0.5


def fail(book: Ledger, now: float, outcome: Outcome = Outcome.FAILED) -> None:
    book.closed(book.opened("light-0", 1, now), outcome, now)


def test_a_failed_replica_rests_and_one_request_probes_it() -> None:
    book = ledger()
    fail(book, 0)
    assert book.pressures(FIRST_BREAK - 0.01)["light-0"] == DOWN
    assert book.pressures(FIRST_BREAK)["light-0"] == 0.0
    probe = book.opened("light-0", 1, FIRST_BREAK)
    assert book.pressures(FIRST_BREAK)["light-0"] == DOWN, "one probe, not a stampede"
    book.first_token(probe, 2.0)
    assert book.pressures(2.0)["light-0"] == 0.25
    book.closed(probe, Outcome.DONE, 3.0)
    assert book.pressures(3.0)["light-0"] == 0.0


def test_each_failure_in_a_row_doubles_the_rest() -> None:
    book, now, rests = ledger(), 0.0, []
    for _ in range(8):
        fail(book, now)
        rest = next(s for s in range(1, 100) if book.pressures(now + s)["light-0"] < DOWN)
        rests.append(rest)
        now += rest
    assert rests == [1, 2, 4, 8, 16, 30, 30, 30]
    assert max(rests) == LONGEST_BREAK


def test_an_answer_that_began_before_the_failure_does_not_end_the_rest() -> None:
    book = ledger()
    early = book.opened("light-0", 1, 0)
    fail(book, 1)
    book.closed(early, Outcome.DONE, 1.5)
    assert book.pressures(1.6)["light-0"] == DOWN


def test_an_abandoned_probe_lets_the_next_one_try() -> None:
    book = ledger()
    fail(book, 0)
    probe = book.opened("light-0", 1, 2)
    book.closed(probe, Outcome.ABANDONED, 3)
    assert book.pressures(3)["light-0"] == 0.0


@pytest.mark.parametrize(("retry_after", "until"), [(None, 1.0), (7.0, 7.0)])
def test_busy_counts_as_full_for_as_long_as_it_was_told(
    retry_after: float | None, until: float
) -> None:
    book = ledger()
    book.closed(book.opened("light-0", 1, 0), Outcome.BUSY, 0, retry_after)
    assert book.pressures(until - 0.1)["light-0"] == FULL
    assert book.pressures(until)["light-0"] == 0.0


def test_a_draining_replica_is_left_alone() -> None:
    book = ledger()
    fail(book, 0, Outcome.DRAINING)
    assert book.pressures(9)["light-0"] == DOWN
    assert book.pressures(11)["light-0"] == 0.0


def test_a_new_configuration_keeps_what_is_known() -> None:
    book = ledger()
    lease = book.opened("light-0", 10, 0)
    gone = book.opened("light-1", 10, 0)
    fail(book, 0)
    book.adopt(parse(TEXT.replace(", {url: http://b, weight: 2}", "").replace("4", "8")))
    assert set(book.pressures(0)) == {"light-0"}
    assert book.pressures(0)["light-0"] == DOWN
    book.closed(gone, Outcome.DONE, 0)
    book.closed(lease, Outcome.DONE, 0)
    assert book.in_flight("light-0") == 0


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["open", "close", "token"]),
        st.sampled_from(["light-0", "light-1", "nobody"]),
        st.sampled_from(Outcome),
        st.floats(0, 20),
    ),
    max_size=60,
)


@given(STEPS)
def test_counts_are_what_is_open_whatever_happens(
    steps: list[tuple[str, str, Outcome, float]],
) -> None:
    book, now, leases = ledger(), 0.0, []
    for what, replica, outcome, wait in steps:
        now += wait
        if what == "open":
            leases.append(book.opened(replica, 10, now))
        elif leases:
            lease = leases[len(replica) % len(leases)]
            if what == "token":
                book.first_token(lease, now)
            else:
                book.closed(lease, outcome, now)
        loads = book.pressures(now)
        for name in ("light-0", "light-1"):
            count = sum(lease.open and lease.replica == name for lease in leases)
            assert book.in_flight(name) == count
            assert loads[name] >= 0
    for lease in leases:
        book.closed(lease, Outcome.DONE, now)
    later = book.pressures(now + LIFETIME)
    assert all(later[name] == 0.0 for name in ("light-0", "light-1")), "all recover"


def test_what_a_replica_says_counts_until_it_is_stale() -> None:
    book = ledger()
    book.read("light-0", Reading(waiting=8, kv=0.45), 0, lasts=2)
    assert book.pressures(1)["light-0"] == 0.5
    book.read("light-0", Reading(kv=0.9), 1, lasts=5)
    assert book.pressures(1.5)["light-0"] == FULL
    assert book.pressures(2.5)["light-0"] == FULL
    assert book.pressures(6)["light-0"] == 0.0
    book.read("nobody", Reading(kv=1.0), 1, lasts=5)


def test_a_missing_reading_is_not_a_zero() -> None:
    book = ledger()
    book.read("light-0", Reading(waiting=16), 0, lasts=2)
    book.read("light-0", Reading(kv=0.1), 0, lasts=2)
    assert book.pressures(1)["light-0"] == FULL


def test_of_the_requests_a_replica_has_open_only_those_of_others_are_added() -> None:
    book = ledger()
    mine = book.opened("light-0", 1, 0)
    book.read("light-0", Reading(requests=3), 0, lasts=2)
    assert book.pressures(0)["light-0"] == 0.75
    book.opened("light-0", 1, 0)
    assert book.pressures(0)["light-0"] == 1.0
    book.closed(mine, Outcome.DONE, 0)
    assert book.pressures(0)["light-0"] == 0.75
    book.heard([Report({"light-0": 1}, {}, {})], 0)  # peers are among what the replica counted
    assert book.pressures(0)["light-0"] == 0.75
    assert book.pressures(2)["light-0"] == 0.5


def test_what_was_in_flight_when_a_replica_died_is_one_failure() -> None:
    book = ledger()
    leases = [book.opened("light-0", 1, 0) for _ in range(11)]
    for lease in leases:
        book.closed(lease, Outcome.FAILED, 1)
    assert book.pressures(1 + FIRST_BREAK - 0.01)["light-0"] == DOWN
    assert book.pressures(1 + FIRST_BREAK)["light-0"] == 0.0
    book.closed(book.opened("light-0", 1, 3), Outcome.FAILED, 4)  # its probe
    assert book.pressures(4 + 2 * FIRST_BREAK - 0.01)["light-0"] == DOWN
