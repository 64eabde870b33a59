"""The table through every door: equal tiers and equal reasons."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from tier_router.errors import TierRouterError
from tier_router.ledger import Ledger
from tier_router.router import TierRouter
from tier_router.view import PIN_HEADER
from tier_router_proxy.sidecar import Sidecar

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    # connections that a client keeps are open when the loop closes
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def prepare(case: Any, router: TierRouter) -> None:
    """Puts the router's books into the row's state."""
    router.ledger = Ledger(router.config)
    if case.state is not None:
        case.state(router, time.monotonic())


async def test_the_table_has_at_least_sixty_rows(request: pytest.FixtureRequest) -> None:
    rows = [item for item in request.session.items if "test_the_core" in item.name]
    assert len(rows) >= 60 or len(rows) == 0


async def test_the_core(case: Any, config: Any, judge_of: Any) -> None:
    router = TierRouter(config, judge_of)
    prepare(case, router)
    headers = {PIN_HEADER: case.pin} if case.pin else {}
    if case.error:
        with pytest.raises(TierRouterError, match=case.error):
            router.decide(router.view(case.body(), headers))
        return
    decision = router.decide(router.view(case.body(), headers))
    assert (decision.tier, ",".join(decision.reasons)) == (case.tier, case.reasons)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def door() -> AsyncIterator[dict[str, Any]]:
    held: dict[str, Any] = {}
    yield held
    if held:
        await held["http"].aclose()
        await held["sidecar"].stop(0)


@pytest.mark.parametrize("stream", [False, True])
async def test_the_sidecar(
    case: Any, config: Any, judge_of: Any, door: dict[str, Any], stream: bool
) -> None:
    if not door:
        server = config.server.model_copy(update={"port": 0})
        door["sidecar"] = Sidecar(config.model_copy(update={"server": server}), judge_of)
        url = await door["sidecar"].start()
        door["http"] = httpx.AsyncClient(base_url=url, trust_env=False, timeout=20)
    prepare(case, door["sidecar"].router)
    headers = {PIN_HEADER: case.pin} if case.pin else {}
    body = case.body() | {"stream": stream, "max_tokens": case.body().get("max_tokens", 3)}
    answer = await door["http"].post("/v1/chat/completions", json=body, headers=headers)
    if case.error:
        assert case.error in answer.json()["error"]["message"]
        return
    told = answer.headers
    assert (told["x-tier-router-tier"], told["x-tier-router-reason"]) == (case.tier, case.reasons)


async def test_langchain(case: Any, config: Any, judge_of: Any) -> None:
    pytest.importorskip("langchain_openai", reason="the extra `langchain` is not installed")
    from langchain_core.messages import convert_to_messages

    from tier_router.langchain import ChatTierRouter

    if case.only_chat:
        pytest.skip(f"LangChain: {case.only_chat}")
    chat = ChatTierRouter(config=config, classifier=judge_of)
    prepare(case, chat.router)
    options: dict[str, Any] = {"max_tokens": 3, **case.options}
    if case.pin:
        options["tier"] = case.pin
    messages = convert_to_messages(list(case.messages))
    if case.error:
        with pytest.raises(TierRouterError, match=case.error):
            await chat.ainvoke(messages, **options)
        return
    told = (await chat.ainvoke(messages, **options)).response_metadata["tier_router"]
    assert (told["tier"], ",".join(told["reasons"])) == (case.tier, case.reasons)


async def test_litellm(case: Any, config: Any, judge_of: Any) -> None:
    """What the core refuses is left to LiteLLM, which may not be stopped by a callback."""
    pytest.importorskip("litellm", reason="the extra `litellm` is not installed")
    from tests.litellm.tools import decide_through_litellm

    router = TierRouter(config, judge_of)
    prepare(case, router)
    headers = {PIN_HEADER: case.pin} if case.pin else {}
    decision = await decide_through_litellm(router, case.body(), headers)
    if case.error:
        assert decision is None
        return
    assert decision is not None
    assert (decision.tier, ",".join(decision.reasons)) == (case.tier, case.reasons)
