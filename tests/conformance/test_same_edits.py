"""The same body in, the same body out: what replicas are sent does not depend on the door."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import yaml

from tests.unit.prune.tools import Body, called, chat, retrieved, user
from tier_router import testing
from tier_router.config import Config, parse
from tier_router.router import TierRouter
from tier_router.testing import FakeVllm, FixedClassifier
from tier_router_proxy.sidecar import Sidecar

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

PRETTY = json.dumps([{"id": n, "name": f"row {n}"} for n in range(60)], indent=4)
LONG = json.dumps([{"id": n, "name": f"row {n}"} for n in range(150)], indent=16)
SCHEMA = {"$schema": "x", "type": "object", "title": "T", "properties": {"title": {}}}
TOOL = {"type": "function", "function": {"name": "look", "parameters": SCHEMA}}
ROWS = user("prove which rows there are")

BODIES: dict[str, tuple[Body, set[str]]] = {
    "nothing to do": (chat(user("prove it")), set()),
    "thinking": (chat(user("hello")), {"reasoning"}),
    "fold": (chat(ROWS, called("1", "look", PRETTY)), {"fold"}),
    "schema": (chat(user("prove it"), tools=[TOOL]), {"schema"}),
    "duplicates": (
        chat(ROWS, called("1", "look", PRETTY), called("2", "look", PRETTY)), {"fold", "dupes"},
    ),
    "passages": (chat(user(retrieved("Prove what a Clarinet is!"))), {"rag"}),
    "all": (
        chat(
            {"role": "system", "content": "You know music."},
            user("hello"), called("1", "look", PRETTY), user(retrieved("What is a Clarinet?")),
            tools=[TOOL],
        ),
        {"reasoning", "fold", "schema", "rag"},
    ),
    "a mark": (chat(user("prove <!-- keep -->"), called("1", "look", PRETTY)), {"fold"}),
    "fits by pruning": (chat(user("rows?"), called("1", "look", LONG)), {"reasoning", "fold"}),
}  # fmt: skip


def judge(_: Config) -> FixedClassifier:
    return FixedClassifier(0.1, {"rove": 0.9})


@pytest.fixture(scope="module")
def fakes() -> Iterator[list[FakeVllm]]:
    fakes = [FakeVllm("m8"), FakeVllm("m70")]
    with testing.running(*fakes):
        yield fakes


@pytest.fixture
def config(fakes: list[FakeVllm]) -> Config:
    for fake in fakes:
        fake.requests.clear()
    tails = {tier: {"template": "tail"} for tier in ("light", "heavy")}
    written = {
        "tiers": [
            {"name": "light", "model": "m8", "replicas": [fakes[0].url], "context": 2_400},
            {"name": "heavy", "model": "m70", "replicas": [fakes[1].url], "context": 60_000},
        ],
        "load": {"poll": False},
        "server": {"port": 0},
        "pruning": {
            "mode": "on", "holdout": 0, "budget_ms": 5_000, "tiers": tails,
            "steps": {"rag": "on"}, "promote": {"unproven": ["rag"]},
        },
    }  # fmt: skip
    return parse(yaml.safe_dump(written))


def what(body: Any, tier: str) -> dict[str, Any]:
    """What of a body is the same whatever client wrote it down."""
    return {
        "tier": tier,
        "said": [(each["role"], each.get("content") or "") for each in body["messages"]],
        "tools": body.get("tools"),
        "thinking": body.get("chat_template_kwargs"),
    }


def arrived(fakes: list[FakeVllm]) -> dict[str, Any]:
    (found,) = [
        what(json.loads(each.raw), tier)
        for tier, fake in zip(("light", "heavy"), fakes, strict=True)
        for each in fake.requests
        if each.route == "/v1/chat/completions"
    ]
    return found


@pytest.fixture(params=sorted(BODIES))
def case(request: pytest.FixtureRequest, config: Config) -> tuple[Body, dict[str, Any]]:
    """A body, and what the core makes of it."""
    body, steps = BODIES[request.param]
    router = TierRouter(config, judge)
    view = router.view(body)
    trimming = router.trimming(view, body)
    assert trimming is not None
    decision = router.decide(view, trimming=trimming)
    pruned = trimming.to(decision)
    assert {edit.step for edit in pruned.plan.sent} == steps
    assert pruned.plan.fits == (request.param == "fits by pruning")
    return copy.deepcopy(body), what({**body, **pruned.changes}, decision.tier)


async def test_the_sidecar(
    case: tuple[Body, dict[str, Any]], config: Config, fakes: list[FakeVllm]
) -> None:
    body, expected = case
    async with (
        Sidecar(config, judge) as sidecar,
        httpx.AsyncClient(base_url=sidecar.url, trust_env=False, timeout=20) as http,
    ):
        answer = await http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200
    assert arrived(fakes) == expected


async def test_langchain(
    case: tuple[Body, dict[str, Any]], config: Config, fakes: list[FakeVllm]
) -> None:
    pytest.importorskip("langchain_openai", reason="the extra `langchain` is not installed")
    from langchain_core.messages import convert_to_messages

    from tier_router.langchain import ChatTierRouter

    body, expected = case
    model = ChatTierRouter(config=config, classifier=judge)
    options = {"tools": body["tools"]} if "tools" in body else {}
    await model.ainvoke(convert_to_messages(body["messages"]), **options)
    assert arrived(fakes) == expected


@pytest.mark.filterwarnings("ignore")  # LiteLLM's own, and those of what it imports
@pytest.mark.parametrize("how", ["asynchronous", "synchronous"])
async def test_litellm(
    case: tuple[Body, dict[str, Any]], config: Config, fakes: list[FakeVllm], how: str
) -> None:
    pytest.importorskip("litellm", reason="the extra `litellm` is not installed")
    from litellm import Router

    from tier_router.cli.litellm_config import document
    from tier_router.litellm import install

    body, expected = case
    router = Router(model_list=document(config)["model_list"], num_retries=0)
    install(router, TierRouter(config, judge))
    call: Callable[..., Any] = router.acompletion
    if how == "synchronous":
        call = _in_a_thread(router.completion)
    await call(**body)
    assert arrived(fakes) == expected


def _in_a_thread(call: Callable[..., Any]) -> Callable[..., Any]:
    async def called_there(**body: Any) -> Any:
        return await asyncio.to_thread(call, **body)

    return called_there
