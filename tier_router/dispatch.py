"""One request's way to an answer: a replica, and after a failure the next one.

Failover is `decide` again with `exclude`; it ends with the first piece of the answer.  Nothing
here does I/O: a door sends, listens, and tells.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from tier_router.decide import Decision, Reason
from tier_router.errors import NoReplica, TierRouterError, UpstreamError, UpstreamTimeout
from tier_router.ledger import Lease, Ledger, Outcome
from tier_router.pace import Usage

DRAINING_TEXT = b"cannot schedule new futures"
"""What vLLM answers (500) while it shuts down and /health still says 200."""

DEAD_TEXT = b"EngineCore"
"""What vLLM answers (500) when its engine has died."""

RETRY_SECONDS = 10.0
"""Over how long a retry budget looks back, as Finagle's does."""

FREE_RETRIES = 100.0
"""Retries within `RETRY_SECONDS` that are allowed whatever the traffic: Finagle's 10 a second."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a replica gave no answer that the client should see."""

    outcome: Outcome
    message: str
    retry_after: float | None = None
    timeout: bool = False
    wrong_model: bool = False
    """The replica serves another model than its tier's: a fault of the configuration."""
    suspect: bool = False
    """The connection broke while the replica had the request: the request may have broken it."""


def failure_of_answer(status: int, body: bytes, retry_after: str | None = None) -> Failure | None:
    """The failure that an answer's status and body are, or None where the client gets it.

    502, 503 and 504 are the replica's or its balancer's, 429 means try elsewhere, 500 is told
    apart by vLLM's own words, and a 404 for the model, which the router has set, says that the
    replica serves another one.  Other 4xx and 5xx are the request's own and are relayed.
    """
    text = f"{status} {_message(body)}".strip()
    if status in (429, 503):
        return Failure(Outcome.BUSY, text, _seconds(retry_after))
    if status in (502, 504):
        return Failure(Outcome.FAILED, text)
    if status == 500 and DRAINING_TEXT in body:
        return Failure(Outcome.DRAINING, text)
    if status == 500 and DEAD_TEXT in body:
        return Failure(Outcome.FAILED, text)
    if status == 404 and _lacks_model(body):
        return Failure(Outcome.FAILED, text, wrong_model=True)
    return None


def failure_of_event(data: bytes) -> Failure | None:
    """The failure that a stream's first `data:` is: vLLM sends an error object in a 200 stream,
    and Anthropic's API has an event for it."""
    if not data.startswith(_ERRORS):
        return None
    outcome = Outcome.DRAINING if DRAINING_TEXT in data else Outcome.FAILED
    return Failure(outcome, f"error in the stream: {_message(data)}")


_ERRORS = (b'{"error"', b'{"object":"error"', b'{"type":"error"', b'{"type": "error"')


class RetryBudget:
    """How many attempts after a failure all requests together may make: a share of the traffic.

    Requests and retries are counted with a memory that fades over `RETRY_SECONDS`, so that a fleet
    in trouble does not get a multiple of its load on top.
    """

    def __init__(self, share: float) -> None:
        self.share = share
        self._requests = self._retries = 0.0
        self._at = 0.0

    def request(self, now: float) -> None:
        """Counts a request."""
        self._fade(now)
        self._requests += 1

    def take(self, now: float) -> bool:
        """Whether one more retry is allowed; counts it."""
        self._fade(now)
        if self._retries + 1 > FREE_RETRIES + self.share * self._requests:
            return False
        self._retries += 1
        return True

    def _fade(self, now: float) -> None:
        left = math.exp(min(0.0, self._at - now) / RETRY_SECONDS)
        self._requests, self._retries, self._at = self._requests * left, self._retries * left, now


