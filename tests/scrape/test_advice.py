"""What the doctor says of replicas in several states, all of them on real sockets."""

from __future__ import annotations

from typing import Any

import pytest

from tier_router.config import Tier, parse
from tier_router.scrape.advice import Level, Remark, disagreements, remarks
from tier_router.scrape.examine import Examination, examine
from tier_router.scrape.gauges import gauges_of
from tier_router.scrape.pages import Card
from tier_router.scrape.poller import targets_of
from tier_router.scrape.serve_line import serve_line
from tier_router.testing import CloseBeforeAnswer, FakeVllm, Flags, Hang, Speed, Status, anything

SEEN = Speed(step=0.005)
"""As slow as it takes for a chat to be seen in `/load`."""


def tier_of(url: str, **keys: object) -> Tier:
    more = "".join(f", {key}: {value}" for key, value in keys.items())
    return parse(f"tiers: [{{name: t, model: Qwen/Qwen3-8B, replicas: ['{url}']{more}}}]").tiers[0]


async def seen_of(client: Any, fake: FakeVllm, tier: Tier, seconds: float = 5.0) -> Examination:
    config = parse("tiers: [{name: x, model: x, replicas: ['http://x']}]")
    (target,) = targets_of(config.model_copy(update={"tiers": (tier,)}), {})
    return await examine(client.meet([fake.url]), target, seconds)


async def said(client: Any, fake: FakeVllm, **keys: object) -> list[Remark]:
    tier = tier_of(fake.url, **keys)
    return remarks(tier, await seen_of(client, fake, tier))


def qwen(**more: Any) -> FakeVllm:
    return FakeVllm("Qwen/Qwen3-8B", speed=SEEN, max_model_len=4096, **more)


def grave(found: list[Remark]) -> list[Remark]:
    return [each for each in found if each.level in (Level.WARNING, Level.ERROR)]


def of(found: list[Remark], code: str) -> Remark:
    return next(remark for remark in found if remark.code == code)


async def test_a_replica_in_good_health(client: Any) -> None:
    async with qwen() as fake:
        found = await said(client, fake, context=4096)
    assert grave(found) == []
    assert "vLLM 0.32.0, up for" in of(found, "version").text
    assert of(found, "context").text == "serves `Qwen/Qwen3-8B` with 4,096 tokens of context"
    assert of(found, "can").text == "can do: json, reasoning, tools"
    assert of(found, "load").level is Level.OK
    assert of(found, "prompt_details").level is Level.OK
    assert of(found, "metrics").text.startswith("/metrics follows within ")
    unknown = [each.flag for each in found if each.level is Level.UNKNOWN]
    assert unknown == ["--scheduling-policy priority", "--max-num-queued-reqs"]


async def test_a_replica_without_any_flag(client: Any) -> None:
    flags = Flags(
        load_tracking=False, tool_choice=False, reasoning_parser=False, prompt_details=False
    )
    async with qwen(flags=flags) as fake:
        found = grave(await said(client, fake))
    assert [(each.level, each.flag) for each in found] == [
        ("warning", "--reasoning-parser"),
        ("error", "--enable-auto-tool-choice --tool-call-parser"),
        ("warning", "--enable-server-load-tracking"),
        ("warning", "--enable-prompt-tokens-details"),
    ]
    assert "such requests are refused" in of(found[1:], "can").text


async def test_what_a_tier_does_not_claim_is_no_error(client: Any) -> None:
    async with qwen(flags=Flags(tool_choice=False), multimodal=True) as fake:
        for keys in ({"can": "[json]"}, {"can": "auto"}):
            found = await said(client, fake, **keys)
            assert grave(found) == []
            assert any(each.text == "requests with tools are refused" for each in found)
        told = [each.text for each in await said(client, fake, can="[json]")]
    assert "can do vision, which `can` does not say" in told


async def test_a_context_that_is_not_there_is_an_error_and_the_rest_is_said_too(
    client: Any,
) -> None:
    async with qwen() as fake:
        found = await said(client, fake, context=32768)
    (error,) = grave(found)
    assert error.flag == "--max-model-len"
    assert "the configuration says 32,768: longer prompts will be refused" in error.text
    assert of(found, "load").level is Level.OK


async def test_a_context_that_is_not_used_is_a_note(client: Any) -> None:
    async with qwen() as fake:
        found = await said(client, fake, context=2048)
    assert of(found, "context").level is Level.NOTE


async def test_another_model(client: Any) -> None:
    async with FakeVllm("other", aliases=["second"]) as fake:
        found = await said(client, fake)
        assert not any(request.method == "POST" for request in fake.requests)
    (error,) = grave(found)
    assert error.text == ("does not serve the tier's model `Qwen/Qwen3-8B` but `other`, `second`")


async def test_a_wrong_key(client: Any) -> None:
    async with qwen(api_key="right") as fake:
        assert grave(await said(client, fake, api_key="right")) == []
        (error,) = grave(await said(client, fake, api_key="wrong"))
    assert error.text == "refuses the tier's API key (status 401): see `api_key`"


