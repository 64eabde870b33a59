"""The example prints what it shows."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(
    find_spec("semantic_router") is None, reason="needs pip install 'tier-router[semantic]'"
)
def test_it_prints_what_it_shows() -> None:
    path = ROOT / "examples" / "semantic_routes.py"
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    shown = [line.strip() for line in text.rstrip().rpartition("\n\n")[2].splitlines()]
    done = subprocess.run(
        [sys.executable, str(path)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        timeout=60,
        check=False,
    )
    assert done.stdout.splitlines() == shown, done.stderr
