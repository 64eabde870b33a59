"""One request on its way: out to a replica, or to another when that fails, and its answer back,
byte for byte."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from tier_router.decide import Decision
from tier_router.dispatch import Dispatch, Failure
from tier_router.errors import TierRouterError
from tier_router.explain import sentence
from tier_router.ledger import Outcome
from tier_router.pace import Usage, usage_at_end
from tier_router.scrape.header import reading_of_report
from tier_router.scrape.watch import METRICS_LASTS
from tier_router_proxy.answers import (
    error_body,
    error_headers,
    in_anthropics_shape,
    speaks_anthropic,
)
from tier_router_proxy.attempt import Attempt
from tier_router_proxy.cuts import Cuts, Note
from tier_router_proxy.http.messages import Head, Headers
from tier_router_proxy.http.server import Exchange
from tier_router_proxy.logs import about
from tier_router_proxy.outgoing import (
    LOAD_REPORT,
    asks_for_load,
    body_for,
    headers_back,
    headers_for,
    tags_of,
)
from tier_router_proxy.tracing import Spanned
from tier_router_proxy.upstreams import Incoming, Upstreams

log = logging.getLogger("tier_router_proxy")

_ERROR_EVENT = b'data: {"error"'
_NAMED_ERROR = b"\nevent: error"
"""What Anthropic's API and the responses call it."""
_EDGE = 16
"""Bytes on both sides of where two pieces meet that may hold such a mark: none is longer."""


