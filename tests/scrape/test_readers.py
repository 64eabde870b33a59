"""Pages and headers as vLLM 0.32 and older ones write them, and as nobody should."""

from __future__ import annotations

import math

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from tier_router.pressure import Reading
from tier_router.scrape.gauges import gauges_of
from tier_router.scrape.header import reading_of_headers, reading_of_report
from tier_router.scrape.pages import Card, load_of, models_of, version_of
from tier_router.testing import FakeVllm

MODELS = (
    b'{"object":"list","data":[{"id":"light","object":"model","created":1796094855,'
    b'"owned_by":"vllm","root":"models/tiny-light","parent":null,"max_model_len":2048,'
    b'"permission":[]},{"id":"tiny-light","object":"model","created":1796094855,'
    b'"owned_by":"vllm","root":"models/tiny-light","parent":null,"max_model_len":2048}]}'
)
METRICS = b"""\
# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.79609472353e+09
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="light"} 3.0
vllm:num_requests_running{engine="1",model_name="light"} 4.0
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="light"} 2.0
vllm:num_requests_waiting{engine="1",model_name="light"} 5.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="light",reason="capacity"} 2.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="light"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="light"} 0.75
vllm:request_success_total{engine="0",finished_reason="stop",model_name="light"} 2.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="light"} 5.0
"""
OLD = b"""\
vllm:num_requests_waiting{model_name="light"} 7
vllm:num_requests_swapped{model_name="light"} 9
vllm:gpu_cache_usage_perc{model_name="light"} 0.5 1796094855000
"""


def test_load() -> None:
    assert load_of(b'{"server_load":6}') == 6
    assert load_of(b'{"server_load":0}') == 0


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"{}", b'{"server_load":null}', b'{"server_load":"6"}',
     b'{"server_load":-1}', b'{"server_load":true}', b'{"server_load":1e999}', b"\xff\xfe",
     b"[" * 100_000],
)  # fmt: skip
def test_what_is_no_load_is_none_and_not_zero(content: bytes) -> None:
    assert load_of(content) is None


def test_models_and_their_context() -> None:
    card = Card(2048, "models/tiny-light")
    assert models_of(MODELS) == {"light": card, "tiny-light": card}
    assert models_of(b'{"data":[]}') == {}
    assert models_of(b'{"data":[{"id":"x","max_model_len":"long"},7,{"id":7}]}') == {"x": Card()}
    assert models_of(b'{"detail":"Not Found"}') is None


def test_version() -> None:
    assert version_of(b'{"version":"0.32.0"}') == "0.32.0"
    assert version_of(b'{"version":32}') is None


def test_counts_are_summed_over_engines_and_of_shares_the_worst_counts() -> None:
    gauges = gauges_of(METRICS)
    assert (gauges.running, gauges.waiting, gauges.kv) == (7, 7, 0.75)
    assert gauges.done == 7
    assert gauges.born == 1796094723.53
    assert gauges.reading == Reading(waiting=7, kv=0.75)


def test_the_older_names() -> None:
    assert gauges_of(OLD).reading == Reading(waiting=7, kv=0.5)


def test_where_both_names_are_printed_the_worse_counts() -> None:
    both = b'vllm:gpu_cache_usage_perc{a="b"} 0.5\nvllm:kv_cache_usage_perc{a="b"} 0.4\n'
    assert gauges_of(both).kv == 0.5


def test_a_missing_metric_is_none_and_not_zero() -> None:
    only = gauges_of(b"vllm:num_requests_waiting 2\n")
    assert only.reading == Reading(waiting=2, kv=None)
    assert gauges_of(b"").reading == Reading()
    unusable = b"vllm:num_requests_waiting NaN\nvllm:kv_cache_usage_perc -1\n"
    assert gauges_of(unusable).reading == Reading()


def test_a_name_with_braces_and_quotes_in_it() -> None:
    line = b'vllm:num_requests_waiting{engine="0",model_name="a}\\"b{ 9"} 4.0\n'
    assert gauges_of(line).waiting == 4


