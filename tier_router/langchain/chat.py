"""`ChatTierRouter`: a LangChain chat model that answers from the tier that each call needs."""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, Literal, Self

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.language_models.base import LangSmithParams
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.output_parsers import JsonOutputParser, PydanticOutputParser
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import (
    Runnable,
    RunnableConfig,
    RunnableMap,
    RunnablePassthrough,
)
from langchain_core.runnables.config import ensure_config, merge_configs
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_json_schema, convert_to_openai_tool
from langchain_core.utils.pydantic import is_basemodel_subclass
from pydantic import BaseModel, Field, PrivateAttr, model_validator

from tier_router.config import Config, load, parse
from tier_router.decide import Decision
from tier_router.decisionlog import Logbook
from tier_router.errors import ConfigError
from tier_router.explain import record
from tier_router.langchain.attempt import Attempt, usage_of
from tier_router.langchain.body import view_of_messages
from tier_router.langchain.pruned import Cuts
from tier_router.langchain.vllm import ChatVllm, chat_vllm
from tier_router.ledger import Outcome
from tier_router.request import View
from tier_router.router import TierRouter
from tier_router.view import PRIORITY_HEADER

KEY = "tier_router"
"""Where an answer's `response_metadata` holds its decision."""

OWN = ("tier", "tier_decided", "model")
"""Call options that are ours, and go no further."""

Method = Literal["json_schema", "function_calling", "json_mode"]


@dataclass(frozen=True, slots=True)
class _Opened:
    """A call as it was looked at before its run: what routing knows of it, and what that gave."""

    view: View
    decision: Decision
    cuts: Cuts | None


