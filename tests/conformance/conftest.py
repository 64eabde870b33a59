"""One table of requests; every door must decide each of them alike.

Rows say what goes in and which tier and reasons come out.  A door translates shapes and lifetimes;
an `if` about routing that crept into one shows here.
"""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from tier_router.config import Config, parse
from tier_router.ledger import Outcome
from tier_router.router import TierRouter
from tier_router.testing import FakeVllm, FixedClassifier

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else importing it asks the network

HARD = "Prove that every bounded monotone sequence of real numbers converges."
LOG = "\n".join(f"2026-11-30 10:00:{n % 60:02} ERROR worker-{n} lost its lease" for n in range(900))
CODE = "```python\n" + "def f(theorem):\n    return derive(theorem)\n" * 30 + "```"
PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
TOOLS = [
    {
        "type": "function",
        "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}},
    }
]
SCHEMA = {
    "type": "json_schema",
    "json_schema": {"name": "a", "schema": {"type": "object", "properties": {}}},
}

CONFIG = """
tiers:
  - name: light
    model: m8
    context: 8000
    can: [tools, json]
    limits: {requests: 10}
    replicas: [URL0, URL1]
  - name: middle
    model: m70
    context: 32000
    can: [tools, json, reasoning]
    limits: {requests: 10}
    replicas: [URL2]
  - name: heavy
    model: m400
    context: 120000
    can: [tools, json, reasoning, logprobs, vision]
    limits: {requests: 10}
    replicas: [URL3]
policy: {threshold: [0.3, 0.6]}
intents:
  balance: {tier: light, utterances: [what is my balance]}
  contract: {tier: heavy, utterances: [review this contract]}
rules:
  - {when: {keyword: [legal hold]}, tier: heavy}
  - {when: {regex: "^/translate"}, tier: light}
aliases: {gpt-4o: auto, gpt-4o-mini: light}
"""
REPLICAS = ("light-0", "light-1", "middle-0", "heavy-0")

RULES: Mapping[str, Any] = {
    "prove": 0.9,
    "plan": 0.45,
    "borderline": 0.29,
}


def judge(config: Config) -> Any:
    """Real intents and small talk over fixed difficulties, so that the rows can be exact."""
    from tier_router.classify import Verdict
    from tier_router.classify.intents import Route
    from tier_router.classify.native import NativeClassifier
    from tier_router.request import Turn

    native = NativeClassifier(
        [Route(name, each.utterances, each.threshold) for name, each in config.intents.items()]
    )
    levels = FixedClassifier(0.05, RULES)

    class Judge(FixedClassifier):
        def classify(self, turn: Turn) -> Verdict:
            from dataclasses import replace

            verdict = native.classify(turn)
            if verdict.abstain or verdict.courtesy or verdict.continues:
                return verdict
            return replace(verdict, difficulty=levels.classify(turn).difficulty)

    return Judge()


State = Callable[[TierRouter, float], None]


def load(tier: str, requests: int) -> State:
    """So many requests in flight on each replica of a tier."""

    def set_up(router: TierRouter, now: float) -> None:
        for name in REPLICAS:
            if name.startswith(tier):
                for _ in range(requests):
                    router.ledger.opened(name, 1, now)

    return set_up


def down(tier: str) -> State:
    """Every replica of a tier has just failed."""

    def set_up(router: TierRouter, now: float) -> None:
        for name in REPLICAS:
            if name.startswith(tier):
                router.ledger.closed(router.ledger.opened(name, 1, now), Outcome.FAILED, now)

    return set_up


def both(*states: State) -> State:
    """One state after the other."""

    def set_up(router: TierRouter, now: float) -> None:
        for state in states:
            state(router, now)

    return set_up


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    name: str
    messages: tuple[dict[str, Any], ...]
    tier: str
    reasons: str
    options: Mapping[str, Any] = field(default_factory=dict)
    pin: str | None = None
    state: State | None = None
    error: str | None = None
    only_chat: str | None = None
    """Why LangChain has no such message."""

    def body(self) -> dict[str, Any]:
        """The chat request."""
        return {"model": "auto", "messages": list(self.messages), **self.options}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def said(content: Any = "Done.") -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def system(content: str, role: str = "system") -> dict[str, Any]:
    return {"role": role, "content": content}


def text(content: str, kind: str = "text") -> dict[str, Any]:
    return {"type": kind, "text": content}


IMAGE = {"type": "image_url", "image_url": {"url": PIXEL}}
CALL = said("") | {
    "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
    ]
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "10:42"}

