"""The decision by itself, over HTTP and through the clients that speak this shape."""

from typing import Any

import pytest


def chat(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "auto", "messages": [{"role": "user", "content": text}], **more}


def choice(*labels: str) -> dict[str, Any]:
    return {"type": "choice", "instructions": "?", "criteria": dict.fromkeys(labels, "...")}


async def test_a_decision_without_the_call(stage: Any) -> None:
    http = await stage.serve()
    told = await http.post("/v1/tier/decision", json=chat("prove it"))
    assert told.json()["tier"] == told.headers["x-tier-router-tier"] == "heavy"
    assert told.json()["reasons"] == ["hard"]
    assert sum(stage.served().values()) == 0


async def test_questions(stage: Any) -> None:
    http = await stage.serve()
    asked = {
        "model": "any",
        "state": "prove it",
        "questions": {"tier": choice("light", "heavy"), "level": choice("SIMPLE", "REASONING")},
    }
    told = (await http.post("/v1/systemone", json=asked)).json()
    assert told["answers"]["tier"]["choice"] == "heavy"
    assert told["answers"]["level"]["choice"] == "REASONING"
    assert told["usage"]["output_tokens"] == 0


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"state": "x"}, "questions"),
        ({"questions": {"q": choice("light")}}, "state"),
        ({"state": "x", "questions": {"q": choice("a", "b")}}, "questions.q.criteria"),
    ],
)
async def test_a_bad_question_is_named(stage: Any, body: dict[str, Any], param: str) -> None:
    http = await stage.serve()
    told = await http.post("/v1/systemone", json=body)
    assert (told.status_code, told.json()["error"]["param"]) == (400, param)


async def test_langchain_reads_the_answer(stage: Any) -> None:
    decisions = pytest.importorskip("langchain_core.decisions", reason="langchain is missing")
    http = await stage.serve()
    asked = {"state": "hello", "questions": {"q": choice("light", "heavy")}}
    told = (await http.post("/v1/systemone", json=asked)).json()
    answer = decisions.ClassifierResponse.model_validate(told).choices["q"]
    assert answer.choice == "light"


async def test_semantic_routers_own_client(stage: Any) -> None:
    models = pytest.importorskip(
        "semantic_router.decision_models", reason="semantic-router 1.x is not installed"
    )
    from semantic_router import Route
    from semantic_router.routers import DecisionRouter

    await stage.serve()
    model = models.SystemOneDecisionModel(name="tier-router", base_url=stage.sidecar.url)
    router = DecisionRouter(
        model=model,
        routes=[
            Route(name="light", description="everyday requests"),
            Route(name="heavy", description="proofs"),
        ],
    )
    try:
        assert (await router.acall("prove it")).name == "heavy"
        assert (await router.acall("hello")).name == "light"
    finally:
        await model.aclose()
