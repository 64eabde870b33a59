"""`sim://` replicas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tier_router.config.model import Replica
from tier_router.errors import ConfigError
from tier_router.testing import SimHost, Speed, speed_of

LIGHT, HEAVY = "sim://light?step=1ms", "sim://heavy?slots=2&step=4ms&prefill=2000"


@pytest.mark.parametrize(
    ("url", "speed"),
    [
        ("sim://light", Speed()),
        ("sim://light?slots=8&step=20ms&prefill=8000&per_seq=1ms&batched_tokens=4096&queue=64",
         Speed(slots=8, step=0.02, prefill=8000, per_seq=0.001, batched_tokens=4096, queue=64)),
        ("sim://a?step=0.5s", Speed(step=0.5)),
        ("sim://a?step=.5", Speed(step=0.5)),
        ("sim://a?step=300us&prefill=1e6", Speed(step=0.0003, prefill=1e6)),
        ("sim://a?scheduling=priority", Speed(scheduling="priority")),
        ("sim://a/?step=2", Speed(step=2)),
    ],
)  # fmt: skip
def test_a_url_says_how_fast(url: str, speed: Speed) -> None:
    assert speed_of(url) == speed
    assert speed_of(Replica.model_validate(url).url) == speed


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("sim://a?slot=8", r"no key `slot`; known are slots, prefill, step, per_seq, "
                           r"batched_tokens, queue, scheduling"),
        ("sim://a?step=20min", r"`step=20min`: a duration is written `8ms`, `0.5s` or in seconds"),
        ("sim://a?step=", r"`step=`: a duration"),
        ("sim://a?step=-1ms", r"`step=-1ms`: a duration"),
        ("sim://a?slots=many", r"`slots=many`: a whole number is wanted"),
        ("sim://a?slots=1.5", r"a whole number"),
        ("sim://a?slots=0", r"slots must be above 0"),
        ("sim://a?prefill=fast", r"`prefill=fast`: a number is wanted"),
        ("sim://a?prefill=nan", r"a number is wanted"),
        ("sim://a?slots=8&slots=9", r"`slots` is given twice"),
        ("sim://a?scheduling=lifo", r"scheduling is one of fcfs, priority, not lifo"),
        ("sim://a?batched_tokens=4", r"batched_tokens \(4\) must not be below slots \(64\)"),
        ("sim://a/path", r"nothing but `\?key=value` may follow the name"),
        ("sim://", r"sim://NAME"),
        ("http://a", r"sim://NAME"),
    ],
)  # fmt: skip
def test_a_bad_url_says_what_is_bad(url: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        speed_of(url)


@pytest.fixture
async def host() -> AsyncIterator[SimHost]:
    host = SimHost()
    yield host
    await host.aclose()


async def models(client: httpx.AsyncClient, url: str) -> list[str]:
    return [card["id"] for card in (await client.get(f"{url}/v1/models")).json()["data"]]


async def test_replicas_start_stay_and_stop(host: SimHost) -> None:
    async with httpx.AsyncClient(trust_env=False) as client:
        first = await host.resolve({LIGHT: "small", HEAVY: "large"})
        assert list(first) == [LIGHT, HEAVY]
        assert await models(client, first[LIGHT]) == ["small"]
        assert await models(client, first[HEAVY]) == ["large"]
        assert host.replicas[HEAVY].engine.speed == Speed(slots=2, step=0.004, prefill=2000)

        other = "sim://other"
        second = await host.resolve({LIGHT: "small", other: "other"})
        assert second[LIGHT] == first[LIGHT]
        assert await models(client, second[other]) == ["other"]
        await asyncio.sleep(0.02)
        with pytest.raises(httpx.ConnectError):
            await httpx.AsyncClient(trust_env=False).get(first[HEAVY])

        renamed = await host.resolve({LIGHT: "renamed"})
        assert renamed == {LIGHT: first[LIGHT]}
        assert await models(client, renamed[LIGHT]) == ["renamed"]


async def test_a_bad_url_changes_nothing(host: SimHost) -> None:
    first = await host.resolve({LIGHT: "small"})
    with pytest.raises(ConfigError):
        await host.resolve({HEAVY: "large", "sim://x?y=1": "x"})
    assert list(host.replicas) == [LIGHT]
    assert await host.resolve({LIGHT: "small"}) == first


@pytest.mark.parametrize("patience", [True, False])
async def test_an_answer_under_way_outlives_its_replica(
    host: SimHost, ask: Any, patience: bool
) -> None:
    before = asyncio.all_tasks()
    urls = await host.resolve({"sim://slow?step=5ms": "light"})
    fake = host.replicas["sim://slow?step=5ms"]
    reader, writer = await asyncio.open_connection(fake.host, fake.port)
    body = httpx.Request("POST", urls["sim://slow?step=5ms"], json=ask(
        max_tokens=20, ignore_eos=True, stream=True
    )).content  # fmt: skip
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n" % len(body) + body
    )
    await reader.readuntil(b"\r\n\r\n")
    assert await host.resolve({}) == {}
    if patience:
        await asyncio.sleep(0.01)
    else:
        await host.aclose()  # before the task that waits could begin
    text = await asyncio.wait_for(reader.read(), 5)
    assert (b"[DONE]" in text) == patience
    writer.close()
    await writer.wait_closed()
    await host.aclose()
    assert asyncio.all_tasks() == before
    assert fake.connections.open == 0


async def test_nothing_is_left_behind(host: SimHost) -> None:
    before = asyncio.all_tasks()
    urls = await host.resolve({LIGHT: "small", HEAVY: "large"})
    async with httpx.AsyncClient(trust_env=False) as client:
        await client.get(f"{urls[LIGHT]}/health")
        await host.aclose()
    assert asyncio.all_tasks() == before
    assert host.replicas == {}
    again = await host.resolve({LIGHT: "small"})
    assert list(again) == [LIGHT]


async def test_many_at_once_are_one_after_another(host: SimHost) -> None:
    answers = await asyncio.gather(*(host.resolve({LIGHT: "small"}) for _ in range(5)))
    assert all(answer == answers[0] for answer in answers)
