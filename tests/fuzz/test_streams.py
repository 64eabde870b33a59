"""Streams cut wherever a network may cut them: what a client gets are the replica's very bytes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sidecar.conftest import chat, fixed
from tests.sidecar.scripted import HEAD, LAST, Asked, chunk, scripted
from tier_router.config import parse
from tier_router.dispatch import Failure
from tier_router.ledger import Outcome
from tier_router.pace import Usage, usage_at_end
from tier_router_proxy.attempt import Attempt
from tier_router_proxy.http import CHUNKED, CLOSE, LENGTH, Framing, Head, Reason, UpstreamFailure
from tier_router_proxy.keepers import Keepers
from tier_router_proxy.sidecar import Sidecar

FEW = settings(max_examples=60, deadline=None, derandomize=True, database=None)

USAGE = b'{"choices":[],"usage":{"prompt_tokens":31,"completion_tokens":17,"total_tokens":48}}'
STREAMS: dict[str, Sequence[bytes]] = {
    "tokens, usage, [DONE]": [
        b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n',
        'data: {"choices":[{"delta":{"content":"é漢\U0001f600"}}]}\n\n'.encode(),
        b"data: " + USAGE + b"\n\n",
        b"data: [DONE]\n\n",
    ],
    "CRLF": [b'data: {"choices":[]}\r\n\r\n', b"data: [DONE]\r\n\r\n"],
    "CR": [b'data: {"choices":[]}\r\r', b"data: [DONE]\r\r"],
    "comments": [b": ping\n\n", b": ping\n\n", b'data: {"choices":[]}\n\n: ping\n', b": x\n\n"],
    "several lines of data": [b'data: {"choices":\ndata: []}\n\n', b"data: [DONE]\n\n"],
    "no [DONE]": [b'data: {"choices":[]}\n\n', b'data: {"choices":[]}'],
    "no line's end": [b"data: x"],
    "no choices": [b'data: {"usage":null}\n\n', b"data: {}\n\n"],
    "other fields": [b"event: x\nid: 5\nretry: 10\n", b'data:{"choices":[]}\n\n'],
    "only comments": [b": nothing to say\n\n"],
    "a response": [
        b'event: response.created\ndata: {"response":{"id":"resp_abc"}}\n\n',
        b'event: response.in_progress\ndata: {"response":{"id":"resp_abc"}}\n\n',
        b'event: response.output_text.delta\ndata: {"delta":"x"}\n\n',
        b'event: response.completed\ndata: {"response":{"id":"resp_abc"}}\n\n',
    ],
    "a message": [
        b'event: message_start\ndata: {"type":"message_start"}\n\n',
        b"event: ping\ndata: {}\n\n",
        b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    ],
}
FAILED: dict[str, Sequence[bytes]] = {
    "an error at first": [b'data: {"error": {"message": "dead", "code": 500}}\n\n', b"data: x\n\n"],
    "an error after comments": [
        b": ping\n\n",
        b'data: {"error":{"message":"dead","code":500}}\n\n',
    ],
    "nothing": [],
    "blanks": [b"\n\n", b"\r\n"],
}


class Heard:
    """The owner of one attempt: keeps what it is told."""

    def __init__(self) -> None:
        self.got = b""
        self.begun = self.tokens = self.over = 0
        self.failure: Failure | None = None
        self.text = b""

    def first_token(self, attempt: Attempt) -> None:
        self.tokens += 1
        assert not self.begun, "the first token is told before anything is passed on"

    def began(self, attempt: Attempt, head: Head, pieces: list[bytes]) -> None:
        self.begun += 1
        self.got += b"".join(pieces)
        self.text = attempt.text

    def passed(self, data: bytes) -> None:
        assert self.begun == 1
        self.got += data

    def ended(self) -> None:
        self.over += 1

    def broke(self, message: str) -> None:
        self.over += 1

    def lost(self, attempt: Attempt, failure: Failure) -> None:
        assert self.failure is None
        self.failure = failure


def heard(framing: Framing, pieces: Sequence[bytes], failure: UpstreamFailure | None) -> Heard:
    """What an attempt makes of an answer that comes in these pieces."""
    owner = Heard()
    attempt = Attempt(owner, None, reads=True)  # type: ignore[arg-type]  # only kept
    attempt.on_head(Head(200, b"OK", [(b"content-type", b"text/event-stream")], framing, True))
    for piece in pieces:
        if owner.failure is None:
            attempt.on_data(piece)
    if owner.failure is None:
        attempt.on_end() if failure is None else attempt.on_failure(failure)
    attempt.abort()  # its timer too
    return owner


def framed(events: Sequence[bytes]) -> Iterator[tuple[Framing, bytes]]:
    """The stream in each framing that an upstream may choose."""
    plain = b"".join(events)
    yield CHUNKED, b"".join(map(chunk, events)) + LAST
    yield LENGTH(len(plain)), plain
    yield CLOSE, plain


def cuts(data: bytes, most: int) -> Iterator[list[bytes]]:
    """`data` whole, in single bytes, and in all ways of up to `most` cuts."""
    yield [data[at : at + 1] for at in range(len(data))]
    for count in range(most + 1):
        for places in itertools.combinations(range(1, len(data)), count):
            yield cut(data, places)


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    ends = [*places, len(data)]
    return [data[start:end] for start, end in zip([0, *places], ends, strict=True) if start < end]


def all_of(events: Sequence[bytes]) -> Iterator[tuple[Framing, bytes, list[bytes]]]:
    """(framing, raw bytes, the bytes in pieces), for all cuts: of two at once where it is short."""
    for framing, raw in framed(events):
        for pieces in cuts(raw, 2 if len(raw) < 100 else 1):
            yield framing, raw, pieces


@pytest.mark.parametrize("name", STREAMS)
async def test_a_stream_passes_byte_for_byte_wherever_it_is_cut(name: str) -> None:
    for framing, raw, pieces in all_of(STREAMS[name]):
        owner = heard(framing, pieces, None)
        assert owner.got == raw, pieces
        assert (owner.begun, owner.over, owner.failure) == (1, 1, None), pieces
        assert owner.tokens <= 1


@pytest.mark.parametrize("name", FAILED)
async def test_an_error_before_the_first_token_is_seen_wherever_it_is_cut(name: str) -> None:
    for framing, _, pieces in all_of(FAILED[name]):
        owner = heard(framing, pieces, None)
        assert owner.failure is not None, pieces
        assert owner.failure.outcome is not Outcome.DONE
        assert (owner.got, owner.begun, owner.over) == (b"", 0, 0), pieces


async def test_a_stream_that_breaks_off_is_either_lost_or_broken_and_never_both() -> None:
    broken = UpstreamFailure(Reason.CLOSED, "gone", started=True)
    for name, events in STREAMS.items():
        for framing, raw in framed(events):
            for end in range(len(raw)):
                owner = heard(framing, cut(raw[:end], ()), broken)
                assert (owner.failure is None) == (owner.begun == 1) == (owner.over == 1), name
                assert owner.got == (raw[:end] if owner.begun else b"")


async def test_the_id_of_a_response_is_learnt_wherever_its_stream_is_cut() -> None:
    config = parse("tiers: [{name: t, model: m, replicas: [http://127.0.0.1:1]}]")
    for framing, _, pieces in all_of(STREAMS["a response"]):
        keepers = Keepers()
        keepers.learn_from(heard(framing, pieces, None).text, "t-0")
        assert keepers.of("resp_abc", config) == "t-0", pieces


@FEW
@given(st.data())
def test_random_streams_in_random_pieces(data: st.DataObject) -> None:
    lines = st.sampled_from([
        b"data: x", b'data: {"choices":[]}', b"data:", b": ping", b"event: x", b"id: 1", b"data",
        "data: {\"c\":\"漢\U0001f600\"}".encode(), b"data: [DONE]", b"", b"\xff\xfe",
    ])  # fmt: skip
    ends = st.sampled_from([b"\n", b"\r\n", b"\r", b"\n\n", b""])
    events = data.draw(st.lists(st.builds(bytes.__add__, lines, ends).filter(bool), max_size=8))

    async def all_framings() -> None:
        for framing, raw in framed(events):
            places = st.lists(st.integers(1, max(len(raw), 1)), max_size=20, unique=True)
            pieces = cut(raw, sorted(data.draw(places)))
            owner = heard(framing, pieces, None)
            assert owner.got == (raw if owner.failure is None else b"")
            assert (owner.failure is None) == bool(b"".join(events).strip())

    asyncio.run(all_framings())


def test_usage_is_read_from_the_last_two_reads_wherever_they_are_cut() -> None:
    stream = b"".join(STREAMS["tokens, usage, [DONE]"])
    start = stream.index(b'"usage":{')
    for place in range(len(stream)):
        first, rest = stream[:place], stream[place:]
        assert usage_at_end(first + rest) == Usage(31, 17)
        told = usage_at_end(rest)
        assert told == (Usage(31, 17) if place <= start else None)


def test_usage_that_chunks_cut_in_two_is_not_misread() -> None:
    stream = b"".join(STREAMS["tokens, usage, [DONE]"])
    told = [
        usage_at_end(b"".join(map(chunk, cut(stream, places))) + LAST)
        for count in (1, 2)
        for places in itertools.combinations(range(1, len(stream)), count)
    ]
    assert set(told) == {Usage(31, 17), None}


# ---- over real sockets


@asynccontextmanager
async def serving(url: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a sidecar in front of one server."""
    told = {
        "tiers": [{"name": "t", "model": "m", "replicas": [url]}],
        "server": {"port": 0},
        "load": {"poll": False},  # so that the server is asked for nothing else
    }
    async with (
        Sidecar(parse(yaml.safe_dump(told)), fixed) as sidecar,
        httpx.AsyncClient(base_url=sidecar.url, trust_env=False, timeout=10) as http,
    ):
        yield http