class Relay:
    """Carries one request; the `Owner` of its attempts."""

    __slots__ = ("_arrived", "_attempts", "_broken", "_cuts", "_dispatch", "_exchange", "_hedging",
                 "_incoming", "_last", "_last_but_one", "_span", "_status", "_timeouts", "_ttft",
                 "_up")  # fmt: skip

    def __init__(self, up: Upstreams, exchange: Exchange, incoming: Incoming) -> None:
        self._up, self._exchange, self._incoming = up, exchange, incoming
        self._arrived = incoming.arrived
        self._timeouts = up.router.config.server.timeouts
        self._attempts: list[Attempt] = []
        self._hedging: asyncio.TimerHandle | None = None
        self._status = "none"
        self._broken = False
        self._last = self._last_but_one = b""
        self._ttft: float | None = None
        self._span: Spanned | None = None
        self._cuts: Cuts | None = None

    def begin(self) -> None:
        """Decides and sends; raises what `decide` raises."""
        if self._up.tracing is not None:
            request, view = self._exchange.request, self._incoming.view
            ago = self._up.now() - self._arrived
            path = self._incoming.target.partition(b"?")[0]
            self._span = self._up.tracing.begin(request.headers, path, view.model, view.stream, ago)
        router, view = self._up.router, self._incoming.view
        self._cuts = Cuts.of(router, self._incoming)
        trimming = None if self._cuts is None else self._cuts.trimming
        self._dispatch: Dispatch = router.dispatch(view, trimming)
        try:
            decision = self._dispatch.begin(self._up.now())
        except TierRouterError as error:
            self._note(None, error.code, error.status)(None)
            raise
        self._up.metrics.decided(self._up.now() - self._arrived)
        exchange = self._exchange
        exchange.on_disconnect = self._abandoned
        exchange.on_pause, exchange.on_resume = self._pause, self._resume
        self._send(decision)
        if self._up.router.config.load.hedge and self._incoming.view.stream:
            self._hedge_later(decision)

    # ---- out

    def _send(self, decision: Decision) -> None:
        try:
            self._ask(decision)
        except Exception:  # a fault of ours: the client is answered, and no lease stays open
            name = self._incoming.id
            log.exception("%s could not be sent", name, extra=about(decision, name))
            self._give_up(decision)

    def _ask(self, decision: Decision) -> None:
        incoming, tier = self._incoming, self._up.tier(decision)
        pruned = None if self._cuts is None else self._cuts.to(decision)
        attempt = Attempt(
            self,
            decision,
            reads=incoming.door.stored,
            trusted=tier.api_key is None,
            weighs=pruned is not None and pruned.quiet,
            reshape=in_anthropics_shape if speaks_anthropic(incoming.target) else None,
        )
        self._attempts.append(attempt)
        target = incoming.target if tier.kind == "vllm" else incoming.target.removeprefix(b"/v1")
        router, request = self._up.router, self._exchange.request
        headers = headers_for(router.config, request, incoming, decision, tier)
        if self._span is not None:
            headers = self._span.passed_on(headers)
        changed = {} if pruned is None else pruned.changes
        body = body_for(router, incoming, decision, tier, changed)
        attempt.call = self._up.pools.of(decision.url).send(
            incoming.method, target, headers, body, attempt
        )
        limits = self._timeouts
        attempt.call.expect(limits.first_token if incoming.view.stream else limits.answer)
        if log.isEnabledFor(logging.DEBUG):
            log.debug(
                "%s -> %s: %s", incoming.id, decision.replica, sentence(decision),
                extra=about(decision, incoming.id),
            )  # fmt: skip

    def _hedge_later(self, decision: Decision) -> None:
        """Asks a second replica when the first token is later than 19 of 20 have been."""
        late = self._up.router.paces.of(decision.tier).late
        if late is not None:
            loop = asyncio.get_running_loop()
            self._hedging = loop.call_later(late, self._hedge)

    def _hedge(self) -> None:
        self._hedging = None
        decision = self._dispatch.hedge(self._up.now())
        if decision is not None:
            self._up.metrics.hedged()
            self._send(decision)

    # ---- back

    def came_back_empty(self, attempt: Attempt) -> None:
        """Asks the same replica once more, for an answer to what the client wrote."""
        assert self._cuts is not None
        self._cuts.came_back_empty(attempt.decision)
        self._attempts.remove(attempt)
        self._send(attempt.decision)

    def first_token(self, attempt: Attempt) -> None:
        """From here on there is no failover."""
        now = self._up.now()
        self._dispatch.first_token(now, attempt.decision.replica)
        self._ttft = now - self._arrived
        self._up.metrics.first_token(attempt.decision, self._ttft)

    def began(self, attempt: Attempt, head: Head, pieces: list[bytes]) -> None:
        """Commits to this replica: what was held goes out, the rest follows as it comes."""
        self._no_hedge()
        for other in self._attempts:
            if other is not attempt:
                other.abort()
                self._up.metrics.attempted(other.decision, Outcome.ABANDONED)
        self._attempts = [attempt]
        self._dispatch.settled(attempt.decision.replica, self._up.now())
        self._status = str(head.status)
        tier = self._up.tier(attempt.decision)
        report = head.header(LOAD_REPORT)
        asked = report is not None and asks_for_load(
            self._up.router.config, self._exchange.request, self._incoming, tier
        )
        if asked and report is not None:
            self._read(attempt.decision.replica, report)
        headers = headers_back(head, tier, told_of_load=asked) + self._tags(attempt.decision)
        if self._cuts is not None:
            headers += self._cuts.began(attempt.decision, head)
        if head.status == 200:
            self._remember(attempt)
        self._exchange.start(head.status, head.reason, headers, head.framing)
        for piece in pieces:
            if piece:
                self.passed(piece)

    def passed(self, data: bytes) -> None:
        """Raw bytes of the answer, to the client."""
        call = self._attempts[0].call
        if call is not None:
            call.expect(self._timeouts.between)
        edge = self._last[-_EDGE:] + data[:_EDGE]  # an event may come in two pieces
        if _ERROR_EVENT in data or _ERROR_EVENT in edge:
            self._broken = True
        elif self._incoming.view.stream and (_NAMED_ERROR in data or _NAMED_ERROR in edge):
            self._broken = True  # the engine died under a stream that had begun
        self._last_but_one, self._last = self._last, data
        if self._cuts is not None:
            self._cuts.passed(data)
        self._exchange.write(data)

    def ended(self) -> None:
        """The answer is complete."""
        self._close(Outcome.FAILED if self._broken else Outcome.DONE)
        self._exchange.finish()

    def broke(self, message: str) -> None:
        """The answer will not be complete, and must not look so."""
        lost = self._attempts[0].decision
        told = about(lost, self._incoming.id)
        log.warning("%s broke off an answer: %s", lost.replica, message, extra=told)
        self._close(Outcome.FAILED, "cut")
        self._exchange.abort()

    def lost(self, attempt: Attempt, failure: Failure) -> None:
        """Goes on to the next replica, or tells the client why there is none."""
        up, lost = self._up, attempt.decision
        self._attempts.remove(attempt)
        up.metrics.attempted(lost, failure.outcome)
        told = about(lost, self._incoming.id)
        log.info(
            "%s failed on %s: %s", self._incoming.id, lost.replica, failure.message, extra=told
        )
        if failure.wrong_model:
            self._tell_of_the_model(lost, failure)
        try:
            decision = self._dispatch.failed(failure, up.now(), lost.replica)
        except TierRouterError as error:
            self._refuse(error, lost)
            return
        if not self._attempts:  # else the other one that was asked goes on
            up.metrics.failed_over()
            self._send(decision)

    def _remember(self, attempt: Attempt) -> None:
        """Notes what later requests may ask about this answer."""
        incoming, up = self._incoming, self._up
        if incoming.door.stored:
            up.keepers.learn_from(attempt.text, attempt.decision.replica)
        if incoming.door.generates and up.router.config.feedback is not None:
            raw = incoming.raw or b""
            up.feedback.answered(incoming.id, attempt.decision, raw, incoming.view)

    def _read(self, replica: str, report: bytes) -> None:
        """Takes over what a replica says of its load on an answer."""
        reading = reading_of_report(report.decode("latin-1"))
        if reading is not None:
            self._up.router.ledger.read(replica, reading, self._up.now(), METRICS_LASTS)

    def _tags(self, decision: Decision) -> Headers:
        return [(b"x-request-id", self._incoming.id.encode()), *tags_of(decision)]

    def _tell_of_the_model(self, lost: Decision, failure: Failure) -> None:
        if (lost.replica, lost.model) not in self._up.told:
            self._up.told.add((lost.replica, lost.model))
            log.error(
                "%s (%s) does not serve its tier's model `%s`: %s",
                lost.replica, lost.url, lost.model, failure.message,
                extra=about(lost, self._incoming.id),
            )  # fmt: skip

    # ---- ends

    def _close(self, outcome: Outcome, status: str | None = None) -> None:
        """Ends the stay and counts it."""
        up, now = self._up, self._up.now()
        teaches = outcome is Outcome.DONE and self._incoming.door.generates
        usage = usage_at_end(self._last_but_one + self._last) if teaches else None
        self._dispatch.closed(outcome, now, usage)
        for attempt in self._attempts:
            up.metrics.attempted(attempt.decision, outcome)
        decision = self._attempts[0].decision
        up.metrics.answered(decision, status or self._status, now - self._arrived)
        shown = int(self._status) if self._status.isdecimal() else None
        note = self._note(decision, outcome.value, shown, usage)
        if self._cuts is None:
            note(None)
        else:
            done = outcome is Outcome.DONE and shown == 200
            self._cuts.closed(decision, usage, done=done, note=note)
        self._attempts = []  # they know the relay: a cycle would keep the body for the collector

    def _note(
        self, decision: Decision | None, outcome: str, status: int | None,
        usage: Usage | None = None,
    ) -> Note:  # fmt: skip
        """Ends the request's span; what is given back writes the request down, where the
        configuration has a `log`."""
        incoming, up = self._incoming, self._up
        attempts = len(self._dispatch.failures) + len(self._attempts)
        if self._span is not None:
            self._span.end(decision, outcome, status, usage, self._ttft, attempts)
        if not incoming.door.generates:
            return lambda _: None
        note = partial(
            up.book.note, up.router.config.log, decision, incoming.view,
            id=incoming.id, outcome=outcome, status=status, usage=usage, ttft=self._ttft,
            latency=up.now() - self._arrived, failed=tuple(self._dispatch.failures),
            attempts=attempts,
        )  # fmt: skip
        return lambda pruning: note(pruning=pruning)

    def _give_up(self, decision: Decision) -> None:
        """Answers with a fault of ours."""
        for attempt in self._attempts:
            attempt.abort()
        self._dispatch.closed(Outcome.ABANDONED, self._up.now())
        self._refuse(TierRouterError("the router failed on this request"), decision)
        self._attempts = []

    def _refuse(self, error: TierRouterError, last: Decision) -> None:
        """Answers with an error, and writes it down as the end of the request; `last` is where it
        was sent last."""
        self._no_hedge()
        self._up.metrics.errored(error.code)
        self._note(last, error.code, error.status)(None)
        headers = [*error_headers(error), *self._tags(last)]
        body = error_body(error, self._incoming.target, self._incoming.id)
        self._exchange.respond(error.status, headers, body)

    def _abandoned(self) -> None:
        """The client is gone: no replica shall generate for nobody."""
        self._no_hedge()
        if any(attempt.call is not None for attempt in self._attempts):
            for attempt in self._attempts:
                attempt.abort()
            self._close(Outcome.ABANDONED, "abandoned")

    def _no_hedge(self) -> None:
        if self._hedging is not None:
            self._hedging.cancel()
            self._hedging = None

    def _pause(self) -> None:
        for attempt in self._attempts:
            if attempt.call is not None:
                attempt.call.pause()

    def _resume(self) -> None:
        for attempt in self._attempts:
            if attempt.call is not None:
                attempt.call.resume()
