"""Abilities as probes find them, and the configuration that follows."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pytest

from tier_router import TierRouter
from tier_router.config import Config, parse
from tier_router.request import Need
from tier_router.scrape.findings import Found, effective, serves_another
from tier_router.scrape.pages import Card
from tier_router.scrape.probes import CHAT, PROBED, SIDE, answer_of, probe, verdict, white_png
from tier_router.testing import BUSY, FakeVllm, FixedClassifier, Flags, Status

ALL = frozenset({Need.TOOLS, Need.JSON, Need.LOGPROBS, Need.REASONING})


async def probed(client: Any, fake: FakeVllm, model: str = "m8") -> dict[Need, bool | None]:
    fetch = client.meet([fake.url])
    headers = {"content-type": "application/json"}
    return {
        need: verdict(need, answer_of(*await fetch(fake.url + CHAT, headers, probe(need, model))))
        for need in PROBED
    }


@pytest.mark.parametrize(
    ("flags", "multimodal", "able"),
    [
        (Flags(), False, {Need.TOOLS, Need.JSON, Need.REASONING}),
        (Flags(), True, {Need.TOOLS, Need.JSON, Need.REASONING, Need.VISION}),
        (Flags(tool_choice=False), False, {Need.JSON, Need.REASONING}),
        (Flags(reasoning_parser=False), False, {Need.TOOLS, Need.JSON}),
    ],
)
async def test_a_probe_tells_what_a_server_can_do(
    client: Any, flags: Flags, multimodal: bool, able: set[Need]
) -> None:
    async with FakeVllm("m8", flags=flags, multimodal=multimodal) as fake:
        assert await probed(client, fake) == {need: need in able for need in PROBED}
        assert [request.body["max_tokens"] for request in fake.requests] == [1] * len(PROBED)


@pytest.mark.parametrize("fault", [BUSY, Status(500), Status(401, {"error": "Unauthorized"})])
async def test_a_failure_says_nothing_of_abilities(client: Any, fake: Any, fault: Any) -> None:
    fake.faults.add(fault, times=None)
    assert await probed(client, fake) == dict.fromkeys(PROBED)


async def test_an_unknown_model_says_nothing_of_abilities(client: Any, fake: Any) -> None:
    assert await probed(client, fake, "another") == dict.fromkeys(PROBED)


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b'{"choices":[]}', b'{"choices":[7]}', b'{"choices":{}}']
)
def test_an_answer_that_is_none_says_nothing(content: bytes) -> None:
    assert verdict(Need.TOOLS, answer_of(200, content)) is None


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ('{"content":null,"reasoning":" bound"}', True),
        ('{"content":null,"reasoning_content":"Okay"}', True),
        ('{"content":null,"reasoning":null}', True),
        ('{"content":"<think>","reasoning":null}', False),
        ('{"content":"Hello","reasoning":null}', False),
    ],
)
def test_thinking_shows_in_where_the_token_is_put(message: str, told: bool) -> None:
    content = b'{"choices":[{"message":' + message.encode() + b"}]}"
    assert verdict(Need.REASONING, answer_of(200, content)) is told


def test_the_image_is_a_png() -> None:
    data = white_png(SIDE)
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(data) < 200
    parts, rest = {}, data[8:]
    while rest:
        size, kind = struct.unpack(">I4s", rest[:8])
        content = rest[8 : 8 + size]
        assert struct.unpack(">I", rest[8 + size : 12 + size])[0] == zlib.crc32(kind + content)
        parts[kind], rest = content, rest[12 + size :]
    assert list(parts) == [b"IHDR", b"IDAT", b"IEND"]
    assert struct.unpack(">IIB", parts[b"IHDR"][:9]) == (SIDE, SIDE, 8)
    assert zlib.decompress(parts[b"IDAT"]) == (b"\0" + b"\xff" * SIDE) * SIDE


# ---- effective


def two(context: str = "auto", can: str = "auto") -> Config:
    return parse(
        f"tiers: [{{name: t, model: m, replicas: ['http://a', 'http://b'], "
        f"context: {context}, can: {can}}}]"
    )


def found(context: int | None = None, **can: bool) -> Found:
    return Found({"m": Card(context)}, "0.32.0", {Need(need): able for need, able in can.items()})


def test_the_least_context_of_the_replicas_counts() -> None:
    config = two()
    assert config.tiers[0].context is None
    assert effective(config, {"t-0": found(4096)}).tiers[0].context == 4096
    both = effective(config, {"t-0": found(4096), "t-1": found(2048)})
    assert both.tiers[0].context == 2048
    assert config.tiers[0].context is None, "what was written stays as it is"


def test_a_written_context_stays() -> None:
    config = two("1000", "[tools]")
    assert effective(config, {"t-0": found(4096, vision=True)}) is config


def test_nothing_found_changes_nothing() -> None:
    config = two()
    assert effective(config, {}) is config
    assert effective(config, {"t-0": Found()}).tiers[0].context is None
    assert effective(config, {"x": found(1)}) is config


def test_a_replica_of_another_model_does_not_count() -> None:
    other = Found({"other": Card(100)})
    assert effective(two(), {"t-0": other, "t-1": found(4096)}).tiers[0].context == 4096
    assert serves_another(other, "m") == "does not serve the tier's model `m` but `other`"
    assert serves_another(Found({}), "m") == "does not serve the tier's model `m` but nothing"
    assert serves_another(found(1), "m") is None
    assert serves_another(Found(None), "m") is None


def test_a_tier_can_do_what_all_of_its_replicas_can() -> None:
    config = two()
    assert config.tiers[0].can == ALL, "until they were asked"
    one = {"t-0": found(tools=True, vision=True, json=True, reasoning=False)}
    assert effective(config, one).tiers[0].can == ALL - {Need.REASONING} | {Need.VISION}
    both = one | {"t-1": found(tools=False, vision=True, json=True, reasoning=False)}
    expected = {Need.VISION, Need.JSON, Need.LOGPROBS}
    assert effective(config, both).tiers[0].can == expected


def test_what_could_not_be_told_is_as_it_was() -> None:
    half = effective(two(), {"t-0": found(vision=True)})
    assert half.tiers[0].can == ALL | {Need.VISION}


def test_the_effective_configuration_keeps_its_sources_and_its_ladder() -> None:
    config = two()
    config._sources = ("c.yaml",)  # type: ignore[assignment]
    assert config.ladder == {"t": 0}
    new = effective(config, {"t-0": found(4096)})
    assert new.sources == ("c.yaml",)
    assert new.ladder == {"t": 0}
    assert new.tiers[0].asks


# ---- the router


def router(config: Config) -> TierRouter:
    return TierRouter(config, lambda _: FixedClassifier(0.1))


def test_the_router_routes_by_what_was_found() -> None:
    routing = router(
        parse(
            "tiers: [{name: light, model: a, replicas: ['http://a']},"
            "{name: heavy, model: b, replicas: ['http://b']}]"
        )
    )
    body = {"messages": [{"role": "user", "content": "word " * 3000}]}
    assert routing.decide(routing.view(body)).tier == "light"
    routing.found("light-0", Found({"a": Card(2048)}))
    decision = routing.decide(routing.view(body))
    assert decision.tier == "heavy"
    assert "needs_context" in decision.reasons


def test_a_reload_keeps_what_was_found_of_replicas_that_stay() -> None:
    routing = router(two())
    routing.found("t-0", found(4096))
    routing.found("t-1", found(2048))
    routing.reload(two(can="[tools]"))
    assert routing.config.tiers[0].context == 2048
    moved = parse("tiers: [{name: t, model: m, replicas: ['http://a', 'http://c']}]")
    routing.reload(moved)
    assert routing.config.tiers[0].context == 4096, "of t-1, which is another now, nothing is known"
    routing.reload(parse("tiers: [{name: t, model: other, replicas: ['http://a', 'http://c']}]"))
    assert routing.config.tiers[0].context is None


def test_a_replica_that_the_router_does_not_have_is_ignored() -> None:
    routing = router(two())
    routing.found("gone-0", found(1))
    assert routing.config.tiers[0].context is None
