"""Pruned calls of LangChain: what the models are sent, and what callers' messages still hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call

from tests.langchain.test_chat import model
from tests.unit.prune.tools import retrieved
from tier_router.config import parse
from tier_router.langchain import ChatTierRouter
from tier_router.langchain.pruned import _content
from tier_router.testing import FixedClassifier, faults

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

PRETTY = json.dumps([{"id": n, "name": f"row {n}"} for n in range(40)], indent=4)
FOLDED = json.dumps(json.loads(PRETTY), separators=(",", ":"))
ON = "pruning: {mode: on, holdout: 0, budget_ms: 2000}"


def conversation(result: Any = PRETTY) -> list[BaseMessage]:
    call = tool_call(name="look", args={}, id="1")
    return [
        HumanMessage("which rows are there?"),
        AIMessage("", tool_calls=[call]),
        ToolMessage(result, tool_call_id="1"),
    ]


@pytest.mark.parametrize("stream", [False, True])
def test_calls_go_out_pruned_and_the_answer_says_so(stage: Any, stream: bool) -> None:
    chat, mine = model(stage, ON), conversation()
    if stream:
        answer: Any = next(iter(chat.stream(mine)))
    else:
        answer = chat.invoke(mine)
    (body,) = stage.asked()
    assert body["messages"][2]["content"] == FOLDED
    assert mine == conversation(), "a caller's own messages stay"
    assert answer.response_metadata["tier_router"]["pruned"].startswith("fold=-")


async def test_asynchronous_calls_too(stage: Any) -> None:
    chat = model(stage, ON)
    await chat.ainvoke(conversation())
    assert [chunk async for chunk in chat.astream(conversation())]
    assert all(body["messages"][2]["content"] == FOLDED for body in stage.asked())


def test_the_next_model_is_sent_what_is_best_for_it(stage: Any) -> None:
    chat = model(stage, ON)
    for fake in stage.light:
        fake.faults.add(faults.BUSY, times=1)
    chat.invoke(conversation())
    assert len(stage.asked()) == 3
    assert {body["messages"][2]["content"] for body in stage.asked()} == {FOLDED}


def test_blocks_of_text_are_pruned_and_stay_the_callers_own(stage: Any) -> None:
    parts = [{"type": "text", "text": PRETTY}]
    answer = model(stage, ON).invoke(conversation(parts))
    assert stage.asked()[0]["messages"][2]["content"] == FOLDED
    assert "pruned" in answer.response_metadata["tier_router"]
    assert parts == [{"type": "text", "text": PRETTY}]


def test_texts_beside_images_are_pruned_in_their_place(stage: Any) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    asked = HumanMessage([image, {"type": "text", "text": retrieved("What is a Clarinet?")}])
    rag = ON.replace("mode: on", "mode: on, steps: {rag: on}, promote: {unproven: [rag]}")
    model(stage, rag).invoke([asked])
    seen, text = stage.asked()[0]["messages"][0]["content"]
    assert seen["image_url"] == image["image_url"]
    assert "reed mouthpiece" in text["text"]
    assert "Sicily" not in text["text"]


@pytest.mark.parametrize(
    ("old", "new", "content"),
    [
        ("a", "b", "b"),
        ([{"type": "text", "text": "a"}], "b", "b"),
        (["a", {"type": "image"}], [{"type": "text", "text": "b"}, {}], ["b", {"type": "image"}]),
        ([{"text": "a", "id": 1}], [{"text": "b"}], [{"text": "b", "id": 1}]),
        ([{"type": "other"}], [{"text": "b"}], None),
        (["a", "c"], [{"text": "b"}], None),
        ("a", [{"text": "b"}], None),
    ],
)  # fmt: skip
def test_texts_go_where_they_came_from_or_nowhere(old: Any, new: Any, content: Any) -> None:
    assert _content(old, new) == content


def test_off_sends_what_was_written(stage: Any) -> None:
    answer = model(stage).invoke(conversation())
    assert stage.asked()[0]["messages"][2]["content"] == PRETTY
    assert "pruned" not in answer.response_metadata["tier_router"]


def test_thinking_is_switched_off_beside_the_callers_own_extras(stage: Any) -> None:
    on = ON.replace("mode: on", "mode: on, tiers: {light: {template: tail}}")
    model(stage, on).invoke("hello", extra_body={"top_k": 5})
    (body,) = stage.asked()
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert body["top_k"] == 5


def test_other_models_get_no_fields_of_vllms() -> None:
    config = parse(
        "tiers: [{name: light, model: m, replicas: [http://a.invalid]}]\n"
        "pruning: {mode: on, holdout: 0, tiers: {light: {template: tail}}}\n"
    )
    chat = ChatTierRouter(
        config=config,
        tiers={"light": FakeListChatModel(responses=["yes"])},
        classifier=lambda _: FixedClassifier(0.1, {}),
    )
    answer = chat.invoke("hello")
    assert answer.content == "yes"
    assert "pruned" not in answer.response_metadata["tier_router"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("says", "lost"),
    [("A woodwind instrument.", False), ("It lies on the east coast of Sicily, in Italy.", True)],
)
def test_answers_are_audited(
    stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: bool, says: str, lost: bool
) -> None:
    for fake in stage.fakes:
        monkeypatch.setattr(fake, "_answer", lambda _: says)
    log, proofs = tmp_path / "d.jsonl", tmp_path / "proofs.json"
    chat = model(
        stage, f"pruning: {{mode: observe, budget_ms: 2000, proofs: {proofs}}}\nlog: {log}"
    )
    question = retrieved("What is a Clarinet?")
    if stream:
        assert list(chat.stream(question))
    else:
        chat.invoke(question)
    chat.router.pruner.close()
    chat._book.close()
    (line,) = [json.loads(each) for each in log.read_text().splitlines()]
    assert [(each["step"], each["lost"]) for each in line["pruning"]["audit"]] == [("rag", lost)]
    assert json.loads(proofs.read_text())["rows"][0]["lost"] == int(lost)


def test_what_fits_by_pruning_alone_stays_with_the_smaller_tier(stage: Any) -> None:
    rows = json.dumps([{"id": n, "name": f"row {n}"} for n in range(150)], indent=16)
    for more, tier in (("", "heavy"), (ON, "light")):
        config = stage.config(more)
        tiers = (config.tiers[0].model_copy(update={"context": 2_400}), config.tiers[1])
        chat = ChatTierRouter(
            config=config.model_copy(update={"tiers": tiers}),
            classifier=lambda _: FixedClassifier(0.1, {}),
        )
        answer = chat.invoke(conversation(rows))
        assert answer.response_metadata["tier_router"]["tier"] == tier
