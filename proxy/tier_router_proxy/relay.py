"""One chat request on its way: out to a replica, and its answer back, byte for byte.

The answer's head is held back until there is something worth committing to: of a stream the first
`data:` line, since vLLM sends its 200 before the request has even been queued.  Until then a
replica that fails is replaced by the next one and the client notices nothing.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tier_router.decide import Decision
from tier_router.dispatch import Dispatch, Failure, failure_of_answer, failure_of_event
from tier_router.errors import TierRouterError
from tier_router.explain import sentence
from tier_router.ledger import Outcome
from tier_router.pace import usage_at_end
from tier_router.request import View
from tier_router.router import TierRouter
from tier_router.view import PRIORITY_HEADER
from tier_router_proxy.answers import error_headers, json_body
from tier_router_proxy.body import readdressed
from tier_router_proxy.http.framing import FramingError, Walker
from tier_router_proxy.http.messages import Head, Headers, client_headers, upstream_headers
from tier_router_proxy.http.server import Exchange
from tier_router_proxy.http.upstream import Call, Reason, UpstreamFailure
from tier_router_proxy.metrics import Metrics
from tier_router_proxy.pools import Pools

log = logging.getLogger("tier_router_proxy")

HELD_BYTES = 64 * 1024
"""How much of an answer is held back while it is not clear what it is; vLLM's errors have less
than 1 KB."""

MAYBE_FAILED = frozenset({404, 429, 500, 502, 503, 504})
"""Statuses whose body tells whether another replica should be tried."""

TAGS = (
    b"x-request-id",
    b"x-tier-router-tier",
    b"x-tier-router-replica",
    b"x-tier-router-reason",
    b"x-tier-router-difficulty",
)
PRIORITY = PRIORITY_HEADER.encode()
_FIRST_DATA = re.compile(rb"^data: ?([^\r\n]*)[\r\n]", re.M)
_ERROR_EVENT = b'data: {"error"'


@dataclass(frozen=True, slots=True)
class Incoming:
    """A chat request that was read: what it says, and what routing knows of it."""

    id: str
    raw: bytes
    fields: Mapping[str, Any]
    view: View
    arrived: float


@dataclass(frozen=True, slots=True)
class Upstreams:
    """What a relay works with."""

    router: TierRouter
    pools: Pools
    metrics: Metrics
    now: Callable[[], float]
    told: set[tuple[str, str]] = field(default_factory=set)
    """(replica, model) of the wrong models that the log has been told of."""


class Relay:
    """Carries one request; a `Listener` of the upstream call that is running."""

    __slots__ = ("_arrived", "_broken", "_call", "_decision", "_dispatch", "_exchange", "_head",
                 "_held", "_held_bytes", "_incoming", "_last", "_last_but_one", "_passing", "_sink",
                 "_text", "_timeouts", "_up", "_walker")  # fmt: skip

    def __init__(self, up: Upstreams, exchange: Exchange, incoming: Incoming) -> None:
        self._up, self._exchange, self._incoming = up, exchange, incoming
        self._arrived = incoming.arrived
        self._timeouts = up.router.config.server.timeouts
        self._call: Call | None = None
        self._passing = self._broken = False
        self._last = self._last_but_one = b""

    def begin(self) -> None:
        """Decides and sends; raises what `decide` raises."""
        self._dispatch: Dispatch = self._up.router.dispatch(self._incoming.view)
        decision = self._dispatch.begin(self._up.now())
        self._up.metrics.decided(self._up.now() - self._arrived)
        exchange = self._exchange
        exchange.on_disconnect = self._abandoned
        exchange.on_pause, exchange.on_resume = self._pause, self._resume
        self._send(decision)

    # ---- out

    def _send(self, decision: Decision) -> None:
        incoming = self._incoming
        self._decision = decision
        self._head: Head | None = None
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._text = b""
        body = readdressed(incoming.raw, self._up.router.changes(decision, incoming.fields))
        request = self._exchange.request
        self._call = self._up.pools.of(decision.url).send(
            b"POST", request.target, self._headers(decision), body, self
        )
        limits = self._timeouts
        self._call.expect(limits.first_token if incoming.view.stream else limits.answer)
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s -> %s: %s", incoming.id, decision.replica, sentence(decision))

    def _headers(self, decision: Decision) -> Headers:
        config = self._up.router.config
        tier = config.tiers[config.ladder[decision.tier]]
        drop: list[bytes] = [b"x-request-id", b"x-tier-router-tier", PRIORITY]
        if tier.api_key is not None or config.server.api_keys:
            drop.append(b"authorization")
        headers = upstream_headers(self._exchange.request.headers, drop)
        headers.append((b"x-request-id", self._incoming.id.encode()))
        if decision.priority:
            headers.append((PRIORITY, b"%d" % decision.priority))
        if tier.api_key is not None:
            secret = tier.api_key.get_secret_value().encode()
            headers.append((b"authorization", b"Bearer " + secret))
        return headers

    # ---- back

    def on_head(self, head: Head) -> None:
        """Decides by the head how much of the answer has to be seen before it is passed on."""
        self._head = head
        self._walker = Walker(head.framing)
        self._sink: Callable[[bytes], None]
        if head.status in MAYBE_FAILED:
            self._sink = self._collect
        elif head.status == 200 and _is_stream(head):
            self._sink = self._peek
        else:
            self._sink = self._begin_answer

    def on_data(self, data: bytes) -> None:
        """The next raw bytes of the answer's body."""
        self._sink(data)

    def on_end(self) -> None:
        """The answer is complete."""
        if not self._passing:
            failure = self._failure_at_end()
            if failure is not None:
                self._fail(failure)
                return
            self._begin_answer(b"")
        self._close(Outcome.FAILED if self._broken else Outcome.DONE)
        self._exchange.finish()

    def on_failure(self, failure: UpstreamFailure) -> None:
        """The answer will not come, or not to its end."""
        if self._passing:
            log.warning("%s broke off an answer: %s", self._decision.replica, failure.message)
            self._close(Outcome.FAILED, "cut")
            self._exchange.abort()
            return
        timeout = failure.reason in (Reason.TIMEOUT, Reason.CONNECT_TIMEOUT)
        self._fail(Failure(Outcome.FAILED, failure.message, timeout=timeout))

    def _collect(self, data: bytes) -> None:
        """Holds an error's body until it is whole, or too long to be vLLM's."""
        if self._hold(data):
            return
        failure = self._failure_at_end()
        if failure is None:
            self._begin_answer(b"")
        else:
            self._cut()
            self._fail(failure)

    def _peek(self, data: bytes) -> None:
        """Holds a stream back until its first `data:` line."""
        room = self._hold(data)
        first = _FIRST_DATA.search(self._text)
        if first is None:
            if not room:
                self._begin_answer(b"")
            return
        failure = failure_of_event(first[1])
        if failure is not None:
            self._cut()
            self._fail(failure)
            return
        now = self._up.now()
        self._dispatch.first_token(now)
        self._up.metrics.first_token(self._decision, now - self._arrived)
        self._begin_answer(b"")

    def _hold(self, data: bytes) -> bool:
        """Keeps raw bytes and reads their text; False when no more should be held."""
        self._held.append(data)
        self._held_bytes += len(data)
        try:
            self._text += b"".join(self._walker.payload(data)[0])
        except FramingError:
            return False  # the pool has seen it too, and fails the call
        return self._held_bytes < HELD_BYTES

    def _begin_answer(self, data: bytes) -> None:
        """Commits to this replica: what was held goes out, the rest follows as it comes."""
        head = self._head
        assert head is not None
        self._passing = True
        self._sink = self._pass
        headers = client_headers(head, TAGS) + self._tags()
        self._exchange.start(head.status, head.reason, headers, head.framing)
        held, self._held = self._held, []
        for piece in (*held, data):
            if piece:
                self._pass(piece)

    def _pass(self, data: bytes) -> None:
        if self._call is not None:
            self._call.expect(self._timeouts.between)
        if _ERROR_EVENT in data:  # the engine died under a stream that had begun
            self._broken = True
        self._last_but_one, self._last = self._last, data
        self._exchange.write(data)

    def _tags(self) -> Headers:
        return [(b"x-request-id", self._incoming.id.encode()), *tags_of(self._decision)]

    # ---- ends

    def _failure_at_end(self) -> Failure | None:
        """The failure that the answer held so far is, if it is one."""
        head = self._head
        if head is None:
            return Failure(Outcome.FAILED, "ended without an answer")
        if head.status in MAYBE_FAILED:
            retry_after = head.header(b"retry-after")
            text = retry_after.decode("latin-1") if retry_after else None
            return failure_of_answer(head.status, self._text, text)
        if head.status == 200 and not self._text.strip() and _is_stream(head):
            return Failure(Outcome.FAILED, "the stream ended without a word")
        return None

    def _fail(self, failure: Failure) -> None:
        """Goes on to the next replica, or tells the client why there is none."""
        up = self._up
        up.metrics.attempted(self._decision, failure.outcome)
        log.info("%s failed on %s: %s", self._incoming.id, self._decision.replica, failure.message)
        if failure.wrong_model:
            self._tell_of_the_model(failure)
        try:
            decision = self._dispatch.failed(failure, up.now())
        except TierRouterError as error:
            self._call = None
            up.metrics.errored(error.code)
            self._exchange.respond(
                error.status, error_headers(error) + self._tags(), json_body(error.shape())
            )
            return
        up.metrics.failed_over()
        self._send(decision)

    def _close(self, outcome: Outcome, status: str | None = None) -> None:
        """Ends the stay and counts it."""
        self._call = None
        up, now = self._up, self._up.now()
        usage = usage_at_end(self._last_but_one + self._last) if outcome is Outcome.DONE else None
        self._dispatch.closed(outcome, now, usage=usage)
        up.metrics.attempted(self._decision, outcome)
        told = status or (str(self._head.status) if self._head else "none")
        up.metrics.answered(self._decision, told, now - self._arrived)

    def _tell_of_the_model(self, failure: Failure) -> None:
        replica, model = self._decision.replica, self._decision.model
        if (replica, model) not in self._up.told:
            self._up.told.add((replica, model))
            log.error(
                "%s (%s) does not serve its tier's model `%s`: %s",
                replica, self._decision.url, model, failure.message,
            )  # fmt: skip

    def _cut(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.abort()

    def _abandoned(self) -> None:
        """The client is gone: the replica shall not generate for nobody."""
        if self._call is not None:
            self._cut()
            self._close(Outcome.ABANDONED, "abandoned")

    def _pause(self) -> None:
        if self._call is not None:
            self._call.pause()

    def _resume(self) -> None:
        if self._call is not None:
            self._call.resume()


def tags_of(decision: Decision) -> Headers:
    """The response headers that say where a request went, and why."""
    tags: Headers = [
        (b"x-tier-router-tier", decision.tier.encode()),
        (b"x-tier-router-replica", decision.replica.encode()),
        (b"x-tier-router-reason", ",".join(decision.reasons).encode()),
    ]
    if decision.difficulty is not None:
        tags.append((b"x-tier-router-difficulty", b"%.3f" % decision.difficulty))
    return tags


def _is_stream(head: Head) -> bool:
    kind = head.header(b"content-type")
    return kind is not None and kind.lower().startswith(b"text/event-stream")
