"""The decision log as LangChain's door writes it."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from tests.langchain.test_chat import model, tier
from tier_router.errors import TierRouterError
from tier_router.langchain import ChatTierRouter
from tier_router.testing import faults

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def lines(chat: ChatTierRouter, path: Path) -> list[dict[str, Any]]:
    chat._book.close()
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_call_leaves_a_line(stage: Any, tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    chat = model(stage, f"log: {path}")
    answer = chat.invoke("a secret question")
    for _ in chat.stream("prove it"):
        pass
    one, two = lines(chat, path)
    assert (one["door"], one["tier"], one["outcome"]) == ("langchain", tier(answer), "done")
    assert one["usage"]["completion"] == answer.usage_metadata["output_tokens"]  # type: ignore[index]
    assert (two["tier"], two["reasons"]) == ("heavy", ["hard"])
    assert 0 < two["ttft"] <= two["latency"]
    assert "secret" not in path.read_text()


def test_a_call_that_nothing_answered_has_one_too(stage: Any, tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    chat = model(stage, f"log: {path}")
    for fake in stage.fakes:
        fake.faults.add(faults.BUSY, times=None)
    with pytest.raises(TierRouterError):
        chat.invoke("hello")
    (line,) = lines(chat, path)
    assert line["outcome"] == "no_replica"
    assert line["attempts"] == len(line["failed"]) > 1


def test_a_model_with_a_log_can_be_copied(stage: Any, tmp_path: Path) -> None:
    chat = model(stage, f"log: {tmp_path / 'd.jsonl'}")
    chat.invoke("hello")
    assert copy.deepcopy(chat._book).dropped == 0
    chat._book.close()
