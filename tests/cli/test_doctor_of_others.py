"""`tier-router doctor` on tiers that are no vLLM, or do not chat."""

from tests.sidecar.openai_host import CARD, KEY, OpenAIHost
from tests.sidecar.scripted import scripted
from tier_router.cli.doctor import diagnose
from tier_router.config import parse
from tier_router.scrape.advice import Level
from tier_router.testing import FakeVllm


async def test_nothing_is_asked_that_costs_money_or_cannot_be_answered() -> None:
    host = OpenAIHost()
    async with scripted(host) as server, FakeVllm("m8") as light, FakeVllm(
        "bge", pooling=True
    ) as vectors:  # fmt: skip
        config = parse(f"""
tiers:
  - {{name: light, model: m8, replicas: ["{light.url}"]}}
  - {{name: far, kind: openai, model: {CARD["id"]}, replicas: ["{server.url}"], api_key: {KEY},
      context: 100000}}
  - {{name: vectors, model: bge, replicas: ["{vectors.url}"], can: [embeddings]}}
""")
        _, far, pool = await diagnose(config, 5.0)
    assert host.strange == []
    assert {asked.target for asked in server.asked} == {"/v1/models"}
    said = [remark for remark in far.remarks if remark.level is Level.ERROR]
    assert [remark.code for remark in said] == ["context"], "it has less than was written"
    assert far.line is None, "nobody here can start it anew"
    assert {remark.level for remark in pool.remarks} == {Level.OK}
    assert all(request.method == "GET" for request in vectors.requests)
