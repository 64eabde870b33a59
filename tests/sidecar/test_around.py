"""What the sidecar answers for itself: models, health, metrics, keys, errors."""

import asyncio
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

CHAT = "/v1/chat/completions"


async def test_models_are_auto_the_ladder_and_the_aliases(stage: Any) -> None:
    http = await stage.serve(aliases={"gpt-4o": "auto"})
    listed = (await http.get("/v1/models")).json()
    assert [model["id"] for model in listed["data"]] == ["auto", "light", "heavy", "gpt-4o"]
    assert (await http.get("/v1/models/heavy")).json()["id"] == "heavy"
    missing = await http.get("/v1/models/nope")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


async def test_health_readiness_and_head(stage: Any) -> None:
    http = await stage.serve()
    assert (await http.get("/health")).json() == {"status": "ok"}
    ready = await http.get("/ready")
    assert ready.json() == {"status": "ok", "tiers": {"light": 0.0, "heavy": 0.0}}
    head = await http.head("/health")
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", "15")


async def test_metrics_tell_what_happened(stage: Any) -> None:
    http = await stage.serve()
    await stage.ask()
    await stage.ask("prove it", stream=True)
    await stage.ask(model="nope")
    families = {
        family.name: family
        for family in text_string_to_metric_families((await http.get("/metrics")).text)
    }

    def value(name: str, **labels: str) -> float:
        samples = families[name].samples
        found = [s.value for s in samples if labels.items() <= s.labels.items() and
                 s.name in (name, f"{name}_total", f"{name}_count")]  # fmt: skip
        return sum(found)

    assert value("tier_router_requests", tier="light", reason="easy", status="200") == 1
    assert value("tier_router_requests", tier="heavy", reason="hard", status="200") == 1
    assert value("tier_router_errors", code="model_not_found") == 1
    assert value("tier_router_time_to_first_token_seconds", tier="heavy") == 1
    assert value("tier_router_request_seconds", tier="light") == 1
    assert value("tier_router_decision_seconds") == 2
    assert value("tier_router_replica_up", replica="light-0") == 1
    assert value("tier_router_in_flight_requests") == 0


@pytest.mark.parametrize(
    ("authorization", "status", "told"),
    [
        (None, 401, "Bearer KEY"),
        ("Bearer wrong", 401, "wrong API key"),
        ("Basic one", 401, "wrong API key"),
        ("Bearer two", 200, None),
    ],
)
async def test_keys(stage: Any, authorization: str | None, status: int, told: str | None) -> None:
    http = await stage.serve(server={"api_keys": ["one", "two"]})
    headers = {"authorization": authorization} if authorization else {}
    answer = await stage.ask(headers=headers)
    assert answer.status_code == status
    if told:
        error = answer.json()["error"]
        assert (error["code"], error["type"]) == ("invalid_api_key", "authentication_error")
        assert told in error["message"]
        assert sum(stage.served().values()) == 0
    else:
        sent = dict(next(r for fake in stage.light for r in fake.requests).headers)
        assert "authorization" not in sent, "our keys never go upstream"
    assert (await http.get("/v1/models", headers=headers)).status_code == status
    assert (await http.get("/health")).status_code == 200


@pytest.mark.parametrize(
    ("body", "status", "code", "told"),
    [
        (b"", 400, "invalid_request", "it is empty"),
        (b"{", 400, "invalid_request", "not JSON"),
        (b'{"messages": [}', 400, "invalid_request", "byte 14"),
        (b"[1]", 400, "invalid_request", "must be a JSON object"),
        (b"[" * 100_000, 400, "invalid_request", ""),
        (b'{"messages": "hi"}', 400, "invalid_request", "`messages` must be a list"),
        (b'{"prompt": "hi"}', 400, "invalid_request", "must have `messages`"),
        (b'{"messages": [{"role": "user", "content": 5}]}', 400, "invalid_request", "must be a li"),
        (b'{"model": "nope", "messages": [{"role": "user", "content": "x"}]}', 404,
         "model_not_found", "auto, light, heavy"),
        (b'{"model": "nope", "messages": [{"role": "user", "content": "x"}], "stream": true}', 404,
         "model_not_found", "auto, light, heavy"),
    ],
)  # fmt: skip
async def test_a_bad_body_is_answered_in_openais_shape(
    stage: Any, body: bytes, status: int, code: str, told: str
) -> None:
    http = await stage.serve()
    answer = await http.post(CHAT, content=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, code)
    assert told in error["message"]
    assert set(error) == {"message", "type", "param", "code"}
    assert answer.headers["x-request-id"]
    assert (await stage.ask()).status_code == 200, "the process lives on"


async def test_an_unknown_tier_in_the_header(stage: Any) -> None:
    await stage.serve()
    answer = await stage.ask(headers={"x-tier-router-tier": "huge"})
    assert answer.status_code == 404
    assert answer.json()["error"]["param"] == "x-tier-router-tier"


async def test_a_prompt_that_is_too_long_for_every_tier(stage: Any) -> None:
    http = await stage.serve()
    config = stage.config()
    tiers = tuple(tier.model_copy(update={"context": 1000}) for tier in config.tiers)
    await stage.sidecar.reload(config.model_copy(update={"tiers": tiers}))
    answer = await stage.ask("word " * 5_000)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert "1000 tokens" in answer.json()["error"]["message"]
    assert (await http.get("/v1/models/auto")).json()["max_model_len"] == 1000


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nope", 404), ("GET", CHAT, 405), ("POST", "/health", 405), ("GET", "/", 404)],
)
async def test_unknown_paths_and_methods(stage: Any, method: str, path: str, status: int) -> None:
    http = await stage.serve()
    answer = await http.request(method, path)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]
    assert ("allow" in answer.headers) == (status == 405)


async def test_limits(stage: Any) -> None:
    http = await stage.serve(server={"body_limit": "10KB", "header_limit": "2KB"})
    answer = await stage.ask("word " * 5_000)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")
    answer = await http.get("/health", headers={"x-long": "x" * 5_000})
    assert answer.status_code == 431
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert (await stage.ask()).status_code == 200


async def test_many_at_once(stage: Any) -> None:
    await stage.serve()
    answers = await asyncio.gather(*(stage.ask(f"question {n}") for n in range(100)))
    assert [answer.status_code for answer in answers] == [200] * 100
    assert stage.sidecar.router.ledger.in_flight("light-0") == 0
    assert stage.sidecar.router.ledger.in_flight("light-1") == 0
