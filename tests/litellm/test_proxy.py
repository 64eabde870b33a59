"""The callback in the real LiteLLM proxy: its YAML, its process, real sockets."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("litellm", reason="needs pip install 'tier-router[litellm]'")


from tests.litellm.proxy import Proxy, running, staged
from tests.litellm.tools import Stage, chat
from tier_router.testing import BUSY, SlowChunks, Status
from tier_router.testing.thread import in_thread

pytestmark = pytest.mark.litellm

EASY = "What is my balance?"
HARD = "Derive the closed form of the Fibonacci numbers and prove it by induction."
LADDER = {"light": {"context": 4_000, "limits": {"requests": 4, "tokens": 100_000}}}


@pytest.fixture(scope="module")
def behind() -> Iterator[Stage]:
    with in_thread(staged()) as stage:
        yield stage


@pytest.fixture(scope="module")
def door(behind: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """The proxy with the YAML of `tier-router litellm-config`, ours beside it."""
    place = tmp_path_factory.mktemp("proxy")
    (place / "tier_router.yaml").write_text(behind.source(LADDER), "utf-8")
    config = behind.document(
        behind.config(LADDER),
        allowed_fails=100, fallbacks=[{"auto": ["backup"]}], enable_pre_call_checks=True,
        enable_tag_filtering=True,
    )  # fmt: skip
    config["litellm_settings"]["callbacks"].append("prometheus")
    with running(place, config) as proxy:
        yield proxy


@pytest.fixture
def proxy(door: Proxy, behind: Stage) -> Iterator[Proxy]:
    """The proxy, with nothing under way and no fault left."""
    for fake in behind.fakes:
        fake.faults._planned[:] = fake.faults._planned[:2]  # what stands for missing paths
    behind.forget()
    yield door
    end = time.monotonic() + 5
    while open_now(door) and time.monotonic() < end:
        time.sleep(0.1)
    assert not open_now(door), "leases are still open"


def open_now(proxy: Proxy) -> dict[str, float]:
    """Leases by replica, as `/metrics` has them."""
    found = re.findall(
        r'tier_router_in_flight_requests\{replica="([^"]+)",[^}]*\} (\S+)',
        proxy.http.get("/metrics/").text,
    )
    return {replica: float(count) for replica, count in found if float(count)}


BODIES: dict[str, Callable[[str], dict[str, Any]]] = {
    "/v1/chat/completions": lambda text: {"messages": chat(text)},
    "/v1/completions": lambda text: {"prompt": text},
    "/v1/responses": lambda text: {"input": text},
    "/v1/messages": lambda text: {"messages": chat(text), "max_tokens": 20},
}


@pytest.mark.parametrize(("text", "tier"), [(EASY, "light"), (HARD, "heavy")])
@pytest.mark.parametrize("path", list(BODIES))
def test_each_endpoint_goes_to_its_tier_and_says_so(
    proxy: Proxy, behind: Stage, path: str, text: str, tier: str
) -> None:
    answer = proxy.post(path, {"model": "auto", **BODIES[path](text)})
    assert answer.status_code == 200, answer.text
    assert behind.tiers() == {tier: 1}
    assert answer.headers["x-tier-router-tier"] == tier
    assert answer.headers["x-tier-router-replica"] == answer.headers["x-litellm-model-id"]
    assert answer.headers["x-tier-router-reason"] == {"light": "easy", "heavy": "hard"}[tier]
    assert 0 <= float(answer.headers["x-tier-router-difficulty"]) <= 1


def test_a_stream_has_the_headers_too(proxy: Proxy, behind: Stage) -> None:
    body = {"model": "auto", "messages": chat(HARD), "stream": True}
    with proxy.http.stream("POST", "/v1/chat/completions", json=body) as answer:
        assert answer.headers["x-tier-router-tier"] == "heavy"
        lines = [line for line in answer.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    assert json.loads(lines[0].removeprefix("data: "))["choices"]
    assert behind.tiers() == {"heavy": 1}


def test_embeddings_are_served_and_left_to_litellm(proxy: Proxy) -> None:
    answer = proxy.post("/v1/embeddings", {"model": "auto", "input": [HARD]})
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-tier-router-reason"] == "unrouted:embedding"
    assert "x-tier-router-tier" not in answer.headers


def test_the_upstream_gets_no_word_of_ours(proxy: Proxy, behind: Stage) -> None:
    proxy.post("/v1/chat/completions", {"model": "auto", "messages": chat(HARD)})
    (request,) = behind.heavy.requests
    assert b"tier_router" not in request.raw
    assert b"tier-router" not in request.raw


def test_the_header_pins(proxy: Proxy, behind: Stage) -> None:
    body = {"model": "auto", "messages": chat(EASY)}
    answer = proxy.post("/v1/chat/completions", body, {"X-Tier-Router-Tier": "heavy"})
    assert answer.headers["x-tier-router-reason"] == "pinned"
    assert behind.tiers() == {"heavy": 1}


def test_nothing_in_a_body_steers(proxy: Proxy, behind: Stage) -> None:
    pin = {"x-tier-router-tier": "heavy"}
    forged = {
        "tier_router_tier": "heavy", "headers": pin, "tier_router": {"tier": "heavy"},
        "model_group_alias": "heavy", "model_info": {"gpu_tier": "heavy"}, "gpu_tier": "heavy",
    }  # fmt: skip
    body = {"model": "auto", "messages": chat(EASY)}
    for more in (
        {"metadata": forged},
        {"litellm_metadata": forged},
        {"metadata": forged, "litellm_metadata": forged},
        {"proxy_server_request": {"headers": pin, "body": {}}},
        {"headers": pin},
        {"extra_headers": pin},
    ):
        behind.forget()
        answer = proxy.post("/v1/chat/completions", body | more)
        if answer.status_code == 200:  # LiteLLM refuses some of them itself
            assert answer.headers["x-tier-router-reason"] == "easy", more
            assert behind.tiers() == {"light": 1}, more


def test_aliases_pin_what_the_configuration_says(proxy: Proxy, behind: Stage) -> None:
    for name, tier in {
        "gpt-4o": "light",
        "heavy": "heavy",
        "m70": "heavy",
        "light": "light",
    }.items():
        behind.forget()
        answer = proxy.post("/v1/chat/completions", {"model": name, "messages": chat(EASY)})
        assert answer.status_code == 200, answer.text
        assert behind.tiers() == {tier: 1}, name


def test_retries_go_elsewhere_and_the_headers_tell(proxy: Proxy, behind: Stage) -> None:
    for fake in behind.light:
        fake.faults.add(BUSY)
    answer = proxy.post("/v1/chat/completions", {"model": "auto", "messages": chat(EASY)})
    assert answer.status_code == 200
    assert answer.headers["x-litellm-attempted-retries"] == "2"
    assert answer.headers["x-tier-router-tier"] == "heavy"
    assert answer.headers["x-tier-router-reason"] == "easy,tier_down,failover"
    assert behind.served() == {"light-0": 1, "light-1": 1, "heavy-0": 1}
    time.sleep(1.1)  # what was busy counts as full for a second


def test_all_down_falls_back_to_a_foreign_group(proxy: Proxy, behind: Stage) -> None:
    for fake in behind.fakes[:3]:
        fake.faults.add(Status(500), 3)
    answer = proxy.post("/v1/chat/completions", {"model": "auto", "messages": chat(HARD)})
    assert answer.status_code == 200, answer.text
    assert behind.served()["backup-0"] == 1
    assert answer.headers["x-litellm-attempted-fallbacks"] == "1"
    assert answer.headers["x-tier-router-reason"] == "unrouted:other_group"


def test_an_error_leaves_nothing_open(proxy: Proxy, behind: Stage) -> None:
    for fake in behind.fakes:
        fake.faults.add(Status(500), 3)
    answer = proxy.post("/v1/chat/completions", {"model": "auto", "messages": chat(HARD)})
    assert answer.status_code == 500
    assert len(behind.served()) == 4


def test_a_foreign_group_has_no_headers(proxy: Proxy, behind: Stage) -> None:
    answer = proxy.post("/v1/chat/completions", {"model": "backup", "messages": chat(HARD)})
    assert answer.status_code == 200
    assert behind.served() == {"backup-0": 1}
    assert not any(name.startswith("x-tier-router") for name in answer.headers)


def test_the_context_window_moves_a_prompt_up(proxy: Proxy, behind: Stage) -> None:
    before = [*chat("hello"), {"role": "assistant", "content": "word " * 8_000}]
    body = {"model": "auto", "messages": before + chat(EASY)}
    answer = proxy.post("/v1/chat/completions", body)
    assert answer.status_code == 200, answer.text
    assert "needs_context" in answer.headers["x-tier-router-reason"]
    assert behind.tiers() == {"heavy": 1}


def test_load_moves_what_is_easy(proxy: Proxy, behind: Stage) -> None:
    for fake in behind.light:
        fake.faults.add(SlowChunks(0.5), None)
    body = {"model": "auto", "messages": chat(EASY)}
    with ThreadPoolExecutor(12) as pool:
        jobs = [pool.submit(proxy.post, "/v1/chat/completions", body) for _ in range(12)]
        answers = [job.result() for job in jobs]
    assert {answer.status_code for answer in answers} == {200}
    assert behind.served() == {"light-0": 4, "light-1": 4, "heavy-0": 4}
    reasons = [answer.headers["x-tier-router-reason"] for answer in answers]
    assert reasons.count("easy,spilled") == 4


def test_a_client_that_leaves_gives_its_place_back(proxy: Proxy, behind: Stage) -> None:
    for fake in behind.light:
        fake.faults.add(SlowChunks(0.5), 4)
    body = {"model": "auto", "messages": chat(EASY), "stream": True}
    for _ in range(8):
        with proxy.http.stream("POST", "/v1/chat/completions", json=body) as answer:
            next(answer.iter_lines())
    time.sleep(1)
    answer = proxy.post("/v1/chat/completions", body | {"stream": False})
    assert answer.headers["x-tier-router-reason"] == "easy"


def test_prometheus_has_our_series(proxy: Proxy) -> None:
    proxy.post("/v1/chat/completions", {"model": "auto", "messages": chat(EASY)})
    time.sleep(0.5)
    text = proxy.http.get("/metrics/").text
    assert 'tier_router_decisions_total{reason="easy",tier="light"}' in text
    assert 'tier_router_attempts_total{outcome="done",replica="light-' in text


def test_the_models_are_listed(proxy: Proxy) -> None:
    listed = {model["id"] for model in proxy.http.get("/v1/models").json()["data"]}
    assert {"auto", "backup"} <= listed


def test_easy_requests_are_stamped_for_vllms_own_queue(proxy: Proxy, behind: Stage) -> None:
    for text, sent in ((EASY, "-1"), (HARD, None)):
        proxy.post("/v1/chat/completions", {"model": "auto", "messages": chat(text)})
        asked = [fake.requests[-1] for fake in behind.fakes if fake.requests]
        assert [dict(each.headers).get("x-vllm-priority") for each in asked] == [sent]
        behind.forget()


def test_tiers_that_match_no_deployment_are_said_at_the_start(
    behind: Stage, tmp_path: Path
) -> None:
    behind.forget()
    config = behind.document(behind.config(LADDER))
    for deployment in config["model_list"]:
        deployment["model_info"]["gpu_tier"] = "tiny"
    (tmp_path / "tier_router.yaml").write_text(behind.source(LADDER), "utf-8")
    with running(tmp_path, config) as proxy:
        end = time.monotonic() + 20
        while (said := proxy.log.read_text("utf-8")).count("model_info.gpu_tier") == 0:
            assert time.monotonic() < end, said[-2000:]
            time.sleep(0.1)
        assert "the configuration has the tiers light, heavy" in said
        assert "model_info.gpu_tier of the deployments says tiny" in said
        asked = {each.path for fake in behind.fakes for each in fake.requests}
        assert asked <= {"/v1/models"}  # LiteLLM itself looks at them; no request has been sent
