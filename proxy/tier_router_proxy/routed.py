"""The way of a request that is routed: read, admitted, judged, and handed to its relay."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, Protocol

from tier_router.config.model import AUTO
from tier_router.errors import RequestError, TierRouterError
from tier_router.request import View
from tier_router_proxy.body import read
from tier_router_proxy.coding import plain_body
from tier_router_proxy.doors import STORED, Door
from tier_router_proxy.http.messages import Headers, Request
from tier_router_proxy.http.server import Exchange
from tier_router_proxy.keepers import ID, UnknownResponse
from tier_router_proxy.keys import Holder, Keys
from tier_router_proxy.relay import Relay
from tier_router_proxy.upstreams import Incoming, Upstreams

log = logging.getLogger("tier_router_proxy")

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")


class Refuse(Protocol):
    """Answers with an error; `name` is the request's id where one was made up already."""

    def __call__(
        self, exchange: Exchange, error: TierRouterError, name: str | None = None
    ) -> None: ...


class Routed:
    """Answers what is routed; `refuse` answers with an error."""

    def __init__(self, up: Upstreams, keys: Keys, refuse: Refuse) -> None:
        self._up, self._keys, self._refuse = up, keys, refuse
        self._waiting: set[asyncio.Task[None]] = set()

    def relayed(self, door: Door, exchange: Exchange, path: bytes) -> None:
        """Relays a body to the replica that `decide` names, or that keeps what it goes on from."""
        arrived = self._up.now()
        request = exchange.request
        raw = self.body(request)
        fields = read(raw)
        door.check(fields)
        view = door.look(fields, plain_headers(request))
        if door.named:
            self._check_named(view)
        view = self._admitted(exchange, view)
        target = _target(request, path)
        incoming = Incoming(request_id(request), raw, fields, view, arrived, door, b"POST", target)
        previous = fields.get("previous_response_id") if door.stored else None
        if isinstance(previous, str) and previous:
            self._to_keeper(exchange, incoming, previous, "previous_response_id")
        elif door.judged and self._up.router.waits:
            self._later(exchange, self._judged(exchange, incoming))
        else:
            self._begin(exchange, incoming)

    def stored(self, name: str, exchange: Exchange, path: bytes) -> None:
        """Reads, deletes or cancels a response, at the replica that keeps it."""
        request = exchange.request
        view = self._admitted(exchange, STORED.look({}, plain_headers(request)))
        incoming = Incoming(
            request_id(request),
            b"" if request.method == b"POST" else None,
            {},
            view,
            self._up.now(),
            STORED,
            request.method,
            _target(request, path),
        )
        self._to_keeper(exchange, incoming, name, "response_id")

    def _begin(self, exchange: Exchange, incoming: Incoming) -> None:
        """Relays it; where no replica may have it, the client is told the id that the log has."""
        try:
            Relay(self._up, exchange, incoming).begin()
        except TierRouterError as error:
            self._refuse(exchange, error, incoming.id)

    def _to_keeper(self, exchange: Exchange, incoming: Incoming, name: str, param: str) -> None:
        """Relays to the replica that keeps the response `name`; asks for it where need be."""
        if not ID.fullmatch(name):
            raise UnknownResponse(f"`{param}` is no response's id", param=param)
        keeper = self._up.keepers.of(name, self._up.router.config)
        if keeper is None:
            self._later(exchange, self._found(exchange, incoming, name, param))
        else:
            self._begin(exchange, _at(keeper, incoming))

    async def _found(
        self, exchange: Exchange, incoming: Incoming, name: str, param: str
    ) -> Incoming:
        """Asks the replicas which of them keeps the response."""
        config, request = self._up.router.config, exchange.request
        credentials = [] if config.server.api_keys else _credentials(request)
        try:
            keeper = await self._up.keepers.find(name, config, self._up.pools, credentials)
        except UnknownResponse as error:
            error.param = param
            raise
        return _at(keeper, incoming)

    async def _judged(self, exchange: Exchange, incoming: Incoming) -> Incoming:
        """Lets the classifier ask whom it asks; other requests go on meanwhile."""
        await self._up.router.ahead(incoming.view)
        return incoming

    def _later(self, exchange: Exchange, waiting: Coroutine[Any, Any, Incoming]) -> None:
        """Relays what `waiting` gives, unless the client has gone."""

        async def relay() -> None:
            try:
                incoming = await waiting
                if not exchange.closed:
                    self._begin(exchange, incoming)
            except TierRouterError as error:
                self._refuse(exchange, error)

        self.run(exchange, relay())

    def run(self, exchange: Exchange, work: Coroutine[Any, Any, None]) -> None:
        """Runs what answers an exchange; a fault of ours in it is answered too, and logged."""

        async def guarded() -> None:
            try:
                await work
            except Exception as error:  # noqa: BLE001  the client must not wait for ever
                self.failed(exchange, error)

        task = asyncio.get_running_loop().create_task(guarded())
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    def failed(self, exchange: Exchange, error: Exception) -> None:
        """Answers an exchange on which the router itself failed, and tells the log."""
        name = request_id(exchange.request)
        if isinstance(error, RecursionError):
            told: TierRouterError = RequestError("the body is nested too deeply")
        else:
            told = TierRouterError("the router failed on this request")
            log.error("%s failed", name, exc_info=error, extra={"request_id": name})
        if exchange.started:
            exchange.abort()
        else:
            self._refuse(exchange, told, name)

    def _admitted(self, exchange: Exchange, view: View) -> View:
        """`view` within what the client's key allows; counts the request until it is over."""
        holder = self._keys.holder(exchange.request)
        if holder is not None:
            holder.enter(self._up.now())
            exchange.on_over = holder.leave
        return within(view, holder)

    def body(self, request: Request) -> bytes:
        """A request's body, decompressed."""
        return plain_body(request, int(self._up.router.config.server.body_limit))

    def _check_named(self, view: View) -> None:
        """Raises RequestError where a tier has to be named and is not."""
        config = self._up.router.config
        named = view.header or view.model or AUTO
        if config.pins.get(named) == AUTO and config.rungs > 1:
            raise RequestError(
                "`model` must name a tier: the numbers of tokens mean other text to each model",
                param="model",
            )


def within(view: View, holder: Holder | None) -> View:
    """`view` with the tiers and the priority of whose request it is."""
    if holder is None:
        return view
    priority = holder.key.priority if view.priority is None else view.priority
    return replace(view, allowed=holder.tiers, priority=priority)


def _at(keeper: str, incoming: Incoming) -> Incoming:
    """The request, for the one replica that can answer it."""
    return replace(incoming, view=replace(incoming.view, keeper=keeper))


def _target(request: Request, path: bytes) -> bytes:
    """The path as replicas know it, with the client's query."""
    _, mark, query = request.target.partition(b"?")
    return path + mark + query


def _credentials(request: Request) -> Headers:
    return [field for field in request.headers if field[0] == b"authorization"]


def plain_headers(request: Request) -> dict[str, str]:
    """The headers as text; of repeated ones the first counts."""
    return {n.decode("latin-1"): v.decode("latin-1") for n, v in reversed(request.headers)}


def request_id(request: Request) -> str:
    """The client's request id where it is a plain one, else a new one."""
    given = request.header(b"x-request-id")
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given.decode()
    return os.urandom(16).hex()
