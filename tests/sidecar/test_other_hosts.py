"""A tier on a host that speaks OpenAI's API and is not vLLM."""

import json
from typing import Any

import openai
import pytest
import yaml

from tests.sidecar.conftest import fixed
from tests.sidecar.openai_host import CARD, KEY, OpenAIHost
from tests.sidecar.scripted import scripted
from tier_router.config import Config, Cost, parse
from tier_router.errors import ConfigError
from tier_router.request import Need
from tier_router_proxy.sidecar import Sidecar

CHAT = "/v1/chat/completions"


def written(stage: Any, url: str, **more: Any) -> Config:
    """A light tier of ours, and a heavy one far away whose key is in the environment."""
    heavy = {"name": "heavy", "model": CARD["id"], "kind": "openai", "replicas": [url],
             "api_key": "${FAR_KEY}", **more.pop("tier", {})}  # fmt: skip
    light = {"name": "light", "model": "m8", "replicas": [stage.light[0].url]}
    text = yaml.safe_dump(
        {"tiers": [light, heavy], "server": {"port": 0, "api_keys": ["ours"]}, **more}
    )
    return parse(text, env={"FAR_KEY": KEY})


def client_of(sidecar: Sidecar) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{sidecar.url}/v1", api_key="ours", max_retries=0)


async def test_the_contract(stage: Any, eventually: Any) -> None:
    """Key, exact model, prices, abilities, fallbacks; and nothing that only vLLM knows."""
    host = OpenAIHost()
    async with scripted(host) as server:
        config = written(stage, f"{server.url}/v1", tier={"can": "auto"}, load={"stamp": -5})
        async with Sidecar(config, fixed) as sidecar, client_of(sidecar) as client:
            tier = lambda: sidecar.router.config.tiers[1]  # noqa: E731
            await eventually(lambda: tier().context is not None)
            assert tier().context == CARD["context_length"]
            assert tier().cost == Cost(input=0.27, output=1.1)
            assert Need.TOOLS in tier().can
            assert not tier().can & {Need.JSON, Need.VISION}
            asked: Any = [{"role": "user", "content": "prove it"}]
            raw = await client.chat.completions.with_raw_response.create(
                model="heavy",
                messages=asked,
                extra_body={"fallback_models": ["gpt-5"], "priority": 3},
                extra_headers={"x-vllm-priority": "2"},
            )
            assert raw.headers["x-tier-router-replica"] == "heavy-0"
            assert raw.parse().choices[0].message.content == "four"
            stream = await client.chat.completions.create(model="auto", messages=asked, stream=True)
            pieces = [chunk.choices[0].delta.content or "" async for chunk in stream]
            assert "".join(pieces) == "four"
    assert host.bodies[0]["fallback_models"] == ["gpt-5"], "unknown fields are not ours to strip"
    assert host.bodies[0]["model"] == CARD["id"]
    assert host.strange == []
    assert {asked.target for asked in server.asked} == {"/v1/models", "/v1/chat/completions"}
    assert all("ours" not in str(asked.headers) for asked in server.asked)


async def test_a_limit_over_there_goes_to_another_tier(stage: Any) -> None:
    host = OpenAIHost()
    host.limited = True
    async with scripted(host) as server:
        config = written(stage, server.url, load={"poll": False})
        async with Sidecar(config, fixed) as sidecar, client_of(sidecar) as client:
            raw = await client.chat.completions.with_raw_response.create(
                model="auto", messages=[{"role": "user", "content": "prove it"}]
            )
            assert raw.headers["x-tier-router-tier"] == "light"
            assert raw.headers["x-tier-router-reason"].endswith("failover")
            assert sidecar.router.pressures()["heavy-0"] >= 1.0, "it is full until Retry-After"


@pytest.mark.parametrize(
    ("suffix", "base"),
    [("", "/v1"), ("/", "/v1"), ("/v1", "/v1"), ("/openai/v1/", "/openai/v1"),
     ("/v1beta/openai", "/v1beta/openai")],
)  # fmt: skip
async def test_the_url_is_the_base_that_clients_are_given(
    stage: Any, suffix: str, base: str
) -> None:
    host = OpenAIHost(base)
    async with scripted(host) as server:
        config = written(stage, server.url + suffix, load={"poll": False})
        async with Sidecar(config, fixed) as sidecar, client_of(sidecar) as client:
            told = await client.chat.completions.create(
                model="heavy", messages=[{"role": "user", "content": "x"}]
            )
        assert told.choices[0].message.content == "four"
        assert [asked.target for asked in server.asked] == [f"{base}/chat/completions"]
        assert config.tiers[1].openai_base(config.tiers[1].replicas[0]) == server.url + base
    assert config.tiers[0].openai_base(config.tiers[0].replicas[0]) == f"{stage.light[0].url}/v1"


async def test_what_is_written_comes_before_what_the_host_says(stage: Any, eventually: Any) -> None:
    async with scripted(OpenAIHost()) as server:
        own = {"context": 1_000, "can": ["json"], "cost": {"input": 5, "output": 6}}
        config = written(stage, server.url, tier=own)
        async with Sidecar(config, fixed) as sidecar:
            await eventually(lambda: any(a.target == "/v1/models" for a in server.asked))
            await eventually(lambda: "heavy-0" in sidecar.router._found)
            tier = sidecar.router.config.tiers[1]
    assert (tier.context, tier.can, tier.cost) == (1_000, {Need.JSON}, Cost(input=5, output=6))


async def test_a_wrong_key_is_said_without_it(stage: Any, caplog: Any, eventually: Any) -> None:
    async with scripted(OpenAIHost()) as server:
        config = written(stage, server.url, tier={"api_key": "sk-wrong"})
        async with Sidecar(config, fixed) as sidecar, client_of(sidecar) as client:
            await eventually(lambda: "refuses the tier's API key" in caplog.text)
            with pytest.raises(openai.APIStatusError) as caught:
                await client.chat.completions.create(
                    model="heavy", messages=[{"role": "user", "content": "x"}]
                )
    assert caught.value.status_code == 502, "a 401 would blame the client's own key"
    assert "sk-wrong" not in caplog.text + json.dumps(caught.value.body)


def test_the_kind_is_one_of_two() -> None:
    tier = {"name": "t", "model": "m", "kind": "azure", "replicas": ["http://x"]}
    with pytest.raises(ConfigError, match=r"tiers\[0\].kind: input should be 'vllm' or 'openai'"):
        parse(yaml.safe_dump({"tiers": [tier]}))
