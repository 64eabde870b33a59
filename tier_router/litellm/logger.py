"""The callback: `litellm_settings.callbacks: [tier_router.litellm.callback]`."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

from tier_router.config import Config
from tier_router.errors import ConfigError
from tier_router.litellm import shown
from tier_router.litellm.brain import Brain
from tier_router.litellm.events import Events
from tier_router.litellm.groups import Deployment
from tier_router.litellm.settings import find
from tier_router.litellm.state import all_of
from tier_router.router import TierRouter

log = logging.getLogger("tier_router.litellm")

PROXY = "litellm.proxy.proxy_server"
"""The module in which LiteLLM's proxy keeps its router, as `llm_router`, once it has made it."""

START_SECONDS, START_STEP = 120.0, 0.1
"""How long, and how often, a starting proxy is looked at: it reads its callbacks before its
models."""


class TierCallback(Events):
    """Narrows each tiered model group to the deployment that the router chooses.

    `source` is a configuration, its path, or a router; without one it is looked for at the first
    request.  LiteLLM keeps its retries, cooldowns, fallbacks and aliases.
    """

    def __init__(
        self,
        source: Config | Path | str | TierRouter | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(None)
        self._source, self._clock = source, clock
        self._lock = Lock()
        self._broken: ConfigError | None = None
        self._failed_once = False
        self._checking: asyncio.Task[None] | None = None

    @property
    def brain(self) -> Brain:
        """The brain, made at first use; raises ConfigError."""
        with self._lock:
            if self._broken is not None:
                raise self._broken
            if self._brain is None:
                try:
                    self._brain = Brain(router_of(self._source, self._clock), self._clock)
                except ConfigError as error:
                    self._broken = error
                    raise
            return self._brain

    def check_at_start(self) -> None:
        """Within a proxy that is starting: says as soon as its deployments are known whether the
        configuration is there and fits them, instead of at the first request."""
        if PROXY not in sys.modules:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        self._checking = loop.create_task(self._check())

    async def _check(self) -> None:
        for _ in range(int(START_SECONDS / START_STEP)):
            router = getattr(sys.modules[PROXY], "llm_router", None)
            if router is not None and all_of(router):
                break
            await asyncio.sleep(START_STEP)
        else:
            return  # a proxy without models, or with those of a database only
        try:
            brain = await asyncio.to_thread(lambda: self.brain)
            brain.learn_all(all_of(router))
        except ConfigError as error:
            log.error("%s", error)

    async def async_filter_deployments(
        self,
        model: str,
        healthy_deployments: list[Deployment],
        messages: Any,
        request_kwargs: dict[str, Any] | None = None,
        parent_otel_span: Any = None,
    ) -> list[Deployment]:
        """The deployments that may answer; never none where there are some."""
        kwargs = request_kwargs if request_kwargs is not None else {}
        try:
            brain = self.brain
            await brain.ahead(messages, kwargs)
            return brain.narrow(model, healthy_deployments, messages, kwargs)
        except Exception as error:  # noqa: BLE001  LiteLLM would fail the request
            self._complain(error)
            if self._brain is not None:
                self._brain.left(kwargs, getattr(error, "code", "internal_error"))
            return healthy_deployments

    async def async_post_call_response_headers_hook(
        self,
        data: dict[str, Any],
        user_api_key_dict: Any,
        response: Any,
        request_headers: dict[str, str] | None = None,
        litellm_call_info: dict[str, Any] | None = None,
    ) -> dict[str, str] | None:
        """The `x-tier-router-*` headers of the answer."""
        if self._broken is not None:
            return {"x-tier-router-reason": f"unrouted:{self._broken.code}"}
        visit = None if self._brain is None else self._brain.visits.found(data)
        return None if visit is None else shown.headers(visit)

    def _complain(self, error: Exception) -> None:
        """One line for the first failure: it would be the same for each request."""
        if not self._failed_once:
            self._failed_once = True
            known = isinstance(error, ConfigError)
            log.error("requests are left to LiteLLM: %s", error, exc_info=None if known else error)


def router_of(
    source: Config | Path | str | TierRouter | None, clock: Callable[[], float]
) -> TierRouter:
    """The router of a source; of the configuration that is found where there is none."""
    if isinstance(source, TierRouter):
        return source
    if isinstance(source, Config):
        return TierRouter(source, clock=clock)
    return TierRouter.from_file(find() if source is None else source, clock=clock)
