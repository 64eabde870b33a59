"""A vLLM server without a model: its HTTP, its queueing, its errors, and faults on demand."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from tier_router.testing import bodies, pooled, problems, tokens
from tier_router.testing.answers import Part, Writer
from tier_router.testing.as_chat import chat_of_message, chat_of_response
from tier_router.testing.bodies import Order, Shape, encode
from tier_router.testing.engine import FAST, Engine, Speed
from tier_router.testing.exchange import Exchange
from tier_router.testing.generate import (
    CHAT,
    TEXT,
    chat_order,
    generate,
    response_order,
    text_order,
)
from tier_router.testing.job import Job
from tier_router.testing.listener import KEEP_ALIVE, Listener
from tier_router.testing.message_shape import MessageShape
from tier_router.testing.metrics import CONTENT_TYPE, Metrics
from tier_router.testing.pacing import Pacer
from tier_router.testing.plan import Fault, Faults
from tier_router.testing.recorded import Recorded
from tier_router.testing.response_shape import ResponseShape

VERSION = "0.32.0"

_GENERATING = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")
_SMALL = ("/tokenize", "/detokenize", "/v1/messages/count_tokens")
_STORED = re.compile(r"/v1/responses/([^/]+)(/cancel)?")
_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Flags:
    """Flags of `vllm serve` that show in what it answers."""

    load_tracking: bool = True
    """`--enable-server-load-tracking`: without it `/load` always says 0."""
    tool_choice: bool = True
    """`--enable-auto-tool-choice --tool-call-parser ...`: without them tools are refused, unless
    the request names one."""
    reasoning_parser: bool = True
    """`--reasoning-parser ...`: without it thoughts are a part of the content."""
    response_store: bool = True
    """`VLLM_ENABLE_RESPONSES_API_STORE=1`: without it no response is kept."""
    prompt_details: bool = True
    """`--enable-prompt-tokens-details`: without it `prompt_tokens_details` is null."""


ALL_FLAGS = Flags()


class FakeVllm:
    """One replica on a loopback port; `async with FakeVllm("light") as fake: fake.url`.

    It answers to `model` and `aliases`, and calls itself `model`.  `answer` gives the text from
    the body of the request, where the words do matter.  `scale` is how many of the engine's
    seconds pass in a real one.  `record=False` keeps no requests, for long runs.  `pooling=True`
    is the runner of an embedding model, which has other paths and writes nothing.  Stopped and
    started again it has the same port.
    """

    def __init__(
        self,
        model: str = "fake",
        *,
        aliases: Sequence[str] = (),
        speed: Speed = FAST,
        max_model_len: int = 32_768,
        api_key: str | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        answer: Callable[[dict[str, Any]], str] | None = None,
        multimodal: bool = False,
        keep_alive: float | None = KEEP_ALIVE,
        scale: float = 1.0,
        record: bool = True,
        flags: Flags = ALL_FLAGS,
        pooling: bool = False,
    ) -> None:
        self.model = model
        self.aliases = tuple(aliases)
        self.max_model_len = max_model_len
        self.api_key = api_key
        self.host = host
        self.port = port
        self.flags = flags
        self.requests: list[Recorded] = []
        self.faults = Faults()
        self.engine = Engine(speed)
        self.metrics = Metrics()
        self.connections = Listener(self._serve, keep_alive)
        self._answer = answer
        self._multimodal = multimodal
        self._pacer = Pacer(self.engine, scale)
        self._record = record
        self._pooling = pooling
        self.responses: dict[str, dict[str, Any]] = {}
        """The stored responses by id."""
        self._talks: dict[str, list[Any]] = {}
        self._load = 0
        self._started = 0
        self._pages: dict[str, Callable[[], tuple[str, bytes]]] = {
            "/health": lambda: ("", b""),
            "/ping": lambda: ("", b""),
            "/version": lambda: (_JSON, encode({"version": VERSION})),
            "/load": lambda: (_JSON, encode({"server_load": self._counted()})),
            "/metrics": lambda: (CONTENT_TYPE, self.metrics.text(self.model, self.engine)),
            "/v1/models": lambda: (_JSON, encode(self._model_cards())),
        }

    @property
    def url(self) -> str:
        """`http://host:port`, without a slash at the end."""
        return f"http://{self.host}:{self.port}"

    async def start(self) -> None:
        """Listen; returns once clients can connect."""
        self.port = await self.connections.start(self.host, self.port)
        self.metrics.born = time.time()
        self._started = int(self.metrics.born)
        self._pacer.start()

    async def stop(self, grace: float = 0.0) -> None:
        """Listen no more and end each connection, those with an answer under way after `grace`
        seconds at the latest.  Clients that are cut off so do not count as `aborted`."""
        try:
            await self.connections.stop(grace)
        finally:
            self._pacer.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def _counted(self) -> int:
        return self._load if self.flags.load_tracking else 0

    async def _serve(self, exchange: Exchange) -> None:
        request = exchange.request
        if self._record:
            self.requests.append(request)
        name = request.header("x-request-id") or uuid4().hex
        exchange.echo = (("vary", "Origin"), ("x-request-id", name))
        fault = self.faults.take(request)
        counted = request.route in _GENERATING
        self._load += counted
        try:
            if not await fault.answer(exchange, request.wants_stream):
                await self._route(exchange, fault)
        except problems.Refused as refused:
            if request.route.startswith("/v1/messages"):
                refused = problems.in_anthropics_shape(refused)
            await exchange.json(refused.status, refused.content, refused.headers)
        finally:
            self._load -= counted

    async def _route(self, exchange: Exchange, fault: Fault) -> None:
        request = exchange.request
        open_to_all = self.api_key is None or not request.route.startswith("/v1/")
        if not open_to_all and request.header("authorization") != f"Bearer {self.api_key}":
            raise problems.Refused(401, problems.UNAUTHORIZED)
        stored = None if self._pooling else _STORED.fullmatch(request.route)
        if request.route in (pooled.PATHS if self._pooling else (*_GENERATING, *_SMALL)):
            method = "POST"
        elif stored is not None:
            method = "POST" if stored[2] else "GET"
        elif request.route in self._pages:
            method = "GET"
        else:
            raise problems.Refused(404, problems.NOT_FOUND)
        if request.method != method:
            raise problems.Refused(405, problems.NOT_ALLOWED, (("allow", method),))
        if stored is not None:
            await exchange.json(200, self._response(stored[1], cancel=bool(stored[2])))
        elif request.route in pooled.PATHS:
            body = self._body(request)
            self._known(body)
            await exchange.json(200, pooled.pooled(request.route, body, self.model))
        elif request.route == "/v1/responses":
            await self._respond(exchange, fault)
        elif request.route == "/v1/messages":
            await self._message(exchange, fault)
        elif request.route in _GENERATING:
            await self._generate(exchange, fault, chat=request.route == _GENERATING[0])
        elif method == "POST":
            await exchange.json(200, self._counted_tokens(request))
        else:
            kind, content = self._pages[request.route]()
            await exchange.respond(200, content, (("content-type", kind),) if kind else ())

    def _body(self, request: Recorded) -> dict[str, Any]:
        """The body, which is a JSON object, or `Refused`."""
        return problems.parse(request.raw, request.body, request.header("content-type"))

    async def _generate(self, exchange: Exchange, fault: Fault, *, chat: bool) -> None:
        request = exchange.request
        body = self._checked(self._body(request), chat=chat)
        chooses = chat and body.get("tools") and body.get("tool_choice") in (None, "auto")
        if chooses and not self.flags.tool_choice:
            raise problems.no_tool_parser()
        order_of = chat_order if chat else text_order
        order = order_of(request, body, self._writer(), self.max_model_len)
        order = replace(order, prompt_details=self.flags.prompt_details)
        await self._write(exchange, order, CHAT if chat else TEXT, fault)

    async def _respond(self, exchange: Exchange, fault: Fault) -> None:
        """Answers `/v1/responses`."""
        body = self._body(exchange.request)
        if body.get("input") is None:
            raise problems.missing("input", body)
        if body.get("background") and not self.flags.response_store:
            raise problems.no_store()
        before: Sequence[Any] = ()
        if (previous := body.get("previous_response_id")) is not None:
            if previous not in self._talks:
                raise problems.no_response(previous)
            before = self._talks[previous]
        chat = chat_of_response(body, before)
        checked = self._checked(chat, chat=True)
        order = response_order(exchange.request, checked, self._writer(), self.max_model_len)
        shape = ResponseShape(body)
        jobs = await self._write(exchange, order, shape, fault)
        if self.flags.response_store and body.get("store") is not False:
            said = {"role": "assistant", "content": order.drafts[0].text(Part.CONTENT)}
            self.responses[order.id] = shape.whole(order, jobs)
            self._talks[order.id] = [*chat["messages"], said]

    async def _message(self, exchange: Exchange, fault: Fault) -> None:
        """Answers `/v1/messages`."""
        body = self._body(exchange.request)
        for name in ("model", "messages", "max_tokens"):
            if body.get(name) is None:
                raise problems.missing(name, body)
        checked = self._checked(chat_of_message(body), chat=True)
        order = chat_order(exchange.request, checked, self._writer(), self.max_model_len)
        await self._write(exchange, order, MessageShape(), fault)

    def _response(self, name: str, *, cancel: bool) -> dict[str, Any]:
        response = self.responses.get(name)
        if response is None:
            raise problems.no_response(name)
        if cancel:  # all that is stored is complete
            raise problems.not_cancelled()
        return response

    def _writer(self) -> Writer:
        parses = self.flags.reasoning_parser
        return Writer(self.model, self._answer, self._multimodal, parses)

    def _checked(self, body: dict[str, Any], *, chat: bool) -> dict[str, Any]:
        checked = problems.check(body, chat=chat, limit=self.max_model_len)
        self._known(checked)
        return checked

    async def _write(
        self, exchange: Exchange, order: Order, shape: Shape, fault: Fault
    ) -> Sequence[Job]:
        jobs = await generate(exchange, order, shape, self.engine, fault)
        for job, draft in zip(jobs, order.drafts, strict=True):
            self.metrics.observe(job, draft.finish)
        return jobs

    def _known(self, body: dict[str, Any]) -> None:
        names = (self.model, *self.aliases)
        if (named := body.get("model")) is not None and named not in names:
            raise problems.unknown_model(named, names)

    def _counted_tokens(self, request: Recorded) -> dict[str, Any]:
        """The answer to one of the paths about tokens."""
        body = self._body(request)
        if request.route == "/tokenize":
            return self._tokenized(body)
        self._known(body)
        if request.route == "/detokenize":
            if body.get("tokens") is None:
                raise problems.missing("tokens", body)
            if not isinstance(body["tokens"], list):
                raise problems.bad_prompt(body["tokens"], "tokens")
            return {"prompt": tokens.text_of_ids(body["tokens"])}
        if body.get("messages") is None:
            raise problems.missing("messages", body)
        count = tokens.count(tokens.render(chat_of_message(body)))
        return {"input_tokens": count, "context_management": {"original_input_tokens": count}}

    def _tokenized(self, body: dict[str, Any]) -> dict[str, Any]:
        self._known(body)
        text = tokens.render(body) if "messages" in body else str(body.get("prompt", ""))
        ids = tokens.ids(text)
        return {
            "count": len(ids),
            "max_model_len": self.max_model_len,
            "tokens": ids,
            "token_strs": None,
        }

    def _model_cards(self) -> dict[str, Any]:
        cards = (
            bodies.model_card(name, self.model, self._started, self.max_model_len)
            for name in (self.model, *self.aliases)
        )
        return {"object": "list", "data": list(cards)}
