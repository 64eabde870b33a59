"""OpenTelemetry spans, as a collector gets them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tier_router.config import parse
from tier_router.errors import ConfigError

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="no OpenTelemetry here")
from tests.sidecar.collector import Collector, collecting, said

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "a=1"}


@pytest.fixture
async def collector(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Collector]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    async with collecting() as found:
        yield found


async def spans(stage: Any, collector: Collector, number: int) -> list[Any]:
    """The spans, once the sidecar has ended."""
    await stage.http.aclose()
    await stage.sidecar.stop(1.0)
    assert len(collector.spans) == number
    return collector.spans


async def test_a_request_is_a_child_span_and_its_replica_gets_one_below(
    stage: Any, collector: Collector
) -> None:
    await stage.serve(server={"otel": {"endpoint": collector.url}})
    answer = await stage.ask("please tell nobody", headers=TRACEPARENT)
    usage = answer.json()["usage"]
    (span,) = await spans(stage, collector, 1)
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
    assert span.name == "chat auto"
    assert 0 < span.start_time_unix_nano < span.end_time_unix_nano
    told = said(span)
    assert told["gen_ai.operation.name"] == "chat"
    assert told["gen_ai.request.model"] == "auto"
    assert told["gen_ai.response.model"] == "m8"
    assert told["gen_ai.usage.input_tokens"] == usage["prompt_tokens"]
    assert told["gen_ai.usage.output_tokens"] == usage["completion_tokens"]
    assert told["tier_router.tier"] == "light"
    assert told["tier_router.replica"] == answer.headers["x-tier-router-replica"]
    assert told["tier_router.reasons"] == answer.headers["x-tier-router-reason"]
    assert (told["tier_router.outcome"], told["http.response.status_code"]) == ("done", 200)
    (upstream,) = [
        request for fake in stage.fakes for request in fake.requests if request.method == "POST"
    ]
    assert upstream.header("traceparent") == f"00-{TRACE}-{span.span_id.hex()}-01"
    assert upstream.header("tracestate") == "a=1"
    assert collector.paths == ["/v1/traces"]
    assert collector.services == {"tier-router"}
    assert b"nobody" not in collector.raw


async def test_a_stream_and_a_failure_say_so(stage: Any, collector: Collector) -> None:
    await stage.serve(server={"otel": {"endpoint": collector.url}})
    await stage.ask(stream=True)
    for fake in stage.fakes:
        await fake.stop()
    refused = await stage.ask()
    streamed, failed = await spans(stage, collector, 2)
    assert said(streamed)["gen_ai.request.stream"] is True
    assert said(streamed)["tier_router.time_to_first_token"] > 0
    assert streamed.status.code == 0
    told = said(failed)
    assert told["error.type"] == told["tier_router.outcome"] == refused.json()["error"]["code"]
    assert told["http.response.status_code"] == refused.status_code
    assert told["tier_router.attempts"] >= 2
    assert failed.status.code == 2


async def test_without_a_collector_the_callers_context_passes(stage: Any) -> None:
    await stage.serve(server={"otel": {"endpoint": ""}})
    await stage.ask(headers=TRACEPARENT)
    (upstream,) = [
        request for fake in stage.fakes for request in fake.requests if request.method == "POST"
    ]
    assert upstream.header("traceparent") == TRACEPARENT["traceparent"]


async def test_a_collector_that_is_away_fails_no_request(stage: Any, collector: Collector) -> None:
    gone = collector.url.rpartition(":")[0] + ":9"
    await stage.serve(server={"otel": {"endpoint": gone}})
    assert (await stage.ask()).status_code == 200
    await spans(stage, collector, 0)


def test_a_collector_is_a_url() -> None:
    text = (
        "tiers: [{name: a, model: m, replicas: [http://a:1]}]\n"
        "server: {otel: {endpoint: collector:4318}}\n"
    )
    with pytest.raises(ConfigError, match=r"config:2 server\.otel\.endpoint: .*http://"):
        parse(text)
