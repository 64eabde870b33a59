"""`/v1/responses`: stored in one replica's memory, and found there again."""

import json
from contextlib import AsyncExitStack
from typing import Any

import httpx
import openai
import pytest

from tests.sidecar.conftest import fixed
from tests.sidecar.scripted import HEAD, LAST, chunk, json_answer, says, scripted
from tier_router.testing import faults
from tier_router_proxy.keepers import KEPT, Keepers, id_for
from tier_router_proxy.sidecar import Sidecar

RESPONSES = "/v1/responses"


def client_of(url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def answered(stage: Any) -> list[str]:
    """The replicas that were asked to write a response."""
    names = ["light-0", "light-1", "heavy-0"]
    return [
        name
        for name, fake in zip(names, stage.fakes, strict=True)
        for request in fake.requests
        if (request.method, request.path) == ("POST", RESPONSES)
    ]


async def test_the_python_client(stage: Any) -> None:
    await stage.serve()
    async with client_of(stage.sidecar.url) as client:
        raw = await client.responses.with_raw_response.create(model="auto", input="hello")
        assert raw.headers["x-tier-router-tier"] == "light"
        first = raw.parse()
        assert first.output_text.startswith("m8 answers:")
        assert first.usage is not None
        assert first.usage.input_tokens > 0

        again = await client.responses.with_raw_response.create(
            model="auto", input="prove it", previous_response_id=first.id
        )
        assert again.headers["x-tier-router-replica"] == raw.headers["x-tier-router-replica"]
        assert again.headers["x-tier-router-reason"] == "stored"
        assert again.parse().previous_response_id == first.id

        assert (await client.responses.retrieve(first.id)).id == first.id
        with pytest.raises(openai.BadRequestError, match="Cannot cancel a synchronous"):
            await client.responses.cancel(first.id)
        with pytest.raises(openai.APIStatusError) as caught:
            await client.responses.delete(first.id)
        assert caught.value.status_code == 405, "vLLM has no such route, and says so itself"


async def test_the_python_client_streaming(stage: Any) -> None:
    await stage.serve()
    async with client_of(stage.sidecar.url) as client:
        events = []
        stream = await client.responses.create(model="auto", input="prove it", stream=True)
        assert stream.response.headers["x-tier-router-tier"] == "heavy"
        async for event in stream:
            events.append(event)
        assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
        assert events[-1].type == "response.completed"
        deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        assert "".join(deltas) == events[-1].response.output_text
        stored = await client.responses.retrieve(events[0].response.id)
        assert stored.output_text == events[-1].response.output_text


async def test_another_sidecar_knows_whose_response_it_is(stage: Any) -> None:
    await stage.serve()
    told = (await stage.http.post(RESPONSES, json={"input": "hello"})).json()
    async with Sidecar(stage.config(), fixed) as other, httpx.AsyncClient(trust_env=False) as http:
        seen = sum(len(fake.requests) for fake in stage.fakes)
        url = f"{other.url}{RESPONSES}/{told['id']}"
        answer = await http.get(url)
        assert (answer.status_code, answer.json()["id"]) == (200, told["id"])
        assert sum(len(fake.requests) for fake in stage.fakes) == seen + 1, "nobody else was asked"


async def test_an_id_that_a_replica_made_up_is_remembered(stage: Any) -> None:
    body = {"input": "hello", "request_id": "resp_mine"}
    await stage.serve()
    told = await stage.http.post(RESPONSES, json=body)
    assert told.json()["id"] == "resp_mine"
    more = {"input": "and?", "previous_response_id": "resp_mine"}
    for stream in (False, True):
        answer = await stage.http.post(RESPONSES, json=more | {"stream": stream})
        name = answer.headers["x-tier-router-replica"]
        assert name == told.headers["x-tier-router-replica"]
    assert answered(stage) == [name] * 3, "and nobody was asked for it"


async def test_an_id_that_nobody_here_knows_is_asked_for(stage: Any) -> None:
    await stage.serve()
    direct = {"input": "hello", "request_id": "resp_direct", "model": "m70"}
    async with httpx.AsyncClient(trust_env=False) as http:
        await http.post(stage.heavy.url + RESPONSES, json=direct)
    answer = await stage.http.get(f"{RESPONSES}/resp_direct/")
    assert (answer.status_code, answer.json()["id"]) == (200, "resp_direct")
    body = {"input": "and?", "previous_response_id": "resp_direct"}
    told = await stage.http.post(RESPONSES, json=body)
    assert told.headers["x-tier-router-replica"] == "heavy-0"


@pytest.mark.parametrize("name", ["resp_nowhere", id_for("gone-0")], ids=["theirs", "ours"])
async def test_a_response_that_nobody_keeps(stage: Any, name: str) -> None:
    await stage.serve()
    for answer in (
        await stage.http.get(f"{RESPONSES}/{name}"),
        await stage.http.post(f"{RESPONSES}/{name}/cancel"),
        await stage.http.post(RESPONSES, json={"input": "x", "previous_response_id": name}),
    ):
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (404, "response_not_found")
        assert name in error["message"]
    assert error["param"] == "previous_response_id"


async def test_a_replica_that_may_keep_it_does_not_answer(stage: Any) -> None:
    await stage.serve()
    await stage.heavy.stop()
    answer = await stage.http.get(f"{RESPONSES}/resp_nowhere")
    assert answer.status_code == 503
    assert "heavy-0" in answer.json()["error"]["message"]
    assert "retry-after" in answer.headers


async def test_the_keeper_being_down_is_said_and_nobody_else_is_asked(stage: Any) -> None:
    await stage.serve()
    told = (await stage.http.post(RESPONSES, json={"input": "prove it"})).json()
    await stage.heavy.stop()
    body = {"input": "and?", "previous_response_id": told["id"]}
    answer = await stage.http.post(RESPONSES, json=body)
    assert answer.status_code in (502, 503)
    assert "heavy" in answer.json()["error"]["message"]
    assert answered(stage) == ["heavy-0"]


async def test_failover_until_something_was_computed(stage: Any) -> None:
    """vLLM says `response.created` before the request has even been queued."""
    await stage.serve()
    for fake in stage.light:
        fake.faults.add(faults.ErrorMidStream(after=2), times=1)
    answer = await stage.http.post(RESPONSES, json={"input": "hello", "stream": True})
    assert answer.headers["x-tier-router-tier"] == "heavy"
    assert answer.text.count("event: response.created") == 1
    assert '"error":' not in answer.text
    name = json.loads(answer.text.split("data: ", 2)[1].split("\n")[0])["response"]["id"]
    stored = await stage.http.get(f"{RESPONSES}/{name}")
    assert stored.headers["x-tier-router-replica"] == "heavy-0"


async def test_a_body_without_input(stage: Any) -> None:
    await stage.serve()
    answer = await stage.http.post(RESPONSES, json={"model": "auto"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input")


async def test_the_tiers_default_limit_has_the_responses_name(stage: Any) -> None:
    await stage.serve()
    config = stage.config()
    tiers = tuple(t.model_copy(update={"defaults": {"max_tokens": 7}}) for t in config.tiers)
    await stage.sidecar.reload(config.model_copy(update={"tiers": tiers}))
    await stage.http.post(RESPONSES, json={"input": "hello"})
    await stage.http.post(RESPONSES, json={"input": "hello", "max_output_tokens": 3})
    bodies = [request.body for fake in stage.light for request in fake.requests]
    assert [body["max_output_tokens"] for body in bodies] == [7, 3]
    assert all("max_tokens" not in body for body in bodies)


async def test_a_host_that_makes_up_ids_in_its_own_order(stage: Any) -> None:
    created = b'data: {"type":"response.created","response":{"id":"resp_1","status":"queued"}}\n\n'
    delta = b'event: response.output_text.delta\ndata: {"delta":"x"}\n\n'
    stream = (HEAD, chunk(b"event: response.created\n" + created), chunk(delta), LAST)
    async with AsyncExitStack() as stack:
        host = await stack.enter_async_context(scripted(says(*stream)))
        tiers = [{"name": "far", "model": "m", "kind": "openai", "replicas": [host.url]}]
        http = await stage.serve(tiers=tiers)
        await http.post(RESPONSES, json={"input": "hello", "stream": True})
        assert "request_id" not in json.loads(host.asked[0].body), "that is vLLM's alone"
        host.reply = says(json_answer(b'{"id": "resp_1"}'))
        assert (await http.get(f"{RESPONSES}/resp_1")).json() == {"id": "resp_1"}
        assert [asked.target for asked in host.asked] == [RESPONSES, f"{RESPONSES}/resp_1"]


def test_what_is_remembered_is_bounded_in_number_and_time(stage: Any) -> None:
    now = 0.0
    config = stage.config()
    keepers = Keepers(lambda: now)
    for number in range(KEPT + 10):
        keepers.learn(f"resp_{number}", "light-0")
    assert len(keepers) == KEPT
    assert keepers.of("resp_0", config) is None
    assert keepers.of(f"resp_{KEPT}", config) == "light-0"
    now = 90_000.0
    assert keepers.of(f"resp_{KEPT}", config) is None


def test_an_id_of_ours_names_a_replica_of_this_configuration_only(stage: Any) -> None:
    keepers, config = Keepers(), stage.config()
    assert keepers.of(id_for("heavy-0"), config) == "heavy-0"
    assert keepers.of(id_for("elsewhere-0"), config) is None


async def test_a_key_that_opens_other_tiers_does_not_reach_a_stored_response(stage: Any) -> None:
    keys = [{"key": "all"}, {"key": "small", "tiers": ["light"]}]
    http = await stage.serve(server={"api_keys": keys})
    everything, small = ({"authorization": f"Bearer {key}"} for key in ("all", "small"))
    told = await http.post(RESPONSES, json={"input": "prove it"}, headers=everything)
    url = f"{RESPONSES}/{told.json()['id']}"
    assert (await http.get(url)).status_code == 401
    assert (await http.get(url, headers=everything)).status_code == 200
    refused = await http.get(url, headers=small)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "tier_not_allowed")
