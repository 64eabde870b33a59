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
            assert answer.status_code == 200, await answer.aread()
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


async def test_a_replica_that_is_told_to_end_loses_nothing(flagged: Any, folder: Path) -> None:
    with serving(folder, "light", *FLAGS) as leaver:
        async with (
            Sidecar(config(leaver.url, flagged.url), fixed) as sidecar,
            httpx.AsyncClient(base_url=sidecar.url, timeout=60, trust_env=False) as http,
        ):
            leaver.process.terminate()
            answers = []
            for number in range(120):
                body = asked(max_tokens=4)
                body["messages"][0]["content"] = f"hi {number}"
                answers.append(await http.post(CHAT, json=body))
            assert {answer.status_code for answer in answers} == {200}
            assert {answer.headers["x-tier-router-replica"] for answer in answers} >= {"light-1"}


async def test_easy_requests_pass_the_queue_where_vllm_goes_by_priority(folder: Path) -> None:
    verdicts = {"prove": 0.9}

    def judged(_: Config) -> FixedClassifier:
        return FixedClassifier(0.1, verdicts)

    with serving(folder, "light", *FLAGS, slots=1) as server:
        async with (
            Sidecar(config(server.url, more="load: {stamp: -1, shed: null}\n"), judged) as sidecar,
            httpx.AsyncClient(base_url=sidecar.url, timeout=60, trust_env=False) as http,
        ):
            order: list[str] = []

            async def ask(text: str) -> None:
                body = asked(max_tokens=60, ignore_eos=True)
                body["messages"][0]["content"] = text
                assert (await http.post(CHAT, json=body)).status_code == 200
                order.append(text)

            hard = [asyncio.create_task(ask(f"prove {number}")) for number in range(6)]
            for _ in range(500):
                if await load_of(http, server.url) == len(hard):
                    break
                await asyncio.sleep(0.01)
            await ask("hello")
            await asyncio.gather(*hard)
            assert order.index("hello") < 4, order


async def test_a_switch_for_thinking_reaches_the_template(flagged: Any) -> None:
    async with (
        Sidecar(config(flagged.url), fixed) as sidecar,
        httpx.AsyncClient(base_url=sidecar.url, timeout=60, trust_env=False) as http,
    ):
        said = []
        for thinks in (True, False):
            body = asked(chat_template_kwargs={"enable_thinking": thinks})
            answer = await http.post("/tokenize", json={**body, "model": "light"})
            assert answer.status_code == 200, answer.text
            said.append(answer.json()["count"])
        assert said[1] > said[0], "the empty thought that ends thinking stands in the prompt"
