"""The decision log as LiteLLM's door writes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("litellm", reason="needs pip install 'tier-router[litellm]'")

import litellm

from tests.litellm.tools import EASY, HARD, Stage, chat, eventually, router_of
from tier_router.litellm import TierCallback
from tier_router.testing import BUSY


async def test_a_request_has_one_line_however_many_attempts_it_took(
    stage: Stage, tmp_path: Path
) -> None:
    path = tmp_path / "d.jsonl"
    callback = TierCallback(router_of(stage.config(log=str(path))))
    litellm.callbacks = [callback]
    ledger = callback.brain.router.ledger
    router = stage.router(stage.config())
    await router.acompletion(model="auto", messages=chat(HARD))
    for fake in stage.light:
        fake.faults.add(BUSY, times=1)
    await router.acompletion(model="auto", messages=chat(EASY))
    names = ("light-0", "light-1", "heavy-0")
    await eventually(lambda: not any(ledger.in_flight(name) for name in names))
    callback.brain.book.close()
    hard, easy = (json.loads(line) for line in path.read_text().splitlines())
    assert (hard["door"], hard["tier"], hard["outcome"]) == ("litellm", "heavy", "done")
    assert hard["usage"]["completion"] > 0
    assert hard["latency"] > 0
    assert easy["attempts"] == len(easy["failed"]) + 1 > 1
    assert EASY not in path.read_text()
