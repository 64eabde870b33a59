"""Odd bodies: answered or refused at once in the shape of the caller's API, and never a fault."""

from __future__ import annotations

import itertools
import json
import logging
import random
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.bodies import FIFTHS, send
from tests.fuzz.mutations import CORPUS, asking
from tests.fuzz.stage import Stage
from tests.sidecar.conftest import fixed
from tier_router import TierRouter
from tier_router.config import parse
from tier_router.decide import Decision
from tier_router.errors import RequestError, TierRouterError
from tier_router_proxy import body
from tier_router_proxy.answers import speaks_anthropic
from tier_router_proxy.body import read, readdressed
from tier_router_proxy.doors import DOORS
from tier_router_proxy.sidecar import Sidecar

KEY = {"authorization": "Bearer ours"}
COUNT = 1_500
CONFIG = parse("""
tiers:
  - {name: light, model: m8, replicas: [http://127.0.0.1:1], context: 8000, can: [tools]}
  - {name: heavy, model: m70, replicas: [http://127.0.0.1:2], context: 32000}
  - {name: vectors, model: bge, replicas: [http://127.0.0.1:3], can: [embeddings]}
""")
KNOWN = ["model", "messages", "input", "prompt", "stream", "n", "max_tokens", "priority", "tools",
         "max_completion_tokens", "max_output_tokens", "system", "instructions", "tool_choice",
         "response_format", "logprobs", "reasoning_effort", "thinking", "modalities", "query",
         "documents", "tokens", "text_1", "chat_template_kwargs", "reasoning", "text",
         "previous_response_id"]  # fmt: skip
