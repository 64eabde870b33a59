"""Whatever a body holds, a path answers it or refuses it; nothing fails."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sidecar.scripted import Asked, json_answer, scripted
from tier_router_proxy.doors import DOORS

FIELDS = ["messages", "input", "prompt", "query", "documents", "tokens", "text_1", "system",
          "instructions", "tools", "previous_response_id", "stream", "max_tokens", "n",
          "priority", "request_id", "content", "role", "type", "text", "output"]  # fmt: skip
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False),
                    st.sampled_from(["", "x", "user", "system", "tool_result", "resp_1"]),
                    st.text(max_size=10))  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    ),
    max_leaves=12,
)
BODIES = st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=6)


async def fine(asked: Asked) -> AsyncIterator[bytes]:
    """An upstream that takes everything, and keeps no response."""
    status = b"404 Not Found" if asked.method == "GET" else b"200 OK"
    yield json_answer(b'{"id": "x"}', status)


@pytest.fixture
async def anything(stage: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with scripted(fine) as upstream:
        tiers = [
            {"name": "t", "model": "m", "replicas": [upstream.url]},
            {"name": "v", "model": "e", "replicas": [upstream.url], "can": ["embeddings"]},
        ]
        yield await stage.serve(tiers=tiers)


@pytest.mark.parametrize("path", [*(path.decode() for path in DOORS), "/v1/tier/decision"])
async def test_no_body_is_a_fault_of_ours(anything: httpx.AsyncClient, path: str) -> None:
    bodies: list[Any] = []

    @settings(
        max_examples=30, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(BODIES)
    def collect(body: Any) -> None:
        bodies.append(body)

    collect()
    for body in bodies:
        answer = await anything.post(path, content=json.dumps(body))
        assert answer.status_code in (200, 400, 404), (body, answer.text)
        if answer.status_code != 200:
            assert answer.json()["error"]["message"]
