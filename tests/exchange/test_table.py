"""Workers of one host that share a table."""

import multiprocessing
import os
from typing import Any

import pytest

from tier_router.config import parse
from tier_router.exchange.table import COLUMNS, Row, Table
from tier_router.ledger import LOOK, Ledger, Outcome
from tier_router.pressure import DOWN

CONFIG = parse(
    "tiers: [{name: t, model: m, limits: {requests: 10}, replicas: [http://a, http://b]}]"
)


def worker(table: Table, number: int) -> Ledger:
    ledger = Ledger(CONFIG)
    ledger.join(table.row(number))
    return ledger


def test_each_sees_what_the_others_have_in_flight_at_once() -> None:
    table = Table(3)
    one, two, three = (worker(table, number) for number in range(3))
    lease = one.opened("t-0", 5, 1.0)
    two.opened("t-0", 5, 1.0)
    assert [each.pressures(1.0)["t-0"] for each in (one, two, three)] == [0.2, 0.2, 0.2]
    one.closed(lease, Outcome.DONE, 1.1)
    assert [each.pressures(1.1)["t-0"] for each in (one, two, three)] == [0.1, 0.1, 0.1]
    assert one.in_flight("t-0") == 0


def test_what_one_found_down_the_others_leave_alone() -> None:
    table = Table(2)
    one, two = (worker(table, number) for number in range(2))
    one.closed(one.opened("t-1", 1, 0.0), Outcome.FAILED, 0.0)
    assert two.pressures(0.5)["t-1"] == DOWN
    assert two.pressures(1.5)["t-1"] == 0.0


def test_looks_are_not_more_frequent_than_they_need_be() -> None:
    table = Table(2)
    one, two = (worker(table, number) for number in range(2))
    two.pressures(1.0)
    one.opened("t-0", 1, 1.0)
    assert two.pressures(1.0 + LOOK / 2)["t-0"] == 0.0
    assert two.pressures(1.0 + 2 * LOOK)["t-0"] == 0.1


def test_a_worker_that_died_has_nothing_in_flight() -> None:
    table = Table(2)
    one, two = (worker(table, number) for number in range(2))
    one.opened("t-0", 1, 0.0)
    assert two.pressures(1.0)["t-0"] == 0.1
    table.clear(0)
    assert two.pressures(2.0)["t-0"] == 0.0


def test_a_reload_keeps_the_places() -> None:
    table = Table(2)
    one, two = (worker(table, number) for number in range(2))
    one.opened("t-0", 1, 0.0)
    two.adopt(CONFIG)
    assert two.pressures(1.0)["t-0"] == 0.1


def test_places_do_not_depend_on_the_order_and_do_not_collide() -> None:
    row = Table(1).row(0)
    names = [f"replica-{number}" for number in range(500)]
    places = row.columns(names)
    assert places == row.columns(reversed(names))
    assert len(set(places.values())) == 500
    with pytest.raises(ValueError, match="more than"):
        row.columns(map(str, range(COLUMNS + 1)))


def _told(fd: int, pipe: Any) -> None:
    row: Row = Table(2, fd).row(1)
    row.tell(7, 3, 4.5, 6.0)
    pipe.send(row.others(7))


def test_other_processes_see_it_too() -> None:
    table = Table(2)
    row = table.row(0)
    row.tell(7, 1, 2.0, 0.5)
    os.set_inheritable(table.fd, True)
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_told, args=(table.fd, there))
    child.start()
    assert here.poll(20)
    assert here.recv() == (1, 2.0, 0.5)
    child.join()
    assert row.others(7) == (3, 4.5, 6.0)
