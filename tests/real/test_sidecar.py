"""The sidecar in front of real servers."""

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx

from tests.real.servers import FLAGS, serving
from tier_router.config import Config, parse
from tier_router.testing import FixedClassifier
from tier_router_proxy.sidecar import Sidecar

CHAT = "/v1/chat/completions"


def fixed(_: Config) -> FixedClassifier:
    """A classifier that needs no artefact."""
    return FixedClassifier(0.1)


def config(*urls: str, more: str = "") -> Config:
    replicas = ", ".join(f'"{url}"' for url in urls)
    return parse(
        f"tiers: [{{name: light, model: light, replicas: [{replicas}]}}]\n"
        f"server: {{port: 0}}\n{more}"
    )


def asked(**more: Any) -> dict[str, Any]:
    return {"model": "auto", "messages": [{"role": "user", "content": "hi"}], **more}


async def load_of(http: httpx.AsyncClient, url: str) -> int:
    return int((await http.get(f"{url}/load")).json()["server_load"])


async def test_chats_streams_and_what_is_learned(flagged: Any) -> None:
    async with (
        Sidecar(config(flagged.url), fixed) as sidecar,
        httpx.AsyncClient(base_url=sidecar.url, timeout=60, trust_env=False) as http,
    ):
        plain = await http.post(CHAT, json=asked(max_tokens=8))
        assert plain.status_code == 200
        assert plain.headers["x-tier-router-tier"] == "light"
        assert plain.json()["usage"]["completion_tokens"] == 8
        options = {"stream": True, "stream_options": {"include_usage": True}}
        streamed = await http.post(CHAT, json=asked(max_tokens=8, **options))
        assert streamed.content.endswith(b"data: [DONE]\n\n")
        pace = sidecar.router.paces.of("light")
        assert pace.ttft is not None
        assert pace.gap is not None
        for _ in range(100):
            if sidecar.router.config.tiers[0].context == 2048:
                break
            await asyncio.sleep(0.1)
        else:
            raise AssertionError("the context was not learned")
        too_long = await http.post(CHAT, json=asked() | {
            "messages": [{"role": "user", "content": "word " * 9_000}]})  # fmt: skip
        assert too_long.status_code == 400
        assert too_long.json()["error"]["code"] == "context_length_exceeded"


async def test_a_client_that_leaves_frees_its_place(flagged: Any) -> None:
    async with (
        Sidecar(config(flagged.url), fixed) as sidecar,
        httpx.AsyncClient(base_url=sidecar.url, timeout=60, trust_env=False) as http,
    ):
        body = asked(stream=True, max_tokens=1900, ignore_eos=True)
        async with http.stream("POST", CHAT, json=body) as answer:
            async for _ in answer.aiter_raw():
                assert await load_of(http, flagged.url) >= 1
                break
        left = time.monotonic()
        while await load_of(http, flagged.url):
            assert time.monotonic() - left < 5
            await asyncio.sleep(0.02)


async def test_a_replica_that_is_killed_is_replaced(flagged: Any, folder: Path) -> None:
    with serving(folder, "light", *FLAGS) as victim:
        async with (
            Sidecar(config(victim.url, flagged.url), fixed) as sidecar,
            httpx.AsyncClient(base_url=sidecar.url, timeout=60, trust_env=False) as http,
        ):
            hits = set()
            for number in range(40):
                body = asked(max_tokens=2)
                body["messages"][0]["content"] = f"hi {number}"
                hits.add((await http.post(CHAT, json=body)).headers["x-tier-router-replica"])
            assert hits == {"light-0", "light-1"}
            victim.kill()
            for number in range(40):
                body = asked(max_tokens=2, stream=number % 2 == 0)
                body["messages"][0]["content"] = f"hi {number}"
                answer = await http.post(CHAT, json=body)
                assert answer.status_code == 200, answer.text
                assert answer.headers["x-tier-router-replica"] == "light-1"