async def ask(http: httpx.AsyncClient) -> httpx.Response:
    return await http.post("/v1/chat/completions", json=chat("x", stream=True))


async def test_a_client_gets_what_the_replica_wrote() -> None:
    written: list[list[bytes]] = []

    async def reply(asked: Asked) -> Any:
        for piece in written[-1]:
            yield piece
            await asyncio.sleep(0)

    async with scripted(reply) as upstream, serving(upstream.url) as http:
        for events in STREAMS.values():
            body = b"".join(map(chunk, events)) + LAST
            for step in (1, 2, 5, 17):
                written.append([HEAD, *cut(body, range(step, len(body), step))])
                answer = await ask(http)
                assert answer.status_code == 200
                assert answer.content == b"".join(events)
    assert len(upstream.asked) == len(written), "nothing was asked twice"


async def test_the_head_may_be_cut_anywhere_too() -> None:
    whole = HEAD + b"".join(map(chunk, STREAMS["CRLF"])) + LAST
    places = iter(range(1, len(HEAD) + 4))

    async def reply(asked: Asked) -> Any:
        for piece in cut(whole, [next(places)]):
            yield piece
            await asyncio.sleep(0.001)

    async with scripted(reply) as upstream, serving(upstream.url) as http:
        for _ in range(len(HEAD) + 3):
            answer = await ask(http)
            assert answer.content == b"".join(STREAMS["CRLF"])


async def test_a_replica_that_dies_at_any_byte_is_refused_for_or_seen_to_break() -> None:
    whole = HEAD + b"".join(map(chunk, STREAMS["several lines of data"])) + LAST
    lengths = range(0, len(whole), 5)
    left = iter(lengths)

    async def reply(asked: Asked) -> Any:
        yield whole[: next(left)]
        raise ConnectionResetError

    seen = []
    async with scripted(reply) as upstream:
        for _ in lengths:
            async with serving(upstream.url) as http:  # a new one: the replica does not rest yet
                seen.append(await ending(http))
    assert set(seen) == {"refused", "broken"}
    assert seen == sorted(seen, reverse=True), "refused before the first token, broken after it"


async def ending(http: httpx.AsyncClient) -> str:
    """How an answer that does not come to its end ends for the client."""
    try:
        answer = await ask(http)
    except (httpx.RemoteProtocolError, httpx.ReadError):
        return "broken"
    assert answer.status_code == 502
    assert answer.json()["error"]["code"] == "upstream_error"
    return "refused"
