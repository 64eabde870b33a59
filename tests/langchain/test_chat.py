"""`ChatTierRouter`: the tier of each call, and that nothing of LangChain's is lost."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.globals import set_llm_cache
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from pydantic import BaseModel

from tier_router.classify import Verdict
from tier_router.config import Config, parse
from tier_router.errors import ConfigError, NoReplica, UpstreamError
from tier_router.langchain import ChatTierRouter
from tier_router.testing import FixedClassifier, faults

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def fixed(_: Config) -> FixedClassifier:
    """A classifier that needs no artefact: "prove" is hard, all else is easy."""
    return FixedClassifier(0.1, {"prove": 0.9, "yes": Verdict(0.1, continues=True)})


def model(stage: Any, more: str = "", **given: Any) -> ChatTierRouter:
    return ChatTierRouter(config=stage.config(more), classifier=fixed, **given)


def tier(answer: Any) -> str:
    return str(answer.response_metadata["tier_router"]["tier"])


def test_each_call_goes_to_its_tier(stage: Any) -> None:
    chat = model(stage)
    easy, hard = chat.invoke("hello"), chat.invoke("prove it")
    assert (tier(easy), easy.response_metadata["model_name"]) == ("light", "m8")
    assert (tier(hard), hard.response_metadata["model_name"]) == ("heavy", "m70")
    assert easy.response_metadata["tier_router"]["reasons"] == ["easy"]
    assert easy.usage_metadata is not None


async def test_all_four_ways_and_batch(stage: Any) -> None:
    chat = model(stage)
    assert tier(await chat.ainvoke("prove it")) == "heavy"
    whole = None
    async for chunk in chat.astream("prove it"):
        whole = chunk if whole is None else whole + chunk
    assert tier(whole) == "heavy"
    assert whole is not None
    assert whole.usage_metadata is not None

    def sync() -> tuple[list[str], str]:
        total = None
        for chunk in chat.stream("hello"):
            total = chunk if total is None else total + chunk
        return [tier(one) for one in chat.batch(["hello", "prove it"])], tier(total)

    assert await asyncio.to_thread(sync) == (["light", "heavy"], "light")
    answers = await chat.abatch(["hello", "prove it"])
    assert [tier(one) for one in answers] == ["light", "heavy"]


def test_a_conversation_and_a_pin(stage: Any) -> None:
    chat = model(stage)
    said = [HumanMessage("prove it"), AIMessage("Shall I?"), HumanMessage("yes")]
    assert tier(chat.invoke(said)) == "heavy"
    assert tier(chat.invoke("hello", tier="heavy")) == "heavy"
    assert tier(chat.bind(tier="heavy").invoke("hello")) == "heavy"
    assert "tier" not in stage.asked()[-1], "our own option reaches no server"


def test_images_go_to_who_can_see(stage: Any) -> None:
    parts: list[Any] = [
        {"type": "text", "text": "what is it?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
    ]
    answer = model(stage).invoke([HumanMessage(parts)])
    assert answer.response_metadata["tier_router"]["reasons"] == ["easy", "needs_vision"]
    assert tier(answer) == "heavy"


@tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def test_tools_are_bound_and_the_call_is_routed(stage: Any) -> None:
    answer = model(stage).bind_tools([add]).invoke("add 3 and 4")
    assert tier(answer) == "light"
    assert answer.tool_calls[0]["args"] == {"a": 3, "b": 4}
    assert stage.asked()[-1]["tools"][0]["function"]["name"] == "add"


class Joke(BaseModel):
    """A joke."""

    setup: str
    punchline: str


@pytest.mark.parametrize("method", [None, "json_schema", "function_calling"])
def test_structured_output(stage: Any, method: Any) -> None:
    options = {} if method is None else {"method": method}
    joke = model(stage).with_structured_output(Joke, **options).invoke("a joke about 'cats'")
    assert isinstance(joke, Joke)
    both: Any = model(stage).with_structured_output(Joke, include_raw=True, **options)
    told = both.invoke("prove a joke")
    assert tier(told["raw"]) == "heavy"
    assert isinstance(told["parsed"], Joke)
    assert told["parsing_error"] is None


class Counting(BaseCallbackHandler):
    """Counts runs and tokens."""

    def __init__(self) -> None:
        self.runs: list[Any] = []
        self.tokens = 0

    def on_chat_model_start(self, *args: Any, **more: Any) -> None:
        self.runs.append(more)

    def on_llm_new_token(self, token: str, **more: Any) -> None:
        self.tokens += bool(token)


def test_one_run_with_the_real_models_name(stage: Any) -> None:
    seen = Counting()
    answer = None
    for chunk in model(stage).stream("prove it", config={"callbacks": [seen]}):
        answer = chunk if answer is None else answer + chunk
    assert answer is not None
    assert len(seen.runs) == 1
    assert seen.runs[0]["metadata"]["ls_model_name"] == "m70"
    assert seen.runs[0]["tags"] == ["tier:heavy"]
    assert seen.tokens == answer.usage_metadata["output_tokens"]


def test_a_cache_is_hit_whatever_the_load(stage: Any) -> None:
    set_llm_cache(InMemoryCache())
    try:
        chat = model(stage)
        first = chat.invoke("hello")
        busy = chat.router.ledger.opened("light-0", 5_000, time.monotonic())
        again = chat.invoke("hello")
        assert busy.open
        assert again.content == first.content
        assert len(stage.asked()) == 1
    finally:
        set_llm_cache(None)


def test_reasoning_text_is_kept(stage: Any) -> None:
    chat = model(stage)
    asked = {"extra_body": {"chat_template_kwargs": {"enable_thinking": True}}}
    answer = chat.invoke("hello", **asked)
    assert "thinks" in answer.additional_kwargs["reasoning_content"]
    whole = None
    for chunk in chat.stream("hello", **asked):
        whole = chunk if whole is None else whole + chunk
    assert whole is not None
    assert "thinks" in whole.additional_kwargs["reasoning_content"]


def test_tier_defaults_and_own_parameters(stage: Any) -> None:
    config = stage.config()
    light = config.tiers[0].model_copy(update={"defaults": {"top_k": 20, "max_tokens": 9}})
    config = config.model_copy(update={"tiers": (light, *config.tiers[1:])})
    chat = ChatTierRouter(config=config, classifier=fixed, temperature=0.3)
    chat.invoke("hello")
    assert stage.asked()[-1]["top_k"] == 20
    assert stage.asked()[-1]["max_tokens"] == 9
    assert stage.asked()[-1]["temperature"] == 0.3
    chat.invoke("hello", temperature=0.9, max_tokens=5)
    assert stage.asked()[-1]["temperature"] == 0.9
    assert 9 not in (stage.asked()[-1].get(n) for n in ("max_tokens", "max_completion_tokens"))


# ---- failures


FAILURES = [
    faults.BUSY,
    faults.DRAINING,
    faults.DEAD,
    faults.BAD_GATEWAY,
    faults.Reset(after_chunks=0),
    faults.Garbage(),
]


@pytest.mark.parametrize("fault", FAILURES, ids=repr)
@pytest.mark.parametrize("stream", [False, True])
def test_another_replica_takes_over(stage: Any, fault: Any, stream: bool) -> None:
    chat = model(stage)
    for fake in stage.light:
        fake.faults.add(fault, times=1)
    answer: Any
    if stream:
        answer = None
        for chunk in chat.stream("hello"):
            answer = chunk if answer is None else answer + chunk
    else:
        answer = chat.invoke("hello")
    assert answer.response_metadata["tier_router"]["reasons"][-1] == "failover"
    assert tier(answer) == "heavy"


async def test_an_error_as_first_event_of_a_stream(stage: Any) -> None:
    chat = model(stage)
    for fake in stage.light:
        fake.faults.add(faults.ErrorInStream(), times=1)
    whole: Any = None
    async for chunk in chat.astream("hello"):
        whole = chunk if whole is None else whole + chunk
    assert tier(whole) == "heavy"


def test_after_the_first_piece_there_is_no_second_answer(stage: Any) -> None:
    chat = model(stage)
    for fake in stage.light:
        fake.faults.add(faults.Reset(after_chunks=3), times=None)
    with pytest.raises(Exception, match=r"peer closed|incomplete|Connection|connection"):
        for _ in chat.stream("hello"):
            pass
    assert len(stage.asked()) == 1


def test_all_failing_names_every_replica(stage: Any) -> None:
    chat = model(stage)
    for fake in stage.fakes:
        fake.faults.add(faults.BUSY, times=None)
    with pytest.raises(NoReplica, match=r"light-\d: 503 .*heavy-0: 503"):
        chat.invoke("hello")


def test_the_callers_own_mistakes_are_raised_as_they_are(stage: Any) -> None:
    with pytest.raises(Exception, match="400"):
        model(stage).invoke("hello", max_tokens=-1)
    assert len(stage.asked()) == 1


def test_leases_are_given_back(stage: Any) -> None:
    chat = model(stage)
    chat.invoke("hello")
    for _ in chat.stream("hello"):
        break
    list(chat.stream("prove it"))
    flight = chat.router.ledger.in_flight
    assert [flight(name) for name in ("light-0", "light-1", "heavy-0")] == [0, 0, 0]


def test_easy_calls_are_stamped_for_vllms_own_queue(stage: Any) -> None:
    chat = model(stage)
    for text, sent in (("hello", "-1"), ("prove it", None)):
        stage.forget()
        chat.invoke(text)
        asked = [each for fake in stage.fakes for each in fake.requests]
        assert [dict(each.headers).get("x-vllm-priority") for each in asked] == [sent]


def test_answers_teach_the_tiers_pace(stage: Any) -> None:
    chat = model(stage)
    chat.invoke("hello")
    pace = chat.router.paces.of("light")
    assert (pace.whole is not None, pace.gap) == (True, None)
    list(chat.stream("hello"))
    assert pace.gap is not None


# ---- any chat models as tiers


def said(text: str) -> GenericFakeChatModel:
    return GenericFakeChatModel(messages=iter([AIMessage(text)] * 20))


def test_tiers_may_be_any_chat_models() -> None:
    chat = ChatTierRouter(tiers={"light": said("small"), "heavy": said("big")}, classifier=fixed)
    assert chat.invoke("hello").content == "small"
    assert chat.invoke("prove it").content == "big"


class Failing(GenericFakeChatModel):
    """A model whose server is away."""

    def _generate(self, *args: Any, **more: Any) -> Any:
        raise ConnectionError("away")


def test_they_fail_over_too() -> None:
    broken: BaseChatModel = Failing(messages=iter([]))
    chat = ChatTierRouter(tiers={"light": broken, "heavy": said("big")}, classifier=fixed)
    assert chat.invoke("hello").content == "big"
    alone = ChatTierRouter(tiers={"light": broken}, classifier=fixed)
    with pytest.raises(UpstreamError, match="ConnectionError: away"):
        alone.invoke("hello")


def test_what_does_not_fit_together_is_said() -> None:
    config = parse("tiers: [{name: a, model: a, replicas: [http://a]}]")
    with pytest.raises(ConfigError, match="`tiers` has light; the configuration has a"):
        ChatTierRouter(config=config, tiers={"light": said("x")}, classifier=fixed)
    with pytest.raises(ConfigError, match="give `config`, `tiers`, or both"):
        ChatTierRouter()


def test_two_event_loops_one_after_the_other(stage: Any) -> None:
    chat = model(stage)
    assert tier(asyncio.run(chat.ainvoke("hello"))) == "light"
    assert tier(asyncio.run(chat.ainvoke("hello"))) == "light"
