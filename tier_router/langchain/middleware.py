"""Agent middleware: each model call of an agent goes to the tier that its turn needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.language_models import BaseChatModel
from langchain_core.utils.function_calling import convert_to_openai_tool

from tier_router.config import Config
from tier_router.decide import Decision
from tier_router.errors import ConfigError, TierRouterError
from tier_router.explain import record
from tier_router.langchain.body import view_of_messages
from tier_router.langchain.chat import KEY
from tier_router.langchain.decision import router_of
from tier_router.router import TierRouter


class TierMiddleware(AgentMiddleware[Any, Any, Any]):
    """Chooses among `tiers` ({name: chat model}) for each model call of an agent.

    The whole conversation is looked at, so the calls after a tool's result stay where the turn
    went, and "yes, do it" stays up after a hard turn.  `response_metadata["tier_router"]` of each
    answer says why.  What cannot be decided leaves the agent's own model in place.
    """

    def __init__(
        self, config: str | Path | Config | TierRouter, tiers: Mapping[str, BaseChatModel]
    ) -> None:
        super().__init__()
        self.router = router_of(config)
        self.models = dict(tiers)
        ladder = self.router.config.ladder
        if set(self.models) != set(ladder):
            names = ", ".join(self.models) or "none"
            raise ConfigError(f"`tiers` has {names}; the configuration has {', '.join(ladder)}")

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """The call, on the tier's model."""
        decision = self._decided(request)
        if decision is None:
            return handler(request)
        return _noted(handler(self._moved(request, decision)), decision)

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """As `wrap_model_call`."""
        decision = self._decided(request)
        if decision is None:
            return await handler(request)
        return _noted(await handler(self._moved(request, decision)), decision)

    def _decided(self, request: ModelRequest[Any]) -> Decision | None:
        options: dict[str, Any] = dict(request.model_settings)
        if request.tools:
            options["tools"] = [
                tool if isinstance(tool, dict) else convert_to_openai_tool(tool)
                for tool in request.tools
            ]
        messages = list(request.messages)
        if request.system_message is not None:
            messages.insert(0, request.system_message)
        try:
            return self.router.decide(view_of_messages(self.router, messages, options))
        except TierRouterError:
            return None

    def _moved(self, request: ModelRequest[Any], decision: Decision) -> ModelRequest[Any]:
        return request.override(model=self.models[decision.tier])


def _noted(response: ModelResponse[Any], decision: Decision) -> ModelResponse[Any]:
    for message in response.result:
        message.response_metadata[KEY] = record(decision)
    return response