# fmt: off
CASES = [
    # content in its shapes
    Case("text", (user("hello there, how is the parcel doing"),), "light", "easy"),
    Case("list of parts", (user([text("where is the parcel")]),), "light", "easy"),
    Case("two parts", (user([text("where is"), text("the parcel")]),), "light", "easy"),
    Case("hard", (user(HARD),), "heavy", "hard"),
    Case("hard in parts", (user([text(HARD)]),), "heavy", "hard"),
    Case("middling", (user("plan a day in Lisbon"),), "middle", "hard"),
    Case("empty", (user(""),), "heavy", "unsure"),
    Case("blank", (user(" \n "),), "heavy", "unsure"),
    Case("null content", (user(None),), "heavy", "unsure", only_chat="content is never null"),
    Case("input_text", (user([text(HARD, "input_text")]),), "heavy", "hard",
         only_chat="no such part"),
    Case("image alone", (user([IMAGE]),), "heavy", "media,needs_vision"),
    Case("image and a question", (user([text("what colour is the parcel"), IMAGE]),), "heavy",
         "easy,needs_vision"),
    Case("image after a hard turn", (user(HARD), said(), user([IMAGE])), "heavy",
         "media,needs_vision"),
    # who speaks
    Case("system and hi", (system("You prove theorems. " * 50), user("hi")), "light", "easy"),
    Case("developer and hi", (system(HARD, "developer"), user("hi")), "light", "easy"),
    Case("system only", (system(HARD),), "heavy", "unsure"),
    Case("developer only", (system(HARD, "developer"),), "heavy", "unsure"),
    Case("reminder around", (user(f"<system-reminder>{HARD}</system-reminder>\nhi"),), "light",
         "easy"),
    Case("reminder alone", (user(HARD), said(), user("<system-reminder>x</system-reminder>")),
         "heavy", "tool_turn,hard"),
    Case("title call", (user(f"Generate a concise 4-word title for this conversation:\n{HARD}"),),
         "light", "housekeeping"),
    Case("title by system prompt", (system("Write a short title for the chat."), user(HARD)),
         "light", "housekeeping"),
    # conversations
    Case("yes after hard", (user(HARD), said("Shall I?"), user("yes, do it")), "heavy",
         "continues"),
    Case("yes after easy", (user("where is the parcel"), said(), user("yes, do it")), "light",
         "continues"),
    Case("yes alone", (user("yes, do it"),), "heavy", "unsure"),
    Case("thanks after hard", (user(HARD), said(), user("thanks!")), "light", "easy"),
    Case("easy after hard", (user(HARD), said(), user("where is the parcel")), "middle", "held"),
    Case("easy after hard and easy", (user(HARD), said(), user("where is the parcel"), said(),
         user("and the box that came with the parcel is where?")), "light", "easy"),
    Case("hard after easy", (user("where is the parcel"), said(), user(HARD)), "heavy", "hard"),
    Case("yes after yes after hard", (user(HARD), said(), user("yes"), said(), user("go on")),
         "heavy", "continues"),
    # tools
    Case("tool turn of a hard question", (user(HARD), CALL, RESULT), "heavy", "tool_turn,hard",
         {"tools": TOOLS}),
    Case("tool turn of an easy one", (user("what time is it in the parcel office"), CALL, RESULT),
         "light", "tool_turn,easy", {"tools": TOOLS}),
    Case("tools offered", (user("what time is it in the parcel office"),), "light", "easy",
         {"tools": TOOLS}),
    Case("tools switched off", (user("where is the parcel"),), "light", "easy",
         {"tools": TOOLS, "tool_choice": "none"}),
    # intents and rules
    Case("intent", (user("What is my balance?"),), "light", "intent"),
    Case("heavy intent", (user("Review this contract"),), "heavy", "intent"),
    Case("rule by keyword", (user("put the parcel on LEGAL HOLD"),), "heavy", "rule"),
    Case("rule by regex", (user(f"/translate {HARD}"),), "light", "rule"),
    # pins
    Case("pin by model", (user("hi"),), "heavy", "pinned", {"model": "heavy"}),
    Case("pin by upstream model", (user(HARD),), "light", "pinned", {"model": "m8"}),
    Case("pin by alias", (user(HARD),), "light", "pinned", {"model": "gpt-4o-mini"}),
    Case("alias of auto", (user(HARD),), "heavy", "hard", {"model": "gpt-4o"}),
    Case("pin by header", (user("hi"),), "middle", "pinned", pin="middle"),
    Case("header over model", (user("hi"),), "middle", "pinned", {"model": "heavy"}, "middle"),
    Case("unknown tier", (user("hi"),), "", "", pin="huge", error="no tier or model named `huge`"),
    # needs
    Case("json", (user("where is the parcel"),), "light", "easy", {"response_format": SCHEMA}),
    Case("log-probabilities", (user("where is the parcel"),), "heavy", "easy,needs_logprobs",
         {"logprobs": True}),
    Case("reasoning asked for", (user("where is the parcel"),), "middle", "easy,needs_reasoning",
         {"reasoning_effort": "high"}),
    Case("reasoning declined", (user("where is the parcel"),), "light", "easy",
         {"reasoning_effort": "none"}),
    Case("long prompt", (user("parcel " * 8_000),), "middle", "easy,needs_context"),
    Case("longer prompt", (user("parcel " * 40_000),), "heavy", "easy,needs_context"),
    Case("much output", (user("where is the parcel"),), "light", "easy", {"max_tokens": 4_000}),
    Case("several choices", (user("where is the parcel"),), "light", "easy", {"n": 3}),
    Case("too long for all", (user("parcel " * 120_000),), "", "", error="the prompt has about"),
    Case("pasted log and why", (user(f"{LOG}\n\nwhy?"),), "heavy", "unsure"),
    Case("code and a small request", (user(f"rename the function\n{CODE}"),), "light", "easy"),
    # languages
    Case("Chinese thanks", (user("谢谢"),), "light", "easy"),
    Case("Arabic thanks", (user("شكرا"),), "light", "easy"),
    Case("Thai", (user("จงพิสูจน์ว่ารากที่สองของสองเป็นจำนวนอตรรกยะ"),), "heavy", "unsure"),
    Case("emoji", (user("👍"),), "light", "easy"),
    # load
    Case("borderline, middle idle", (user("a borderline parcel"),), "middle",
         "easy,load_up", state=load("light", 9)),
    Case("borderline, all idle", (user("a borderline parcel"),), "light", "easy"),
    Case("middling, middle busy", (user("plan a day in Lisbon"),), "middle", "hard",
         state=load("middle", 5)),
    Case("light full", (user("where is the parcel"),), "middle", "easy,spilled",
         state=load("light", 10)),
    Case("all full", (user("where is the parcel"),), "light", "easy",
         state=both(load("light", 10), load("middle", 10), load("heavy", 10))),
    Case("light down", (user("where is the parcel"),), "middle", "easy,tier_down",
         state=down("light")),
    Case("heavy down", (user(HARD),), "middle", "hard,tier_down", state=down("heavy")),
    Case("two down", (user(HARD),), "light", "hard,tier_down",
         state=both(down("heavy"), down("middle"))),
    Case("all down", (user("hi"),), "", "", error="no replica is up",
         state=both(down("light"), down("middle"), down("heavy"))),
    Case("pinned and down", (user("hi"),), "", "", pin="heavy", state=down("heavy"),
         error="heavy"),
]
# fmt: on


