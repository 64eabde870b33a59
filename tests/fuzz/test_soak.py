"""What the soak counts as a fault; the run itself is a script, since it takes half an hour."""

from collections import Counter

import pytest

from tests.fuzz.soak import SAMPLES, Seen, report


def seen(**changed: object) -> Seen:
    """A run in which nothing went wrong, but for what is given."""
    fine = Seen(
        Counter(answered=900, cut=2), [100] * SAMPLES, [40, 80, 41], [19, 19], 300.0, 150.0, 60.0
    )
    for name, value in changed.items():
        setattr(fine, name, value)
    return fine


def test_a_run_without_faults() -> None:
    assert seen().faults() == []
    assert "Faults: none." in report(seen())
    grown = [50] * (SAMPLES // 5) + [100] * (SAMPLES * 4 // 5)
    assert seen(memory=grown).faults() == [], "of the warm-up"


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"kinds": Counter(answered=900, lost=1)}, "1 x lost"),
        ({"kinds": Counter(answered=900, wrong=2)}, "2 x wrong"),
        ({"memory": [100 + each for each in range(SAMPLES)]}, "memory grew"),
        ({"descriptors": [40, 80, 60]}, "60 descriptors"),
        ({"tasks": [19, 30]}, "30 tasks"),
        ({"leases": 1.0}, "1 leases are open"),
        ({"generating": 2.0}, "2 requests still generate"),
    ],
)
def test_each_fault_is_named(changed: dict[str, object], word: str) -> None:
    (fault,) = seen(**changed).faults()
    assert word in fault