class ChatTierRouter(BaseChatModel):
    """A chat model over a ladder of tiers.

    Built from a configuration alone (each replica is an OpenAI-compatible server), or from
    `tiers`: {name: any chat model}, smallest first, with or without a configuration that names
    them.  The decision is in the answer's `response_metadata["tier_router"]`; `tier="heavy"` as a
    call option (or `.bind(tier="heavy")`) forces one, and so does `model` with any name that the
    configuration knows.  A model that fails before the first piece
    of its answer is replaced by the next.  The tier's own model is called directly, inside this
    model's run: tokens and callbacks count once, and its own cache and rate limiter are not asked.
    """

    config: Any = Field(default=None, exclude=True)
    """A path, a `Config`, or None."""
    tiers: dict[str, Any] | None = Field(default=None, exclude=True)
    """{tier: chat model}, smallest first."""
    classifier: Any = Field(default=None, exclude=True)
    """A function from the configuration to a `Classifier`; the shipped one where left out."""
    temperature: float | None = None
    max_tokens: int | None = None
    stop: list[str] | None = None
    timeout: float | None = None
    max_retries: int | None = None
    """Further models that are tried after a failure; `server.attempts` where left out."""

    _router: TierRouter = PrivateAttr()
    _models: dict[str, BaseChatModel] = PrivateAttr()
    _book: Logbook = PrivateAttr(default_factory=lambda: Logbook("langchain"))

    @model_validator(mode="after")
    def _build(self) -> Self:
        config = self._configured()
        self._router = TierRouter(config, self.classifier)
        if self.tiers is not None:
            self._models = {
                replica.name or replica.url: self.tiers[tier.name]
                for tier in config.tiers
                for replica in tier.replicas
            }
        else:
            timeouts = config.server.timeouts
            if self.timeout is not None:
                timeouts = timeouts.model_copy(update={"answer": self.timeout})
            self._models = {
                replica.name or replica.url: chat_vllm(tier, replica, timeouts)
                for tier in config.tiers
                for replica in tier.replicas
            }
        return self

    def _configured(self) -> Config:
        given = self.config
        if given is None:
            if not self.tiers:
                raise ConfigError("give `config`, `tiers`, or both")
            given = _config_of(self.tiers)
        config = load(given) if isinstance(given, str | Path) else given
        if not isinstance(config, Config):
            raise ConfigError("`config` is a path or a Config")
        if self.tiers is not None and set(self.tiers) != set(config.ladder):
            names = ", ".join(self.tiers) or "none"
            raise ConfigError(
                f"`tiers` has {names}; the configuration has {', '.join(config.ladder)}"
            )
        if self.max_retries is not None:
            attempts = min(max(self.max_retries, 0) + 1, 10)
            server = config.server.model_copy(update={"attempts": attempts})
            config = config.model_copy(update={"server": server})
        return config

    @property
    def router(self) -> TierRouter:
        """The router behind it, with its ledger."""
        return self._router

    @property
    def _llm_type(self) -> str:
        return "tier-router"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        ladder = {tier.name: tier.model for tier in self._router.config.tiers}
        return {"tiers": ladder, "temperature": self.temperature, "max_tokens": self.max_tokens}

    # ---- the four ways in: decide before the run opens, so that its trace shows the real model

    def invoke(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> AIMessage:
        """The answer, from the tier that the call needs."""
        messages, config, kwargs = self._opened(input, config, kwargs)
        return super().invoke(messages, config, stop=stop, **kwargs)

    async def ainvoke(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> AIMessage:
        """As `invoke`."""
        await self._ahead(input, kwargs)
        messages, config, kwargs = self._opened(input, config, kwargs)
        return await super().ainvoke(messages, config, stop=stop, **kwargs)

    def stream(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> Iterator[Any]:
        """The answer in pieces."""
        messages, config, kwargs = self._opened(input, config, kwargs)
        yield from super().stream(messages, config, stop=stop, **kwargs)

    async def astream(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[Any]:
        """As `stream`."""
        await self._ahead(input, kwargs)
        messages, config, kwargs = self._opened(input, config, kwargs)
        async for chunk in super().astream(messages, config, stop=stop, **kwargs):
            yield chunk

    def _opened(
        self, given: LanguageModelInput, config: RunnableConfig | None, kwargs: dict[str, Any]
    ) -> tuple[list[BaseMessage], RunnableConfig, dict[str, Any]]:
        """Messages, and a run that is marked with the tier that will answer."""
        messages = self._convert_input(given).to_messages()
        view = self._view(messages, kwargs)
        cuts = self._cuts(view, messages, kwargs)
        decision = self._router.decide(view, trimming=None if cuts is None else cuts.trimming)
        marks: RunnableConfig = {
            "tags": [f"tier:{decision.tier}"],
            "metadata": {"tier": decision.tier},
        }
        marked = merge_configs(ensure_config(config), marks)
        return messages, marked, {**kwargs, "tier_decided": _Opened(view, decision, cuts)}

    async def _ahead(self, given: LanguageModelInput, kwargs: Mapping[str, Any]) -> None:
        """Lets the event loop go on while the classifier asks others."""
        if self._router.waits:
            messages = self._convert_input(given).to_messages()
            await self._router.ahead(self._view(messages, kwargs))

    def _view(self, messages: Sequence[BaseMessage], kwargs: Mapping[str, Any]) -> View:
        return view_of_messages(self._router, messages, kwargs, kwargs.get("tier"))

    def _cuts(
        self, view: View, messages: Sequence[BaseMessage], kwargs: Mapping[str, Any]
    ) -> Cuts | None:
        own = {"max_tokens": self.max_tokens, "stop": self.stop}
        return Cuts.of(self._router, view, messages, {**own, **kwargs})

    # ---- what LangChain calls inside the run

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        attempt = self._attempt(messages, kwargs)
        while True:
            model, (sent, options) = attempt.model, self._sent(attempt, messages, kwargs)
            try:
                result = model._generate(
                    sent, stop=stop or self.stop, run_manager=run_manager, **options
                )
            except Exception as error:  # noqa: BLE001  told apart, and raised again if it is final
                attempt.failed(error)
                continue
            except BaseException:
                attempt.closed(Outcome.ABANDONED)
                raise
            return self._answered(attempt, result)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        attempt = self._attempt(messages, kwargs)
        while True:
            model, (sent, options) = attempt.model, self._sent(attempt, messages, kwargs)
            try:
                result = await model._agenerate(
                    sent, stop=stop or self.stop, run_manager=run_manager, **options
                )
            except Exception as error:  # noqa: BLE001  as above
                attempt.failed(error)
                continue
            except BaseException:
                attempt.closed(Outcome.ABANDONED)
                raise
            return self._answered(attempt, result)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        attempt = self._attempt(messages, kwargs)
        outcome, usage = Outcome.ABANDONED, None
        try:
            while True:
                model, (sent, options) = attempt.model, self._sent(attempt, messages, kwargs)
                chunks = iter(
                    model._stream(sent, stop=stop or self.stop, run_manager=run_manager, **options)
                )
                try:
                    first = next(chunks, None)
                except Exception as error:  # noqa: BLE001  as above
                    attempt.failed(error)
                    continue
                break
            if first is not None:
                attempt.began()
                usage = usage_of(first.message)
                attempt.heard(first.message)
                yield _noted(first, attempt)
                outcome = Outcome.FAILED
                for chunk in chunks:
                    usage = usage_of(chunk.message) or usage
                    attempt.heard(chunk.message)
                    outcome = Outcome.ABANDONED  # where the reader stops here
                    yield chunk
                    outcome = Outcome.FAILED  # where the model breaks off here
            outcome = Outcome.DONE
        finally:
            attempt.closed(outcome, usage)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        attempt = self._attempt(messages, kwargs)
        outcome, usage = Outcome.ABANDONED, None
        try:
            while True:
                model, (sent, options) = attempt.model, self._sent(attempt, messages, kwargs)
                chunks = aiter(
                    model._astream(sent, stop=stop or self.stop, run_manager=run_manager, **options)
                )
                try:
                    first = await anext(chunks, None)
                except Exception as error:  # noqa: BLE001  as above
                    attempt.failed(error)
                    continue
                break
            if first is not None:
                attempt.began()
                usage = usage_of(first.message)
                attempt.heard(first.message)
                yield _noted(first, attempt)
                outcome = Outcome.FAILED
                async for chunk in chunks:
                    usage = usage_of(chunk.message) or usage
                    attempt.heard(chunk.message)
                    outcome = Outcome.ABANDONED
                    yield chunk
                    outcome = Outcome.FAILED
            outcome = Outcome.DONE
        finally:
            attempt.closed(outcome, usage)

    def _attempt(self, messages: Sequence[BaseMessage], kwargs: dict[str, Any]) -> Attempt:
        opened = kwargs.get("tier_decided")
        if isinstance(opened, _Opened):
            view, cuts = opened.view, opened.cuts
        else:
            view = self._view(messages, kwargs)
            cuts = self._cuts(view, messages, kwargs)
        for name in OWN:
            kwargs.pop(name, None)
        self._router.share()
        return Attempt(self._router, self._models, view, self._book, cuts)

    def _sent(
        self, attempt: Attempt, messages: list[BaseMessage], kwargs: Mapping[str, Any]
    ) -> tuple[list[BaseMessage], dict[str, Any]]:
        """The messages and call options for the model that answers now."""
        options = dict(kwargs)
        for name in ("temperature", "max_tokens"):
            own = getattr(self, name)
            if own is not None:
                options.setdefault(name, own)
        model = attempt.model
        if isinstance(model, ChatVllm):
            defaults = self._router.changes(attempt.decision, options)
            del defaults["model"]
            if defaults:
                options["extra_body"] = defaults | dict(options.get("extra_body") or {})
            if attempt.decision.priority:
                stamp = {PRIORITY_HEADER: str(attempt.decision.priority)}
                options["extra_headers"] = stamp | dict(options.get("extra_headers") or {})
        if attempt.cuts is not None:
            vllm = isinstance(model, ChatVllm)
            messages, options = attempt.cuts.to(attempt.decision, options, vllm=vllm)
        if options.get("tools"):
            options = _bound(model, options)
        return messages, options

    def _answered(self, attempt: Attempt, result: ChatResult) -> ChatResult:
        attempt.heard(result.generations[0].message)
        attempt.closed(Outcome.DONE, usage_of(result.generations[0].message))
        for generation in result.generations:
            _noted(generation, attempt)
        return result

    # ---- tools and structured output

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """This model with tools; each tier's model is given them in its own way when it answers."""
        strict = kwargs.get("strict")
        formatted = [convert_to_openai_tool(tool, strict=strict) for tool in tools]
        if tool_choice is not None:
            kwargs["tool_choice"] = tool_choice
        return self.bind(tools=formatted, **kwargs)

    def with_structured_output(
        self,
        schema: dict[str, Any] | type,
        *,
        method: Method | None = None,
        include_raw: bool = False,
        strict: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, dict[str, Any] | BaseModel]:
        """Answers of the given shape: by vLLM's guided decoding (`json_schema`) where the tiers
        are replicas of a configuration, else by a tool call."""
        if method is None:
            method = "json_schema" if self.tiers is None else "function_calling"
        if method == "function_calling":
            return super().with_structured_output(schema, include_raw=include_raw, **kwargs)
        if kwargs:
            raise ValueError(f"unknown options: {', '.join(kwargs)}")
        shown = convert_to_json_schema(schema, strict=strict)
        form: dict[str, Any] = {"type": "json_object"}
        if method == "json_schema":
            named = {"name": shown.get("title", "answer"), "schema": shown}
            form = {"type": "json_schema", "json_schema": named}
            if strict is not None:
                named["strict"] = strict
        structured = {"kwargs": {"method": method, "strict": strict}, "schema": shown}
        model = self.bind(response_format=form, ls_structured_output_format=structured)
        pydantic = isinstance(schema, type) and is_basemodel_subclass(schema)
        parser: Runnable[Any, Any] = (
            PydanticOutputParser(pydantic_object=schema) if pydantic else JsonOutputParser()
        )
        return _with_raw(model, parser) if include_raw else model | parser

    # ---- what traces and caches see

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        opened = kwargs.get("tier_decided")
        ours = OWN if isinstance(opened, _Opened) else OWN[:2]
        kwargs = {name: value for name, value in kwargs.items() if name not in ours}
        if isinstance(opened, _Opened):
            model = self._models[opened.decision.replica]
        else:
            model = next(reversed(self._models.values()))
        params = model._get_ls_params(stop=stop or self.stop, **kwargs)
        if self.temperature is not None:
            params["ls_temperature"] = kwargs.get("temperature", self.temperature)
        if self.max_tokens is not None:
            params["ls_max_tokens"] = kwargs.get("max_tokens", self.max_tokens)
        return params

    def _get_invocation_params(
        self, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        return super()._get_invocation_params(stop=stop, **_told(kwargs))

    def _get_llm_string(self, stop: list[str] | None = None, **kwargs: Any) -> str:
        """What an answer is cached under: the tier that gave it, and not how loaded it was."""
        return super()._get_llm_string(stop=stop, **_told(kwargs))


def _told(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The call options as traces and caches see them: with the tier, without the load."""
    shown = {name: value for name, value in kwargs.items() if name != "tier_decided"}
    opened = kwargs.get("tier_decided")
    return shown | {"tier": opened.decision.tier} if isinstance(opened, _Opened) else shown


def _config_of(tiers: Mapping[str, Any]) -> Config:
    """The configuration of models that are given as they are: each is its tier's one replica."""
    import yaml

    ladder = [
        {"name": name, "model": f"{name}-model", "replicas": [f"http://{name}.invalid"]}
        for name in tiers
    ]
    return parse(yaml.safe_dump({"tiers": ladder}), name="tiers")


def _noted(generation: ChatGeneration, attempt: Attempt) -> Any:
    """The answer (or its first piece), with the decision in its metadata, and what was pruned."""
    sent = None if attempt.cuts is None else attempt.cuts.sent
    pruned = {"pruned": sent.header} if sent is not None and sent.header else {}
    generation.message.response_metadata[KEY] = record(attempt.decision) | pruned
    return generation


def _bound(model: BaseChatModel, options: dict[str, Any]) -> dict[str, Any]:
    """The options as the model's own `bind_tools` makes them."""
    given = dict(options)
    tools = given.pop("tools")
    names = ("tool_choice", "strict", "parallel_tool_calls")
    how = {name: given.pop(name) for name in names if given.get(name) is not None}
    bound: Any = model.bind_tools(tools, **how)
    return {**given, **bound.kwargs}


def _with_raw(model: Runnable[Any, Any], parser: Runnable[Any, Any]) -> Runnable[Any, Any]:
    """{raw, parsed, parsing_error}, as LangChain's own chat models give it."""
    parsed = RunnablePassthrough.assign(
        parsed=operator.itemgetter("raw") | parser, parsing_error=lambda _: None
    )
    failed = RunnablePassthrough.assign(parsed=lambda _: None)
    steps: list[Runnable[Any, Any]] = [
        RunnableMap(raw=model),
        parsed.with_fallbacks([failed], exception_key="parsing_error"),
    ]
    return reduce(operator.or_, steps)
