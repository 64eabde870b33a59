"""Embeddings, ranks and scores; and tokens."""

from typing import Any

import openai
import pytest

from tier_router.config import parse
from tier_router.errors import ConfigError
from tier_router.testing import FakeVllm
from tier_router.testing.pooled import vector

EMBEDDINGS = "/v1/embeddings"


async def serve(stage: Any, *models: str, **more: Any) -> list[FakeVllm]:
    """Serves the ladder, and a tier of embeddings for each model."""
    fakes = [
        await stage.stack.enter_async_context(FakeVllm(model, pooling=True)) for model in models
    ]
    ladder = [
        {"name": "light", "model": "m8", "replicas": [fake.url for fake in stage.light]},
        {"name": "heavy", "model": "m70", "replicas": [stage.heavy.url]},
    ]
    pools = [
        {"name": f"vectors{n}", "model": fake.model, "replicas": [fake.url], "can": ["embeddings"]}
        for n, fake in enumerate(fakes)
    ]
    await stage.serve(tiers=[*ladder, *pools], **more)
    return fakes


async def test_the_python_client(stage: Any) -> None:
    await serve(stage, "bge")
    async with openai.AsyncOpenAI(
        base_url=f"{stage.sidecar.url}/v1", api_key="none", max_retries=0
    ) as client:
        raw = await client.embeddings.with_raw_response.create(model="auto", input=["a b", "c"])
        assert raw.headers["x-tier-router-tier"] == "vectors0"
        assert raw.headers["x-tier-router-reason"] == "embeddings"
        told = raw.parse()
        assert told.model == "bge"
        for data, text in zip(told.data, ("a b", "c"), strict=True):
            assert data.embedding == pytest.approx(vector(text), abs=1e-6)
        floats = await client.embeddings.create(model="bge", input="a b", encoding_format="float")
        assert floats.data[0].embedding == pytest.approx(vector("a b"))


async def test_the_named_model_makes_them_and_no_other(stage: Any) -> None:
    first, second = await serve(stage, "bge", "e5", aliases={"text-embedding-3-small": "vectors1"})
    for name, fake in (("e5", second), ("vectors0", first), ("text-embedding-3-small", second)):
        answer = await stage.http.post(EMBEDDINGS, json={"model": name, "input": "x"})
        assert answer.json()["model"] == fake.model
        assert answer.headers["x-tier-router-reason"] == "pinned"
    await second.stop()
    answer = await stage.http.post(EMBEDDINGS, json={"model": "e5", "input": "x"})
    assert answer.status_code in (502, 503), "vectors of another model would be worse than none"


async def test_ranks_and_scores(stage: Any) -> None:
    await serve(stage, "bge")
    ranks = {"query": "red fish", "documents": ["blue sky", "red fish"], "top_n": 1}
    for path in ("/v1/rerank", "/rerank"):
        answer = await stage.http.post(path, json=ranks)
        assert [each["index"] for each in answer.json()["results"]] == [1]
    scores = {"model": "bge", "text_1": "a", "text_2": ["a", "b"]}
    for path in ("/v1/score", "/score"):
        answer = await stage.http.post(path, json=scores)
        assert answer.json()["data"][0]["score"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("body", "status", "param", "told"),
    [
        ({"input": "x"}, 400, "model", "no tier makes embeddings"),
        ({"input": "x", "model": "light"}, 400, "model", "no tier makes embeddings"),
        ({"model": "auto"}, 400, "input", "`input` or `messages`"),
        ({"input": "x", "model": "nope"}, 404, "model", "no tier or model named"),
    ],
)
async def test_errors_where_no_tier_has_them(
    stage: Any, body: Any, status: int, param: str, told: str
) -> None:
    await stage.serve()
    answer = await stage.http.post(EMBEDDINGS, json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (status, param)
    assert told in error["message"]


async def test_a_tier_that_chats_makes_none_and_the_other_way_round(stage: Any) -> None:
    await serve(stage, "bge")
    answer = await stage.http.post(EMBEDDINGS, json={"input": "x", "model": "light"})
    assert "tier `light` makes no embeddings (vectors0 can)" in answer.json()["error"]["message"]
    answer = await stage.ask(model="bge")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "no_capable_tier")
    assert "only makes embeddings" in answer.json()["error"]["message"]


