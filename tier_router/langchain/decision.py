"""The decision by itself: for branches, and for LangChain's own model router."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from langchain_core.decisions import BaseDecisionModel, ClassifierResponse
from langchain_core.decisions.types import Question, State
from langchain_core.messages import BaseMessage, HumanMessage, convert_to_messages
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import Runnable, RunnableLambda
from pydantic import Field, PrivateAttr, model_validator

from tier_router.config import Config, load
from tier_router.decide import Decision
from tier_router.langchain.body import view_of_messages
from tier_router.router import TierRouter

Asked = PromptValue | str | Sequence[Any] | BaseMessage


def router_of(config: str | Path | Config | TierRouter) -> TierRouter:
    """The router over a configuration, however it is given."""
    if isinstance(config, TierRouter):
        return config
    return TierRouter(config if isinstance(config, Config) else load(config))


def route_runnable(config: str | Path | Config | TierRouter) -> Runnable[Any, Decision]:
    """A runnable from a prompt, a text or messages to the `Decision`; it calls no model."""
    router = router_of(config)

    def route(asked: Asked, **options: Any) -> Decision:
        view = view_of_messages(router, _messages(asked), options, options.get("tier"))
        return router.decide(view)

    return RunnableLambda(route, name="route")


class TierDecisionModel(BaseDecisionModel):
    """Answers "which tier?" for LangChain's `ModelRouterMiddleware`, and "which intent?".

    The labels of a `Choice` are tiers or intents; `tier_router.questions` says what their
    probabilities are.
    """

    model: str = "tier-router"
    config: Any = Field(default=None, exclude=True)
    """A path, a `Config` or a `TierRouter`."""

    _router: TierRouter = PrivateAttr()

    @model_validator(mode="after")
    def _build(self) -> Self:
        self._router = router_of(self.config)
        return self

    @property
    def _provider(self) -> str:
        return "tier_router"

    def _classify(self, state: State, questions: dict[str, Question]) -> ClassifierResponse:
        view = view_of_messages(self._router, _messages(state), {})
        asked = {name: each.model_dump() for name, each in questions.items()}
        return ClassifierResponse(model=self.model, answers=self._router.answers(view, asked))

    async def _aclassify(self, state: State, questions: dict[str, Question]) -> ClassifierResponse:
        return self._classify(state, questions)  # well under a millisecond: no thread


def _messages(asked: Any) -> list[BaseMessage]:
    """What a runnable may be asked with, as messages."""
    if isinstance(asked, PromptValue):
        return asked.to_messages()
    if isinstance(asked, BaseMessage):
        return [asked]
    if isinstance(asked, str):
        return [HumanMessage(asked)]
    if isinstance(asked, dict) and isinstance(asked.get("messages"), list):
        return _messages(asked["messages"])
    if isinstance(asked, Sequence):
        return convert_to_messages(asked)
    raise TypeError(f"a prompt, a text or messages are wanted, not {type(asked).__name__}")