async def test_a_replica_that_is_not_there(client: Any) -> None:
    async with qwen() as fake:
        await fake.stop()
        found = await said(client, fake)
    assert [each.text for each in found] == ["does not answer: no connection: refused"]


async def test_a_replica_that_hangs(client: Any) -> None:
    async with qwen() as fake:
        fake.faults.add(Hang(), times=None, when=anything)
        tier = tier_of(fake.url)
        found = remarks(tier, await seen_of(client, fake, tier, 0.2))
    assert [each.text for each in found] == ["does not answer: no answer within 0.2 s"]


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (CloseBeforeAnswer(), "a chat of a few tokens failed: "),
        (Status(500), "a chat of a few tokens failed: status 500, status 500"),
        (Status(200, "<html>"), "a chat of a few tokens failed: status 200, no chat completion"),
    ],
)
async def test_a_replica_whose_chats_fail(client: Any, fault: Any, told: str) -> None:
    async with qwen() as fake:
        fake.faults.add(fault, times=None)
        (error,) = grave(await said(client, fake))
    assert error.level is Level.ERROR
    assert error.text.startswith(told)


async def test_something_that_is_no_vllm(client: Any) -> None:
    async with qwen() as fake:
        pages = ("/version", "/metrics", "/load", "/v1/models")
        missing = Status(404, {"detail": "Not Found"})
        fake.faults.add(missing, times=None, when=lambda request: request.route in pages)
        found = await said(client, fake)
    assert [each.level for each in grave(found)] == ["warning"] * 3
    assert "is it vLLM?" in of(found, "version").text
    assert of(found, "load").level is Level.UNKNOWN


def good(**more: Any) -> Examination:
    gauges = gauges_of(b"vllm:num_requests_waiting 2\nvllm:kv_cache_usage_perc 0.5\n")
    fields: dict[str, Any] = {
        "round_trip": 0.001, "version": "0.32.0", "models": {"Qwen/Qwen3-8B": Card(4096)},
        "models_status": 200, "gauges": gauges, "follows": 0.01, "skew": 0.0,
        "tracks": True, "prompt_details": True,
    }  # fmt: skip
    return Examination("t-0", "http://a", **(fields | more))


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"skew": 90.0}, "its clock is 2 min ahead of ours"),
        ({"skew": -5.0}, "its clock is 5 s behind ours"),
        ({"follows": 1.5}, "/metrics shows after 1.5 s what has happened "
                           "(0 running, 2 waiting, KV cache 50%)"),
        ({"follows": float("inf")}, "/metrics shows not within 2 s what has happened "
                                    "(0 running, 2 waiting, KV cache 50%)"),
    ],
)  # fmt: skip
def test_clocks_and_stale_metrics(more: dict[str, float], told: str) -> None:
    found = remarks(tier_of("http://a"), good(**more))
    assert [each.text for each in grave(found)] == [told]


def test_replicas_of_different_versions() -> None:
    (remark,) = disagreements([good(), good(version="0.31.0"), good(version=None)])
    assert remark.text == "its replicas run different versions of vLLM: 0.31.0, 0.32.0"
    assert disagreements([good(), good()]) == []


# ---- the line


def test_the_line_that_mends_it() -> None:
    tier = tier_of("http://a:8123", context=32768, api_key="k", limits="{requests: 48}")
    seen = good(models={"Qwen/Qwen3-8B": Card(4096, "/models/qwen 3")})
    assert serve_line(tier, [seen]) == (
        "vllm serve '/models/qwen 3' --served-model-name Qwen/Qwen3-8B --port 8123 "
        '--max-model-len 32768 --api-key "$VLLM_API_KEY" --enable-server-load-tracking '
        "--enable-prompt-tokens-details --scheduling-policy priority --max-num-queued-reqs 64 "
        "--enable-auto-tool-choice --tool-call-parser hermes --reasoning-parser qwen3"
    )


@pytest.mark.parametrize(
    ("model", "parsers"),
    [
        ("meta-llama/Llama-3.1-405B-Instruct", "--tool-call-parser llama3_json"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "--tool-call-parser mistral"),
        (
            "deepseek-ai/DeepSeek-R1",
            "--tool-call-parser deepseek_v3 --reasoning-parser deepseek_r1",
        ),
        ("acme/model", "--tool-call-parser PARSER"),
    ],
)
def test_parsers_by_family(model: str, parsers: str) -> None:
    text = f"tiers: [{{name: t, model: '{model}', replicas: ['https://a']}}]"
    line = serve_line(parse(text).tiers[0], [Examination("t-0", "https://a", problem="refused")])
    assert line.startswith(f"vllm serve {model} --port 8000 --enable-server-load-tracking")
    assert line.endswith(f"--enable-auto-tool-choice {parsers}")


def test_no_tool_parser_where_no_tools_are_wanted() -> None:
    assert "--tool-call-parser" not in serve_line(tier_of("http://a", can="[json]"), [good()])
