"""The decision by itself: for branches, and for LangChain's own model router."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from langchain_core.decisions import (
    BaseDecisionModel,
    Choice,
    ChoiceAnswer,
    ClassifierResponse,
)
from langchain_core.decisions.types import Question, State
from langchain_core.messages import BaseMessage, HumanMessage, convert_to_messages
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import Runnable, RunnableLambda
from pydantic import Field, PrivateAttr, model_validator

from tier_router.config import Config, load
from tier_router.decide import Decision, Reason
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
    """Answers "which tier?" for LangChain's `ModelRouterMiddleware`.

    The question's labels are tier names.  The probability of a tier is that of the difficulty
    lying between its neighbours' thresholds, on the scale of log-odds from the threshold; a tier
    that a pin, a rule or an intent settled has 1.
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
        decision = self._router.decide(view)
        answers = {name: self._answer(name, each, decision) for name, each in questions.items()}
        return ClassifierResponse(model=self.model, answers=answers)

    async def _aclassify(self, state: State, questions: dict[str, Question]) -> ClassifierResponse:
        return self._classify(state, questions)  # well under a millisecond: no thread

    def _answer(self, name: str, question: Question, decision: Decision) -> ChoiceAnswer:
        ladder = list(self._router.config.ladder)
        if not isinstance(question, Choice) or not set(question.criteria) <= set(ladder):
            raise ValueError(f"question `{name}`: the labels must be tiers ({', '.join(ladder)})")
        found = dict(zip(ladder, self._probabilities(decision), strict=True))
        asked = {label: found[label] for label in ladder if label in question.criteria}
        total = sum(asked.values())
        if not total:  # the tier is not among the labels: the next one above, else the highest
            above = [t for t in asked if ladder.index(t) > ladder.index(decision.tier)]
            asked |= {(above or list(asked)[-1:])[0]: 1.0}
            total = 1.0
        shares = {label: p / total for label, p in asked.items()}
        choice = decision.tier if decision.tier in shares else max(shares, key=shares.__getitem__)
        return ChoiceAnswer(
            type="choice", choice=choice, probabilities=shares, confidence=shares[choice]
        )

    def _probabilities(self, decision: Decision) -> list[float]:
        """One probability for each tier of the ladder."""
        ladder = list(self._router.config.ladder)
        judged = decision.reasons[0] in (Reason.EASY, Reason.HARD) and len(decision.reasons) == 1
        if not judged or decision.difficulty is None:
            return [float(name == decision.tier) for name in ladder]
        above = [_over(decision.difficulty, t) for t in self._router.thresholds]
        edges = [1.0, *above, 0.0]
        return [max(0.0, edges[place] - edges[place + 1]) for place in range(len(ladder))]


def _over(difficulty: float, threshold: float) -> float:
    """How far the difficulty lies over the threshold, as a probability: 0.5 is on the line."""
    return 1 / (1 + math.exp(_log_odds(threshold) - _log_odds(difficulty)))


def _log_odds(share: float) -> float:
    share = min(max(share, 1e-6), 1 - 1e-6)
    return math.log(share / (1 - share))


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
