"""The callback on its own: decisions equal the core's, and nothing makes it fail."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("litellm", reason="needs pip install 'tier-router[litellm]'")

from dataclasses import replace

import tier_router.litellm as door
from tests.litellm.tools import chat, decide_through_litellm, router_of
from tier_router import Outcome, TierRouterError, parse
from tier_router.cli.litellm_config import document
from tier_router.litellm import TierCallback
from tier_router.litellm.groups import Servers, group_of
from tier_router.pressure import DOWN

CONFIG = """
tiers:
  - {name: light, model: m8, replicas: [http://l0, http://l1], context: 4000,
     limits: {requests: 2, tokens: 100000}}
  - {name: mid, model: m30, replicas: [http://m0], context: 16000,
     can: [tools, json, logprobs, reasoning, vision]}
  - {name: heavy, model: m70, replicas: [http://h0], context: 32000}
policy: {threshold: [0.5, 0.8]}
aliases: {gpt-4o: auto, small: light}
rules: [{when: {header: {x-plan: gold}}, tier: heavy}, {when: {keyword: [invoice]}, tier: mid}]
"""
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
IMAGE = [{"type": "image_url", "image_url": {"url": "data:,"}}]
TALK = [*chat("Please prove it."), {"role": "assistant", "content": "Shall I?"}, *chat("yes")]

TABLE: list[tuple[dict[str, Any], dict[str, str], tuple[str, ...]]] = [
    ({"messages": chat("hello")}, {}, ()),
    ({"messages": chat("prove it")}, {}, ()),
    ({"messages": TALK}, {}, ()),
    ({"messages": chat("hello"), "tools": [TOOL]}, {}, ()),
    ({"messages": [{"role": "user", "content": IMAGE}]}, {}, ()),
    ({"messages": chat("where is my invoice")}, {}, ()),
    ({"messages": chat("hello")}, {"x-plan": "gold"}, ()),
    ({"messages": chat("hello")}, {"X-Plan": "gold"}, ()),
    ({"messages": chat("hello")}, {"x-tier-router-tier": "mid"}, ()),
    ({"messages": chat("hello"), "model": "small"}, {}, ()),
    ({"messages": chat("hello"), "model": "gpt-4o"}, {}, ()),
    ({"messages": chat("hello"), "model": "m70"}, {}, ()),
    ({"messages": chat("word " * 6000)}, {}, ()),
    ({"messages": chat("hello"), "max_tokens": 1900}, {}, ()),
    ({"messages": chat("hello")}, {}, ("light-0",)),
    ({"messages": chat("hello")}, {}, ("light-0", "light-1")),
    ({"messages": chat("prove it")}, {}, ("heavy-0",)),
    ({"messages": chat("hello")}, {}, ("light-0", "light-1", "mid-0")),
    ({"messages": [{"role": "system", "content": "be kind"}]}, {}, ()),
    ({"messages": chat("hello"), "response_format": {"type": "json_object"}}, {}, ()),
    ({"prompt": "prove it"}, {}, ()),
    ({"prompt": [1, 2, 3]}, {}, ()),
]


@pytest.mark.parametrize(("body", "headers", "down"), TABLE)
async def test_decisions_equal_the_cores(
    body: dict[str, Any], headers: dict[str, str], down: tuple[str, ...]
) -> None:
    through = await decide_through_litellm(router_of(parse(CONFIG)), body, headers, down)
    plain = router_of(parse(CONFIG))
    plain.pressures = lambda: dict.fromkeys(down, DOWN)  # type: ignore[method-assign]
    view = plain.view(body, {name.lower(): value for name, value in headers.items()})
    alone = plain.decide(view)
    assert through is not None
    assert replace(through, pressures={}) == replace(alone, pressures={})


async def test_load_moves_what_is_easy_as_in_the_core() -> None:
    router = router_of(parse(CONFIG))
    leases = [router.ledger.opened(f"light-{n % 2}", 10, 0.0, 1e9) for n in range(4)]
    decision = await decide_through_litellm(router, {"messages": chat("hello")})
    assert decision is not None
    assert (decision.tier, [*decision.reasons]) == ("mid", ["easy", "spilled"])
    for lease in leases:
        router.ledger.closed(lease, Outcome.DONE, 1.0)


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ({"messages": []}, {}),
        ({"messages": "no list"}, {}),
        ({"messages": chat("hello")}, {"x-tier-router-tier": "none such"}),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, {}),
        ({"messages": chat("word " * 90_000)}, {}),
    ],
)
async def test_what_the_core_refuses_is_left_to_litellm(
    body: dict[str, Any], headers: dict[str, str]
) -> None:
    router = router_of(parse(CONFIG))
    with pytest.raises(TierRouterError):
        router.decide(router.view(body, headers))
    assert await decide_through_litellm(router, body, headers) is None


def test_tiers_that_a_group_lacks_are_left_out() -> None:
    config = parse(CONFIG + "intents: {contract: {tier: mid, utterances: [review it]}}\n")
    deployments = [
        d for d in document(config)["model_list"] if d["model_info"]["gpu_tier"] != "mid"
    ]
    group = group_of(map(Servers(config).member, deployments), config, (0.5, 0.8))
    assert group is not None
    assert list(group.config.ladder) == ["light", "heavy"]
    assert group.thresholds == (0.5,)
    assert group.config.intents["contract"].tier == "heavy"
    assert [rule.tier for rule in group.config.rules] == ["heavy", "heavy"]
    assert "m30" not in group.config.pins


def test_servers_are_known_by_their_address() -> None:
    config = parse(CONFIG)
    member = Servers(config).member
    at = {"litellm_params": {"api_base": "http://l1/v1/"}}
    assert member({**at, "model_info": {"id": "a", "gpu_tier": "light"}}).replica == "light-1"
    assert member({**at, "model_info": {"id": "a", "gpu_tier": "heavy"}}).replica == "a"
    assert member({"model_info": {"id": "sha/256 x", "gpu_tier": "light"}}).replica == "sha/256 x"


def _at(url: str, name: str, tier: str = "light") -> dict[str, Any]:
    info = {"id": name, "gpu_tier": tier}
    return {"model_name": "g", "litellm_params": {"api_base": url}, "model_info": info}


async def test_a_deployment_of_an_unknown_tier_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    callback = TierCallback(router_of(parse(CONFIG)))
    healthy = [_at("http://l0", "a"), _at("http://x", "b", "gigantic")]
    for _ in range(3):
        kwargs: dict[str, Any] = {"metadata": {}}
        left = await callback.async_filter_deployments("g", healthy, chat("hello"), kwargs)
        assert left == healthy[:1]
    (said,) = [record.getMessage() for record in caplog.records]
    assert said == (
        "deployments of `g` that say gpu_tier gigantic get no requests: the configuration has the "
        "tiers light, mid, heavy"
    )


async def test_deployments_that_only_litellm_knows_are_counted_too() -> None:
    callback = TierCallback(router_of(parse(CONFIG)))
    ids = ("one/odd id", "two")
    healthy = [_at(f"http://{n}", name) for n, name in enumerate(ids)]
    for n in range(4):
        kwargs: dict[str, Any] = {"metadata": {}}
        (left,) = await callback.async_filter_deployments("g", healthy, chat(f"hello {n}"), kwargs)
        assert left in healthy
    ledger = callback.brain.router.ledger
    assert [ledger.in_flight(name) for name in ids] == [2, 2]


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(max_size=8), one, max_size=3),
    max_leaves=6,
)  # fmt: skip
names = st.sampled_from(
    ["metadata", "litellm_metadata", "proxy_server_request", "extra_headers", "input", "prompt",
     "tools", "max_tokens", "n", "stream", "response_format", "extra_body", "system"]
)  # fmt: skip
CALLBACK = TierCallback(router_of(parse(CONFIG)))
DEPLOYMENTS = document(parse(CONFIG))["model_list"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    messages=anything | st.lists(st.dictionaries(st.sampled_from(["role", "content"]), anything)),
    kwargs=st.none() | st.dictionaries(names, anything),
    healthy=st.lists(st.sampled_from(DEPLOYMENTS), min_size=1, max_size=4, unique_by=id),
)
def test_no_request_makes_it_fail_or_leaves_nothing(
    messages: Any, kwargs: Any, healthy: list[Any]
) -> None:
    left = asyncio.run(CALLBACK.async_filter_deployments("auto", healthy, messages, kwargs))
    assert left
    assert all(each in healthy for each in left)
    assert not CALLBACK._failed_once, "a request, whatever it is, is no fault of ours"


async def test_only_so_many_requests_are_remembered() -> None:
    callback = TierCallback(router_of(parse(CONFIG)))
    callback.brain.visits._most = 10
    for _ in range(50):
        await callback.async_filter_deployments("auto", DEPLOYMENTS, chat("a"), {"metadata": {}})
    assert len(callback.brain.visits) == 10


async def test_a_missing_configuration_is_said_once_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIER_ROUTER_CONFIG", raising=False)
    monkeypatch.delenv("CONFIG_FILE_PATH", raising=False)
    callback = TierCallback()
    for _ in range(3):
        left = await callback.async_filter_deployments("auto", DEPLOYMENTS, chat("a"), {})
        assert left == DEPLOYMENTS
    (said,) = [record.getMessage() for record in caplog.records]
    assert "set TIER_ROUTER_CONFIG, or write one of" in said
    assert str(tmp_path / "tier_router.yaml") in said
    shown = await callback.async_post_call_response_headers_hook({}, None, None)
    assert shown == {"x-tier-router-reason": "unrouted:config_error"}


@pytest.mark.parametrize("where", ["variable", "here", "beside"])
async def test_where_the_configuration_is_looked_for(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIER_ROUTER_CONFIG", raising=False)
    monkeypatch.delenv("CONFIG_FILE_PATH", raising=False)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    if where == "variable":
        (tmp_path / "any.yaml").write_text(CONFIG)
        monkeypatch.setenv("TIER_ROUTER_CONFIG", str(tmp_path / "any.yaml"))
    else:
        (tmp_path / "tier_router.yaml").write_text(CONFIG)
        if where == "here":
            monkeypatch.chdir(tmp_path)
        else:
            monkeypatch.setenv("CONFIG_FILE_PATH", str(tmp_path / "litellm.yaml"))
    assert list(TierCallback().brain.router.config.ladder) == ["light", "mid", "heavy"]


def test_the_instances_are_there_without_a_configuration() -> None:
    assert isinstance(door.callback, TierCallback)
    assert sorted(door.__all__) == sorted(set(door.__all__))