@given(st.text() | st.binary().map(lambda data: data.decode("latin-1")))
def test_any_text_is_read_without_a_failure(text: str) -> None:
    content = text.encode("utf-8", "surrogatepass")
    for prefix in (b"", b"vllm:num_requests_waiting", b"vllm:kv_cache_usage_perc{"):
        gauges_of(prefix + content)
    reading_of_report(text)
    assert load_of(content) is None or math.isfinite(load_of(content) or 0)
    models_of(content)


VALUES = st.floats(0, 1e9).map(lambda value: round(value, 3))
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=12)


@given(st.lists(st.tuples(NAMES, VALUES), max_size=6))
def test_it_agrees_with_prometheus_own_parser(samples: list[tuple[str, float]]) -> None:
    def escaped(name: str) -> str:
        return name.replace("\\", "\\\\").replace('"', '\\"')

    page = "".join(
        f'vllm:num_requests_waiting{{engine="{n}",model_name="{escaped(name)}"}} {value}\n'
        for n, (name, value) in enumerate(samples)
    )
    families = text_string_to_metric_families(page)
    theirs = [sample.value for family in families for sample in family.samples]
    assert gauges_of(page.encode()).waiting == (sum(theirs) if theirs else None)


async def test_the_pages_of_a_running_server(client: object, fake: FakeVllm) -> None:
    fetch = client.meet([fake.url])  # type: ignore[attr-defined]
    assert load_of((await fetch(fake.url + "/load", {}))[1]) == 0
    assert models_of((await fetch(fake.url + "/v1/models", {}))[1])["m8"].context == 4096
    gauges = gauges_of((await fetch(fake.url + "/metrics", {}))[1])
    assert gauges.reading == Reading(waiting=0, kv=0)
    assert gauges.born is not None


@pytest.mark.parametrize(
    "report",
    [
        'JSON {"named_metrics": {"num_requests_waiting": 3.0, "kv_cache_usage_perc": 0.5}}',
        'json {"named_metrics":{"kv_cache_usage_perc":0.5,"num_requests_waiting":3}}',
        '{"named_metrics": {"num_requests_waiting": 3.0, "gpu_cache_usage_perc": 0.5}}',
        "TEXT named_metrics.num_requests_waiting=3.0, named_metrics.kv_cache_usage_perc=0.5",
        "num_requests_waiting=3,kv_cache_usage_perc=0.5",
    ],
)
def test_the_load_header(report: str) -> None:
    assert reading_of_headers({"endpoint-load-metrics": report}) == Reading(waiting=3, kv=0.5)


def test_a_header_that_says_one_thing_says_nothing_of_the_other() -> None:
    told = reading_of_report('JSON {"named_metrics": {"kv_cache_usage_perc": 0.5}}')
    assert told == Reading(kv=0.5)


@pytest.mark.parametrize(
    "report",
    ["", "JSON", "JSON {", "JSON []", 'JSON {"named_metrics": 3}', "TEXT", "TEXT a=b", "BIN 00",
     'JSON {"named_metrics": {"kv_cache_usage_perc": "high"}}', "TEXT kv_cache_usage_perc=nan"],
)  # fmt: skip
def test_a_header_that_cannot_be_read_says_nothing(report: str) -> None:
    assert reading_of_report(report) is None


def test_no_header_says_nothing() -> None:
    assert reading_of_headers({"content-type": "application/json"}) is None


@pytest.mark.parametrize("kind", ["json", "text"])
async def test_the_header_of_a_running_server(fake: FakeVllm, kind: str) -> None:
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.post(
            f"{fake.url}/v1/chat/completions",
            json={"model": "m8", "messages": [{"role": "user", "content": "hi"}]},
            headers={"endpoint-load-metrics-format": kind},
        )
    reading = reading_of_headers(dict(answer.headers))
    assert reading is not None
    assert reading.waiting == 0
    assert reading.kv is not None