@pytest.fixture(params=CASES, ids=lambda case: case.name.replace(" ", "_"))
def case(request: pytest.FixtureRequest) -> Case:
    """One row."""
    return request.param  # type: ignore[no-any-return]


def written(urls: tuple[str, ...]) -> tuple[str, Config]:
    """The table's configuration with these replicas, as text and read."""
    text = CONFIG
    for index, url in enumerate(urls):
        text = text.replace(f"URL{index}", url)
    return text, parse(text)


@pytest.fixture(scope="session")
def table_text() -> Callable[[tuple[str, ...]], tuple[str, Config]]:
    """What writes the table's configuration."""
    return written


@pytest.fixture
def judge_of() -> Callable[[Config], Any]:
    """What makes the table's classifier."""
    return judge


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fakes() -> AsyncIterator[list[FakeVllm]]:
    """The four replicas."""
    models = ("m8", "m8", "m70", "m400")
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                FakeVllm(model, max_model_len=1 << 20, multimodal=model == "m400")
            )
            for model in models
        ]


@pytest.fixture
def config(fakes: list[FakeVllm]) -> Config:
    """The table's configuration over the four replicas."""
    return written(tuple(fake.url for fake in fakes))[1]


@pytest.fixture(autouse=True, scope="module")
def no_leftovers() -> Iterator[None]:
    """OpenAI's clients leave kept connections to the garbage collector, which would tell some
    later test about them: they are collected here."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