class Dispatch:
    """The attempts of one request.  `begin`, then `failed` until it raises, or `closed`.

    `learn` is told of each answer that ended well.
    """

    def __init__(
        self,
        choose: Callable[[frozenset[str]], Decision],
        ledger: Ledger,
        tokens: float,
        attempts: int,
        budget: RetryBudget,
        learn: Callable[[Decision, Lease, Usage | None, float], None],
    ) -> None:
        self._choose, self._ledger = choose, ledger
        self._tokens, self._left = tokens, attempts
        self._budget, self._learn = budget, learn
        self._failed: dict[str, Failure] = {}
        self._open: dict[str, tuple[Decision, Lease]] = {}
        self.decision: Decision | None = None

    @property
    def failures(self) -> dict[str, Failure]:
        """What went wrong so far, by replica."""
        return self._failed

    def begin(self, now: float) -> Decision:
        """The decision to carry out; opens its lease.  Raises what `decide` raises."""
        self._budget.request(now)
        return self._opened(self._choose(frozenset(self._failed)), now)

    def hedge(self, now: float) -> Decision | None:
        """A second replica of the same tier to ask as well, where one is up and the budget allows
        it.  The first token tells which of the two goes on."""
        first = self.decision
        if first is None or self._left <= 0:
            return None
        try:
            found = self._choose(frozenset((*self._failed, *self._open)))
        except TierRouterError:
            return None
        if found.tier != first.tier or not self._budget.take(now):
            return None
        why = first.reasons if Reason.HEDGED in first.reasons else (*first.reasons, Reason.HEDGED)
        return self._opened(replace(found, reasons=why), now)

    def failed(self, failure: Failure, now: float, replica: str | None = None) -> Decision:
        """The next decision after a failure before the answer began: of the present replica, or
        of `replica` where two were asked; then the other's decision, which is under way.

        Raises NoReplica, UpstreamError or UpstreamTimeout when there is none.
        """
        if replica is None and self.decision is not None:
            replica = self.decision.replica
        if replica is not None:
            outcome = self._blamed(failure)
            self._failed[replica] = failure
            _, lease = self._open.pop(replica)
            self._ledger.closed(lease, outcome, now, failure.retry_after)
        if self._open:
            self.decision = next(iter(self._open.values()))[0]
            return self.decision
        if self._left <= 0 or not self._budget.take(now):
            raise self._verdict()
        try:
            return self._opened(self._choose(frozenset(self._failed)), now)
        except TierRouterError:
            raise self._verdict() from None

    def first_token(self, now: float, replica: str | None = None) -> None:
        """Notes the first piece of the answer; from here on there is no failover, and where two
        replicas were asked, the other than `replica` is let go."""
        if replica is not None:
            self.settled(replica, now)
        for _, lease in self._open.values():
            self._ledger.first_token(lease, now)

    def settled(self, replica: str, now: float) -> None:
        """`replica` answers: what else was asked is let go."""
        for name in [name for name in self._open if name != replica]:
            self._ledger.closed(self._open.pop(name)[1], Outcome.ABANDONED, now)
        self.decision = self._open[replica][0]

    def closed(self, outcome: Outcome, now: float, usage: Usage | None = None) -> None:
        """Ends the stay; `usage` is what the answer said of itself."""
        for decision, lease in self._open.values():
            self._ledger.closed(lease, outcome, now)
            if outcome is Outcome.DONE:
                self._learn(decision, lease, usage, now)
        self._open.clear()

    def _blamed(self, failure: Failure) -> Outcome:
        """What a failure counts as for its replica.  A request that breaks one replica after the
        other rests the first alone: where it is the replicas' fault, other requests find out."""
        if failure.suspect and any(earlier.suspect for earlier in self._failed.values()):
            return Outcome.ABANDONED
        return failure.outcome

    def _opened(self, decision: Decision, now: float) -> Decision:
        self._left -= 1
        lease = self._ledger.opened(decision.replica, self._tokens, now)
        self._open[decision.replica] = decision, lease
        self.decision = decision
        return decision

    def _verdict(self) -> TierRouterError:
        """All failures in one error: the client learns which replica said what."""
        told = "; ".join(f"{name}: {failure.message}" for name, failure in self._failed.items())
        message = f"no replica answered ({told})"
        failures = list(self._failed.values())
        if all(failure.outcome in (Outcome.BUSY, Outcome.DRAINING) for failure in failures):
            waits = [failure.retry_after or 1.0 for failure in failures]
            return NoReplica(message, retry_after=min(waits, default=1.0))
        if failures[-1].timeout:
            return UpstreamTimeout(message, replica=next(reversed(self._failed)))
        return UpstreamError(message, replica=next(reversed(self._failed)))


def _lacks_model(body: bytes) -> bool:
    """Whether a 404 is for the model, not for the path."""
    try:
        decoded = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return False
    error = decoded.get("error") if isinstance(decoded, dict) else None
    if not isinstance(error, dict):
        return False
    if error.get("param") == "model" or error.get("code") == "model_not_found":
        return True
    # Anthropic's shape has neither, and vLLM calls nothing else by this type there
    return error.get("type") == "NotFoundError" and "param" not in error


def _message(body: bytes) -> str:
    """The message of an error body, or the start of what came instead."""
    try:
        decoded = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return body[:200].decode("utf-8", "replace")
    error = decoded.get("error") if isinstance(decoded, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return str(message)[:200] if message else body[:200].decode("utf-8", "replace")


def _seconds(retry_after: str | None) -> float | None:
    """`Retry-After` in seconds; the HTTP date form is not worth a clock here."""
    try:
        seconds = float(retry_after) if retry_after else None
    except ValueError:
        return None
    return seconds if seconds is not None and 0 < seconds <= 3_600 else None
