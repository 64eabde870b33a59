"""One call's way over the models, in LangChain's terms: which one answers, and what went wrong."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.messages.ai import UsageMetadata

from tier_router.decide import Decision
from tier_router.decisionlog import Logbook
from tier_router.dispatch import Dispatch, Failure, failure_of_answer, failure_of_event
from tier_router.errors import TierRouterError
from tier_router.langchain.pruned import Cuts
from tier_router.ledger import Outcome
from tier_router.pace import Usage
from tier_router.request import View
from tier_router.router import TierRouter


class Attempt:
    """The present attempt; `failed` moves on to the next, or raises."""

    def __init__(
        self,
        router: TierRouter,
        models: Mapping[str, BaseChatModel],
        view: View,
        book: Logbook,
        cuts: Cuts | None = None,
    ) -> None:
        self._models = models
        self._router, self._view, self._book = router, view, book
        self._begun = monotonic()
        self._ttft: float | None = None
        self.cuts = cuts
        trimming = None if cuts is None else cuts.trimming
        self._dispatch: Dispatch = router.dispatch(view, trimming)
        self.decision: Decision = self._dispatch.begin(monotonic())

    @property
    def model(self) -> BaseChatModel:
        """The model that answers now."""
        return self._models[self.decision.replica]

    def began(self) -> None:
        """The first piece of the answer has come: from here on there is no other attempt."""
        now = monotonic()
        self._ttft = now - self._begun
        self._dispatch.first_token(now)

    def heard(self, message: BaseMessage) -> None:
        """The answer, or a piece of it."""
        if self.cuts is not None:
            self.cuts.heard(message)

    def failed(self, error: Exception) -> None:
        """Moves on after `error`; raises it where it is the request's own, or what the last
        replica has left."""
        failure = failure_of(error)
        if failure is None:
            self.closed(Outcome.DONE)
            raise error
        try:
            self.decision = self._dispatch.failed(failure, monotonic())
        except TierRouterError as final:
            self._note(final.code, None)(None)
            raise final from error

    def closed(self, outcome: Outcome, usage: UsageMetadata | None = None) -> None:
        """The answer is over; `usage` is what it says of itself."""
        told = None
        if usage is not None:
            cached = usage.get("input_token_details", {}).get("cache_read") or 0
            told = Usage(usage["input_tokens"], usage["output_tokens"], cached)
        self._dispatch.closed(outcome, monotonic(), told)
        note = self._note(outcome.value, told)
        pruned = None if self.cuts is None else self.cuts.sent
        if pruned is None or self.cuts is None:
            note(None)
        elif outcome is Outcome.DONE:
            self._router.pruner.answered(pruned, told, self.cuts.answer, note)
        else:
            note(self._router.pruner.unanswered(pruned))

    def _note(
        self, outcome: str, usage: Usage | None
    ) -> Callable[[Mapping[str, Any] | None], None]:
        """What writes the call down, where the configuration has a `log`, with its pruning."""
        note = partial(
            self._book.note, self._router.config.log, self.decision, self._view,
            id=uuid.uuid4().hex, outcome=outcome, usage=usage, ttft=self._ttft,
            latency=monotonic() - self._begun, failed=tuple(self._dispatch.failures),
            attempts=len(self._dispatch.failures) + (outcome in set(Outcome)),
        )  # fmt: skip
        return lambda pruning: note(pruning=pruning)


def usage_of(message: BaseMessage) -> UsageMetadata | None:
    """What an answer, or a piece of one, says of its tokens."""
    found: UsageMetadata | None = getattr(message, "usage_metadata", None)
    return found


def failure_of(error: Exception) -> Failure | None:
    """The replica's failure that an error of its model is, None where the request is at fault.

    The clients of OpenAI, Anthropic and others name a `status_code` and keep the `response`.
    """
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        response = getattr(error, "response", None)
        content = getattr(response, "content", b"")
        headers: Mapping[str, str] = getattr(response, "headers", {})
        return failure_of_answer(status, content, headers.get("retry-after"))
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & {"APITimeoutError", "TimeoutException", "TimeoutError"}:
        return Failure(Outcome.FAILED, "no answer within the time limit", timeout=True)
    if names & {"APIConnectionError", "TransportError", "ConnectionError"}:
        return Failure(Outcome.FAILED, f"{type(error).__name__}: {error}")
    if "APIError" in names:  # an error object in a stream of status 200
        return _of_stream(error)
    return None


def _of_stream(error: Exception) -> Failure:
    body: Any = getattr(error, "body", None)
    text = str(body.get("message", "")) if isinstance(body, Mapping) else str(error)
    found = failure_of_event(b'{"error":"' + text.encode() + b'"}')
    return Failure(found.outcome if found else Outcome.FAILED, f"error in the stream: {text}")
