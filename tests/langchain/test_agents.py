"""The decision by itself, and inside LangChain's agents."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("langchain", reason="langchain is not installed")

from langchain.agents import create_agent
from langchain.agents.middleware import ModelChoice, ModelRouterMiddleware
from langchain_core.decisions import Choice
from langchain_core.messages import HumanMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableBranch, RunnableLambda
from langchain_core.tools import tool

from tier_router.classify import Verdict
from tier_router.config import Config
from tier_router.errors import ConfigError, RequestError
from tier_router.langchain import (
    ChatTierRouter,
    TierDecisionModel,
    TierMiddleware,
    route_runnable,
)
from tier_router.router import TierRouter
from tier_router.testing import FixedClassifier

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning"),
]


def fixed(_: Config) -> FixedClassifier:
    """A classifier that needs no artefact: "prove" is hard, all else is easy."""
    return FixedClassifier(0.1, {"prove": 0.9, "yes": Verdict(0.1, continues=True)})


@pytest.fixture
def router(stage: Any) -> TierRouter:
    return TierRouter(stage.config(), fixed)


@pytest.fixture
def models(stage: Any) -> dict[str, Any]:
    from tier_router.langchain.vllm import chat_vllm

    config = stage.config()
    return {
        each.name: chat_vllm(each, each.replicas[0], config.server.timeouts)
        for each in config.tiers
    }


@tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def test_a_runnable_gives_the_decision(router: TierRouter) -> None:
    route = route_runnable(router)
    assert route.invoke("hello").tier == "light"
    assert route.invoke([HumanMessage("prove it")]).tier == "heavy"
    assert route.invoke({"messages": [("user", "prove it")]}).tier == "heavy"
    chain = ChatPromptTemplate.from_messages([("user", "prove {what}")]) | route
    assert chain.invoke({"what": "it"}).tier == "heavy"
    branch = RunnableBranch(
        (lambda asked: route.invoke(asked).tier == "heavy", RunnableLambda(lambda _: "big")),
        RunnableLambda(lambda _: "small"),
    )
    assert [branch.invoke(text) for text in ("hello", "prove it")] == ["small", "big"]


def test_the_chat_model_in_an_agent(stage: Any) -> None:
    chat = ChatTierRouter(config=stage.config(), classifier=fixed)
    agent: Any = create_agent(chat, tools=[add])
    said = agent.invoke({"messages": [("user", "prove that 3 and 4 add up")]})["messages"]
    answers = [message for message in said if message.type == "ai"]
    assert len(answers) == 2, "a tool call, and what came of it"
    assert [a.response_metadata["tier_router"]["tier"] for a in answers] == ["heavy", "heavy"]
    assert answers[1].response_metadata["tier_router"]["reasons"][0] == "tool_turn"
    assert next(message for message in said if message.type == "tool").content == "7"


def test_the_middleware_chooses_for_each_call(router: TierRouter, models: dict[str, Any]) -> None:
    agent: Any = create_agent(
        models["heavy"], tools=[add], middleware=[TierMiddleware(router, models)]
    )
    said = agent.invoke({"messages": [("user", "add 3 and 4")]})["messages"]
    answers = [message for message in said if message.type == "ai"]
    assert [answer.response_metadata["model_name"] for answer in answers] == ["m8", "m8"]
    assert answers[0].response_metadata["tier_router"]["tier"] == "light"
    said = agent.invoke({"messages": [*said, ("user", "prove it")]})["messages"]
    assert said[-1].response_metadata["model_name"] == "m70"


async def test_the_middleware_asynchronously(router: TierRouter, models: dict[str, Any]) -> None:
    agent: Any = create_agent(models["heavy"], middleware=[TierMiddleware(router, models)])
    said = (await agent.ainvoke({"messages": [("user", "hello")]}))["messages"]
    assert said[-1].response_metadata["model_name"] == "m8"


def test_the_middleware_names_both_sides(router: TierRouter, models: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="`tiers` has light; the configuration has light, heavy"):
        TierMiddleware(router, {"light": models["light"]})


def test_langchains_own_router_with_our_decision_model(
    router: TierRouter, models: dict[str, Any]
) -> None:
    routing = ModelRouterMiddleware(
        choices={name: ModelChoice(model=each, criteria=name) for name, each in models.items()},
        instructions="Which tier?",
        classifier=TierDecisionModel(config=router),
    )
    agent: Any = create_agent(models["heavy"], middleware=[routing])
    state = agent.invoke({"messages": [("user", "hello")]})
    assert state["messages"][-1].response_metadata["model_name"] == "m8"
    assert state["model_route"].choice == "light"
    assert state["model_route"].confidence > 0.5
    state = agent.invoke({"messages": [("user", "prove it")]})
    assert state["messages"][-1].response_metadata["model_name"] == "m70"


def test_probabilities_agree_with_the_choice(router: TierRouter) -> None:
    decides = TierDecisionModel(config=router)
    question = Choice(instructions="?", criteria={"light": "a", "heavy": "b"})
    for text, tier in (("hello", "light"), ("prove it", "heavy")):
        answer: Any = decides.invoke({"state": text, "questions": {"q": question}}).answers["q"]
        assert answer.choice == tier == max(answer.probabilities, key=answer.probabilities.get)
        assert sum(answer.probabilities.values()) == pytest.approx(1)
    other = Choice(instructions="?", criteria={"small": "a"})
    with pytest.raises(RequestError, match=r"labels of `q` must be tiers \(light, heavy\)"):
        decides.invoke({"state": "x", "questions": {"q": other}})