async def test_chats_never_spill_into_embeddings(stage: Any) -> None:
    (vectors,) = await serve(stage, "bge")
    for fake in stage.fakes:
        await fake.stop()
    for _ in range(3):
        assert (await stage.ask("prove it")).status_code in (502, 503)
    assert vectors.requests == []
    assert (await stage.http.get("/ready")).status_code == 503


async def test_nothing_is_judged_or_added(stage: Any) -> None:
    (vectors,) = await serve(stage, "bge")
    config = stage.sidecar.router.config
    tiers = tuple(t.model_copy(update={"defaults": {"max_tokens": 5}}) for t in config.tiers)
    await stage.sidecar.reload(config.model_copy(update={"tiers": tiers}))
    body = {"input": "prove it", "dimensions": 4, "unknown": {"x": 1.50}}
    await stage.http.post(EMBEDDINGS, json=body)
    assert vectors.requests[0].body == {**body, "model": "bge"}


async def test_tokens_of_the_tier_that_would_answer(stage: Any) -> None:
    http = await stage.serve()
    light = await http.post("/tokenize", json={"prompt": "hello"})
    heavy = await http.post("/tokenize", json={"messages": [{"role": "user", "content": "prove"}]})
    assert light.headers["x-tier-router-tier"] == "light"
    assert heavy.headers["x-tier-router-tier"] == "heavy"
    body = {"tokens": light.json()["tokens"]}
    answer = await http.post("/detokenize", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "model")
    answer = await http.post("/detokenize/", json=body | {"model": "m8"})
    assert answer.json()["prompt"]
    pinned = await http.post("/detokenize", json=body, headers={"x-tier-router-tier": "heavy"})
    assert pinned.headers["x-tier-router-tier"] == "heavy"


async def test_tokens_need_a_key_as_all_else_does(stage: Any) -> None:
    http = await stage.serve(server={"api_keys": ["ours"]})
    assert (await http.post("/tokenize", json={"prompt": "hello"})).status_code == 401
    assert (await http.post("/rerank", json={"query": "x"})).status_code == 401


def written(*abilities: str) -> str:
    tiers = (
        f"  - {{name: t{n}, model: m{n}, replicas: [http://h{n}], can: {can}}}\n"
        for n, can in enumerate(abilities)
    )
    return "tiers:\n" + "".join(tiers)


@pytest.mark.parametrize(
    ("abilities", "told"),
    [
        (["[embeddings]", "[tools]"], "tiers: tiers that make embeddings come after the"),
        (["[embeddings]"], "at least one tier answers chats"),
        (["[tools]", "[tools, embeddings]"], "config:3 tiers[1].can: a tier that makes embeddings"),
    ],
)
def test_the_configuration_keeps_embeddings_out_of_the_ladder(
    abilities: list[str], told: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(written(*abilities))
    assert told in str(caught.value)


def test_rules_and_thresholds_are_of_the_ladder() -> None:
    text = written("[tools]", "[tools]", "[embeddings]")
    config = parse(text + "aliases: {ada: t2}\npolicy: {threshold: [0.5]}\n")
    assert (config.rungs, config.pins["ada"]) == (2, "t2")
    with pytest.raises(ConfigError, match=r"rules\[0\].tier: no tier named `t2` \(there are: t0"):
        parse(text + "rules: [{when: {keyword: x}, tier: t2}]\n")
    with pytest.raises(ConfigError, match="2 tiers need 1 thresholds"):
        parse(text + "policy: {threshold: [0.1, 0.2]}\n")