INNER = ["role", "content", "type", "text", "tool_calls", "output", "effort", "format"]
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8),
    st.sampled_from([10**30, -(10**30), 10**400, 2**63, 1e308, "user", "auto", "tool", "text",
                     "tool_result", "image_url", "enabled", "json_object", "漢字", "\0"]),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(INNER), inner, max_size=4)
    ),
    max_leaves=15,
)
BODIES = st.dictionaries(st.sampled_from(KNOWN), VALUES, max_size=6)
REAL = st.sampled_from([real for _, real in CORPUS])
PROPERTY = settings(
    max_examples=100, deadline=None, derandomize=True, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


@pytest.fixture(scope="module")
def router() -> TierRouter:
    return TierRouter(CONFIG, fixed)


@pytest.mark.parametrize("look", {door.look for door in DOORS.values()}, ids=lambda f: f.__name__)
def test_a_view_and_a_decision_come_of_any_body_or_an_error_that_names_the_field(
    router: TierRouter, look: Any
) -> None:
    def tried(given_body: dict[str, Any]) -> Decision | RequestError:
        try:
            return router.decide(look(given_body, {}))
        except RequestError as error:
            return error

    @PROPERTY
    @given(REAL, BODIES)
    def hold(real: dict[str, Any], odd: dict[str, Any]) -> None:
        for told in (tried(odd), tried(real | odd)):
            if isinstance(told, Decision):
                assert told.replica
            else:
                assert 400 <= told.status < 500
                assert told.param or told.code in ("context_length_exceeded", "no_capable_tier")

    hold()


@PROPERTY
@given(REAL, BODIES)
def test_whatever_is_read_can_be_written_for_a_replica(real: Any, odd: Any) -> None:
    raw = json.dumps(real | odd).encode()
    try:
        fields = read(raw)
    except TierRouterError:
        # what json writes and JSON does not have
        assert b"NaN" in raw or b"Infinity" in raw or b"\\ud" in raw
        return
    sent = json.loads(readdressed(raw, {"model": "m8"}))
    assert sent == {**json.loads(raw), "model": "m8"}
    assert set(sent) == {*fields, "model"}


RAW = {
    "empty": b"",
    "blanks": b" \n",
    "no object": b"[]",
    "no JSON": b"{",
    "NaN": b'{"messages": NaN}',
    "a lone surrogate": b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
    "not UTF-8": b'{"messages": [{"role": "user", "content": "\xff"}]}',
    "UTF-16": '{"messages": [{"role": "user", "content": "x"}]}'.encode("utf-16"),
    "something behind": b'{"messages": [{"role": "user", "content": "x"}]} x',
    "a number that nobody adds up": b'{"messages": [{}], "input": "x", "prompt": "x", "query": "x",'
    b' "tokens": [], "priority": 1' + b"0" * 400 + b"}",
}


@pytest.mark.parametrize("name", RAW)
@pytest.mark.parametrize("path", [path.decode() for path in DOORS])
def test_what_cannot_be_read_is_refused_in_the_shape_of_the_callers_api(
    running: Sidecar, path: str, name: str
) -> None:
    answer = httpx.post(running.url + path, content=RAW[name], headers=KEY, trust_env=False)
    assert answer.status_code == 400
    told = answer.json()
    assert told["error"]["message"]
    assert answer.headers["x-request-id"]
    if speaks_anthropic(path.encode()):
        assert (told["type"], told["error"]["type"]) == ("error", "invalid_request_error")
        assert told["request_id"] == answer.headers["x-request-id"]
    else:
        assert told["error"]["type"] == "invalid_request_error"


def nested(shape: str, depth: int) -> str:
    """A body with a value in it that is nested so many times."""
    deep, asked = "[" * depth + "]" * depth, '{"role": "user", "content": "x"}'
    if shape == "tool results":
        opening = '{"type": "tool_result", "content": [' * (depth // 2)
        asked = f'{{"role": "user", "content": [{opening}{"]}" * (depth // 2)}]}}'
    elif shape == "tool calls":
        asked += f', {{"role": "assistant", "tool_calls": {deep}}}'
    more = {"an unknown field": f'"x": {deep}, ', "tools": f'"tools": {deep}, '}.get(shape, "")
    return f'{{{more}"messages": [{asked}], "input": [{asked}], "max_tokens": 4}}'


@pytest.mark.parametrize("shape", ["an unknown field", "tools", "tool calls", "tool results"])
def test_a_body_is_nested_too_deeply_or_answered_and_nothing_stays_open(
    running: Sidecar, shape: str
) -> None:
    """Around the depth at which the interpreter gives up, which many layers reach one by one."""
    paths = ("/v1/chat/completions", "/v1/responses", "/v1/tier/decision")
    seen = set()
    with httpx.Client(base_url=running.url, headers=KEY, trust_env=False) as http:
        for path, depth in itertools.product(paths, (5, *range(870, 970), 3000, 100_000)):
            answer = http.post(path, content=nested(shape, depth))
            assert answer.status_code in (200, 400), (depth, answer.text)
            seen.add("deep" in answer.json().get("error", {}).get("message", ""))
        assert seen == {True, False}
        lines = http.get("/metrics").text.splitlines()
    leases = [line for line in lines if line.startswith("tier_router_in_flight_requests{")]
    assert len(leases) == 3
    assert all(line.endswith(" 0.0") for line in leases), leases


def test_a_fault_of_the_routers_own_is_a_500_with_an_id_that_the_log_has_too(
    running: Sidecar, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(raw: bytes) -> dict[str, Any]:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(body, "read", broken)  # what no body is known to do
    with caplog.at_level(logging.ERROR, "tier_router_proxy"):
        url = f"{running.url}/v1/tier/decision"
        answer = httpx.post(url, content=b"{}", headers=KEY, trust_env=False)
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "internal_error"
    assert answer.json()["error"]["type"] == "server_error"
    assert "secret" not in answer.text
    (line,) = [each for each in caplog.records if each.name == "tier_router_proxy"]
    assert answer.headers["x-request-id"] in line.getMessage()
    assert line.exc_info is not None


async def test_a_refusal_has_the_id_that_the_decision_log_has(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    server = CONFIG.server.model_copy(update={"port": 0})
    config = parse(f"{{log: {path}, tiers: [{{name: t, model: m, replicas: ['http://[::1]:1']}}]}}")
    async with (
        Sidecar(config.model_copy(update={"server": server}), fixed) as sidecar,
        httpx.AsyncClient(base_url=sidecar.url, trust_env=False) as http,
    ):
        asked = {"model": "nobody", "messages": [{}]}
        answer = await http.post("/v1/chat/completions", json=asked)
    assert answer.status_code == 404
    (line,) = path.read_text("utf-8").splitlines()
    assert json.loads(line)["id"] == answer.headers["x-request-id"]


def test_the_same_seed_gives_the_same_requests() -> None:
    one, other = random.Random(3), random.Random(3)
    asked = [asking(one) for _ in range(200)]
    assert asked == [asking(other) for _ in range(200)]
    assert len({each.body for each in asked}) > 150


async def test_mutated_bodies_are_answered_at_once_and_nothing_stays_open(tmp_path: Path) -> None:
    async with Stage(tmp_path) as stage:
        result = await send(stage, COUNT, seed=7)
    assert not result.wrong, result.wrong[:5]
    assert result.statuses.total() == COUNT // FIFTHS * FIFTHS
    assert set(result.statuses) > {200, 400}
    assert result.memory[-1] < 2 * result.memory[0]
    assert (result.leases, result.generating) == (0, 0)
