"""Routing for `litellm.Router`, without a proxy: `install(router, "config.yaml")`."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tier_router.config import Config
from tier_router.decide import Decision
from tier_router.litellm.brain import Brain
from tier_router.litellm.events import Events
from tier_router.litellm.groups import Deployment
from tier_router.litellm.host import CustomRoutingStrategyBase, litellm
from tier_router.litellm.logger import router_of
from tier_router.litellm.state import all_of, cooling, deployments_of, healthy_of
from tier_router.router import TierRouter


class TierStrategy(CustomRoutingStrategyBase):
    """Picks the deployment of each call of a `litellm.Router`, out of those that are healthy.

    LiteLLM asks a custom strategy before it looks at its cooldowns, aliases and model names; this
    one asks LiteLLM for them first.  Groups without tiers get a deployment at random.
    """

    def __init__(self, router: Any, brain: Brain) -> None:
        self._router, self.brain = router, brain

    def decision(self, notes: Mapping[str, Any]) -> Decision | None:
        """The decision on a call, from its parameters: `{"metadata": metadata}`."""
        return self.brain.decision(notes)

    async def async_get_available_deployment(
        self,
        model: str,
        messages: Any = None,
        input: Any = None,
        specific_deployment: bool | None = False,
        request_kwargs: dict[str, Any] | None = None,
    ) -> Deployment:
        """The deployment that is to answer."""
        kwargs = {} if request_kwargs is None else request_kwargs
        healthy = await healthy_of(self._router, model, messages, input, kwargs)
        if isinstance(healthy, Mapping):  # the caller named a deployment by its id
            return healthy
        return self._pick(model, healthy, messages, kwargs)

    def get_available_deployment(
        self,
        model: str,
        messages: Any = None,
        input: Any = None,
        specific_deployment: bool | None = False,
        request_kwargs: dict[str, Any] | None = None,
    ) -> Deployment:
        """As `async_get_available_deployment`, for synchronous calls.

        Raises LiteLLM's BadRequestError for a name that nothing has, and its RateLimitError where
        all deployments cool down.
        """
        known = deployments_of(self._router, model)
        if not known:
            raise litellm.BadRequestError(f"no deployment is named `{model}`", model, "")
        resting = cooling(self._router, known)
        healthy = [each for each in known if each["model_info"]["id"] not in resting]
        if not healthy:
            message = f"all deployments of `{model}` cool down after failures"
            raise litellm.RateLimitError(message, "", model)
        kwargs = {} if request_kwargs is None else request_kwargs
        chosen = self._pick(model, healthy, messages, kwargs)
        self.brain.prune(kwargs)  # no hook comes after this
        return chosen

    def _pick(
        self, model: str, healthy: Sequence[Deployment], messages: Any, kwargs: Mapping[str, Any]
    ) -> Deployment:
        group = str(healthy[0].get("model_name") or model)
        return random.choice(self.brain.narrow(group, healthy, messages, kwargs, called=model))


def install(
    router: Any,
    source: Config | Path | str | TierRouter | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> TierStrategy:
    """Makes a `litellm.Router` route by a configuration; gives its strategy.

    `source` is a configuration, its path or a `TierRouter`; without one it is found as by the
    callback.  Raises ConfigError, which names both sides, where no deployment is of a tier of it.
    """
    brain = Brain(router_of(source, clock), clock)
    brain.learn_all(all_of(router))
    strategy = TierStrategy(router, brain)
    attach = getattr(router, "register_plugin", None) or router.set_custom_routing_strategy
    attach(strategy)
    litellm.callbacks.append(Events(brain))
    return strategy
