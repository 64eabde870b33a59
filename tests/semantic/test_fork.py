"""A forked process: the library's own synchronous calls never return there, ours do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.semantic.tools import ROUTES, SlowEncoder, engine_of, settled
from tier_router.request import Turn
from tier_router.semantic import SemanticClassifier

ROOT = Path(__file__).parents[2]


def child_of(kind: str) -> None:
    """Asks, forks, and asks in both processes."""
    import os

    if kind == "direct":
        engine = SemanticClassifier.of_routes(ROUTES)
    else:
        engine = engine_of(SlowEncoder(delay=0.05), deadline=0.01)
    assert settled(engine, "when do you open").intent == "hours"
    engine.classify(Turn("a call that is under way while the process forks"))
    child = os.fork()
    assert settled(engine, "what is my balance").intent == "balance"
    assert settled(engine, "when do you open").intent == "hours"
    if child == 0:
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0
    print("both answered")


@pytest.mark.parametrize("kind", ["direct", "worker"])
def test_both_sides_of_a_fork_are_answered(kind: str) -> None:
    code = f"from tests.semantic.test_fork import child_of; child_of({kind!r})"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
        check=False,
    )
    assert done.stdout == "both answered\n", done.stderr
