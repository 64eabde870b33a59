"""What LiteLLM tells of its attempts: tags before them, leases closed after them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from tier_router.decide import Decision
from tier_router.litellm import asked, shown
from tier_router.litellm.brain import Brain
from tier_router.litellm.host import CustomLogger
from tier_router.litellm.outcomes import failure_of
from tier_router.litellm.pruned import answer_to
from tier_router.pace import Usage
from tier_router.view import PRIORITY_HEADER


class Events(CustomLogger):
    """Listens for a brain, which `TierCallback` makes later than itself."""

    def __init__(self, brain: Brain | None) -> None:
        super().__init__()
        self._brain = brain

    def decision(self, notes: Mapping[str, Any]) -> Decision | None:
        """The decision on a request, from what LiteLLM calls its kwargs or its data."""
        return None if self._brain is None else self._brain.decision(notes)

    async def async_pre_call_deployment_hook(
        self, kwargs: dict[str, Any], call_type: Any
    ) -> dict[str, Any] | None:
        """Tags the request: only now, for LiteLLM's tag routing must not see it.  Stamps its
        priority for vLLM, unless the client did, and prunes it."""
        bucket, decision = asked.bucket_of(kwargs), self.decision(kwargs)
        if bucket is not None and decision is not None:
            shown.tag(bucket, decision)
        if decision is not None and decision.priority and kwargs.get("priority") is None:
            headers = {
                str(name).lower(): v for name, v in (kwargs.get("extra_headers") or {}).items()
            }
            kwargs["extra_headers"] = {PRIORITY_HEADER: str(decision.priority)} | headers
        if self._brain is not None and decision is not None:
            self._brain.prune(kwargs)
        return kwargs

    async def async_log_success_event(
        self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        """Closes the lease of an attempt that was answered."""
        self._ended(kwargs, failed=False, answer=response_obj)

    async def async_log_failure_event(
        self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        """Closes the lease of an attempt that failed."""
        self._ended(kwargs, failed=True)

    async def async_post_call_failure_hook(
        self,
        request_data: dict[str, Any],
        original_exception: Exception,
        user_api_key_dict: Any,
        traceback_str: str | None = None,
    ) -> None:
        """Closes the lease of a request that the proxy answers with an error."""
        if self._brain is not None:
            self._brain.finished(request_data, failure_of(original_exception))

    def log_success_event(
        self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        """As `async_log_success_event`, after synchronous calls."""
        self._ended(kwargs, failed=False, answer=response_obj)

    def log_failure_event(
        self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        """As `async_log_failure_event`, after synchronous calls."""
        self._ended(kwargs, failed=True)

    def _ended(self, kwargs: Mapping[str, Any], failed: bool, answer: Any = None) -> None:
        params = kwargs.get("litellm_params")
        if self._brain is None or not isinstance(params, Mapping):
            return
        info = params.get("model_info")
        deployment = str(info.get("id")) if isinstance(info, Mapping) else ""
        failure = failure_of(kwargs.get("exception")) if failed else None
        told = None if failed else partial(answer_to, answer)
        self._brain.ended(params, deployment, failure, _usage(answer), told)


def _usage(answer: Any) -> Usage | None:
    """What LiteLLM made of an answer's usage."""
    usage = getattr(answer, "usage", None)
    prompt = getattr(usage, "prompt_tokens", None)
    completion = getattr(usage, "completion_tokens", None)
    if not isinstance(prompt, int) or not isinstance(completion, int) or not prompt:
        return None
    cached = getattr(getattr(usage, "prompt_tokens_details", None), "cached_tokens", None)
    return Usage(prompt, completion, cached if isinstance(cached, int) else 0)
