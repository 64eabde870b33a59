"""`/metrics` as Prometheus' own parser reads it."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tier_router.testing import FakeVllm

# Names, labels and values as vLLM 0.32.0 spelled them.
CAPTURED = """\
vllm:num_requests_running{engine="0",model_name="light"} 0.0
vllm:num_requests_waiting{engine="0",model_name="light"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="light",reason="capacity"} 0.0
vllm:engine_sleep_state{engine="0",model_name="light",sleep_state="awake"} 1.0
vllm:kv_cache_usage_perc{engine="0",model_name="light"} 0.0
vllm:prefix_cache_hits_total{engine="0",model_name="light"} 0.0
vllm:num_preemptions_total{engine="0",model_name="light"} 0.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="light"} 2.0
vllm:request_success_total{engine="0",finished_reason="abort",model_name="light"} 0.0
vllm:admission_rejections_total{model_name="light",reason="max_num_queued_reqs"} 0.0
vllm:generation_tokens_total{engine="0",model_name="light"} 10.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="2560.0",model_name="light"} 2.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="light"} 2.0
vllm:inter_token_latency_seconds_count{engine="0",model_name="light"} 8.0
vllm:request_generation_tokens_sum{engine="0",model_name="light"} 10.0
"""


async def test_the_page(light: FakeVllm, dial: Any, ask: Any) -> None:
    wire = await dial(light)
    for _ in range(2):
        wire.send(ask(max_tokens=5))
        await wire.answer()
    wire.send(path="/metrics", method="GET")
    status, headers, body = await wire.answer()
    assert (status, headers["content-type"]) == (200, "text/plain; version=1.0.0; charset=utf-8")
    page = body.decode()
    for line in CAPTURED.splitlines():
        assert line in page.splitlines()
    families = {family.name: family for family in text_string_to_metric_families(page)}
    assert families["vllm:num_requests_running"].type == "gauge"
    assert families["vllm:prompt_tokens"].type == "counter"
    for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds"):
        family = families[f"vllm:{name}"]
        assert family.type == "histogram"
        buckets = [s.value for s in family.samples if s.name.endswith("_bucket")]
        assert buckets == sorted(buckets)
        assert buckets[-1] == 2
    assert all(family.documentation for family in families.values())


async def test_names_that_need_escapes(dial: Any) -> None:
    async with FakeVllm('a "quoted\\ name') as fake:
        wire = await dial(fake)
        wire.send(path="/metrics", method="GET")
        page = (await wire.answer())[2].decode()
        families = list(text_string_to_metric_families(page))
        assert any(family.name == "process_start_time_seconds" for family in families)
        for family in families:
            for sample in family.samples if family.name.startswith("vllm:") else ():
                assert sample.labels["model_name"] == 'a "quoted\\ name'
