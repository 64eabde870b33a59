"""What goes over the wire around a request: paths, codings, framing, headers, pages of browsers."""

import asyncio
import gzip
import json
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.sidecar.conftest import chat
from tests.sidecar.scripted import HEAD, LAST, Asked, Scripted, chunk, json_answer, says, scripted
from tier_router.testing import FakeVllm
from tier_router_proxy import attempt

CHAT = "/v1/chat/completions"
ORIGIN = "https://app.example.com"


async def behind(stage: Any, upstream: Scripted, **settings: Any) -> Any:
    """A sidecar in front of one scripted server."""
    tier = {"name": "t", "model": "m", "replicas": [upstream.url], **settings.pop("tier", {})}
    return await stage.serve(tiers=[tier], **settings)


async def raw(stage: Any, *pieces: bytes, until: bytes = b"") -> bytes:
    """What comes back on a connection for these bytes; `until` ends the reading early."""
    parts = urlsplit(stage.sidecar.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        return await (reader.readuntil(until) if until else reader.read())
    finally:
        writer.close()


# ---- paths and methods


@pytest.mark.parametrize(
    ("method", "path"), [("POST", f"{CHAT}/"), ("GET", "/v1/models/"), ("GET", "/health//"),
                         ("GET", "/v1/models/light/"), ("POST", "/v1/tier/decision/")]
)  # fmt: skip
async def test_trailing_slashes(stage: Any, method: str, path: str) -> None:
    http = await stage.serve()
    answer = await http.request(method, path, json=chat("hello") if method == "POST" else None)
    assert answer.status_code == 200
    assert {r.path for fake in stage.fakes for r in fake.requests} <= {CHAT}


async def test_head_and_options_without_cors(stage: Any) -> None:
    http = await stage.serve()
    got, head = await http.get("/v1/models"), await http.head("/v1/models")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == got.headers["content-length"]
    for path, allowed in ((CHAT, "POST, OPTIONS"), ("/v1/models", "GET, HEAD, OPTIONS"),
                          ("/v1/responses/x", "GET, HEAD, DELETE, OPTIONS")):  # fmt: skip
        answer = await http.options(path)
        assert (answer.status_code, answer.headers["allow"]) == (204, allowed)
    assert (await http.options("/nope")).status_code == 404
    asked = {"origin": ORIGIN, "access-control-request-method": "POST"}
    answer = await http.options(CHAT, headers=asked)
    assert not [name for name in answer.headers if name.startswith("access-control")]


# ---- browsers


async def test_a_page_may_call_where_the_configuration_says_so(stage: Any) -> None:
    http = await stage.serve(server={"cors": [ORIGIN], "api_keys": ["ours"]})
    asked = {
        "origin": ORIGIN,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization, content-type",
    }
    preflight = await http.options(CHAT, headers=asked)
    assert preflight.status_code == 204, "a preflight has no key"
    assert preflight.headers["access-control-allow-origin"] == ORIGIN
    assert "POST" in preflight.headers["access-control-allow-methods"]
    assert preflight.headers["access-control-allow-headers"] == "authorization, content-type"
    assert preflight.headers["vary"] == "origin"
    for key, status in (("ours", 200), ("wrong", 401)):
        headers = {"origin": ORIGIN, "authorization": f"Bearer {key}"}
        for stream in (False, True):
            answer = await stage.ask(headers=headers, stream=stream)
            assert answer.status_code == status
            assert answer.headers["access-control-allow-origin"] == ORIGIN
            assert "x-tier-router-tier" in answer.headers["access-control-expose-headers"]


async def test_other_pages_may_not(stage: Any) -> None:
    http = await stage.serve(server={"cors": [ORIGIN]})
    asked = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    for answer in (
        await http.options(CHAT, headers=asked),
        await stage.ask(headers={"origin": "https://evil.example"}),
        await stage.ask(),
    ):
        assert "access-control-allow-origin" not in answer.headers
        assert "origin" in answer.headers["vary"].lower()


async def test_all_pages_may_where_a_star_says_so(stage: Any) -> None:
    await stage.serve(server={"cors": "*"})
    answer = await stage.ask(headers={"origin": "https://any.example"})
    assert answer.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in answer.headers


# ---- codings and framing of requests


async def test_a_gzipped_body_is_read_and_goes_on_plain(stage: Any) -> None:
    http = await stage.serve()
    body = json.dumps(chat("prove it", temperature=1e-05)).encode()
    headers = {"content-encoding": "gzip", "content-type": "application/json"}
    answer = await http.post(CHAT, content=gzip.compress(body), headers=headers)
    assert answer.headers["x-tier-router-tier"] == "heavy"
    (sent,) = stage.heavy.requests
    assert sent.body == {**json.loads(body), "model": "m70"}
    assert b"1e-05" in sent.raw
    assert sent.header("content-encoding") is None
    assert sent.header("content-length") == str(len(sent.raw))
    for path in ("/v1/tier/decision", "/v1/embeddings"):
        told = await http.post(path, content=gzip.compress(body), headers=headers)
        assert told.status_code in (200, 400)
        assert b"JSON" not in told.content


@pytest.mark.parametrize(
    ("coding", "content", "status", "code"),
    [
        ("gzip", b"{}", 400, "invalid_request"),
        ("gzip", gzip.compress(b'{"a": "' + b"x" * 100 + b'"}')[:-9], 400, "invalid_request"),
        ("gzip", gzip.compress(b" " * 50_000_000), 413, "body_too_large"),
        ("gzip", gzip.compress(b" ") * 100, 400, "invalid_request"),
        ("gzip", b"", 400, "invalid_request"),
        ("br", b"{}", 415, "unsupported_content_encoding"),
    ],
    ids=["plain", "cut", "large", "many", "empty", "brotli"],
)
async def test_what_is_not_gzip_or_too_much(
    stage: Any, coding: str, content: bytes, status: int, code: str
) -> None:
    http = await stage.serve(server={"body_limit": "1MB"})
    answer = await http.post(CHAT, content=content, headers={"content-encoding": coding})
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert (await stage.ask()).status_code == 200


async def test_gzip_of_several_members_is_one_body(stage: Any) -> None:
    http = await stage.serve()
    body = json.dumps(chat("hello")).encode()
    twice = gzip.compress(body[:20]) + gzip.compress(body[20:])
    answer = await http.post(CHAT, content=twice, headers={"content-encoding": "gzip"})
    assert answer.status_code == 200


async def test_chunked_and_expected_bodies(stage: Any) -> None:
    await stage.serve()
    body = json.dumps(chat("hello")).encode()
    line = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n".encode()
    head = line + b"transfer-encoding: chunked\r\n\r\n"
    pieces = [chunk(body[at : at + 7]) for at in range(0, len(body), 7)]
    assert (await raw(stage, head, *pieces, LAST)).startswith(b"HTTP/1.1 200 OK")
    head = line + b"expect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(body)
    told = await raw(stage, head, until=b"\r\n\r\n")
    assert told == b"HTTP/1.1 100 Continue\r\n\r\n"
    told = await raw(stage, head, body)
    assert told.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK")
    assert all(r.header("expect") is None for fake in stage.fakes for r in fake.requests)


# ---- answers


async def test_an_upstreams_gzip_passes_untouched(stage: Any) -> None:
    packed = gzip.compress(b'{"id": "x", "choices": []}')
    answer = json_answer(packed, more=b"content-encoding: gzip\r\n")
    async with scripted(says(answer)) as upstream:
        http = await behind(stage, upstream)
        async with http.stream("POST", CHAT, json=chat("x")) as told:
            assert b"".join([piece async for piece in told.aiter_raw()]) == packed
            assert told.headers["content-encoding"] == "gzip"
        assert (await http.post(CHAT, json=chat("x"))).json()["id"] == "x"
        assert "accept-encoding" not in upstream.asked[0].headers


async def test_a_compressed_stream_is_not_held_back(stage: Any) -> None:
    first, rest = b"\x1f\x8b" + b"a" * 20, b"b" * 20
    head = HEAD.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n")
    go_on = asyncio.Event()

    async def reply(asked: Asked) -> Any:
        yield head + chunk(first)
        await go_on.wait()
        yield chunk(rest) + LAST

    async with scripted(reply) as upstream:
        http = await behind(stage, upstream)
        async with http.stream("POST", CHAT, json=chat("x", stream=True)) as told:
            pieces = told.aiter_raw()
            assert await anext(pieces) == first
            go_on.set()
            assert await anext(pieces) == rest


STREAMS = {
    "usage alone": b'data: {"choices":[{"delta":{"content":"x"}}]}\n\ndata: {"choices":[],"usage":'
    b'{"prompt_tokens":3,"completion_tokens":1}}\n\ndata: [DONE]\n\n',
    "no choices at all": b'data: {"usage":null}\n\ndata: {"choices":[]}\n\ndata: [DONE]\n\n',
    "CRLF": b'data: {"choices":[]}\r\n\r\ndata: [DONE]\r\n\r\n',
    "CR": b'data: {"choices":[]}\r\rdata: [DONE]\r\r',
    "data on several lines": b'data: {"choices":\ndata: []}\n\ndata: [DONE]\n\n',
    "no [DONE]": b'data: {"choices":[]}\n\n',
    "comments": b': ping\n\n: ping\n\ndata: {"choices":[]}\n\n: ping\ndata: [DONE]\n\n',
    "other fields": b'event: x\nid: 5\nretry: 10\ndata:{"choices":[]}\n\n',
    "nothing but a comment": b": nothing to say\n\n",
    "four-byte characters": 'data: {"c":"\U0001f600é漢"}\n\n'.encode() * 3,
}


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("size", [1, 3, 1000])
async def test_streams_pass_byte_for_byte(stage: Any, name: str, size: int) -> None:
    stream = STREAMS[name]
    chunks = [chunk(stream[at : at + size]) for at in range(0, len(stream), size)]
    async with scripted(says(HEAD, *chunks, LAST)) as upstream:
        http = await behind(stage, upstream)
        answer = await http.post(CHAT, json=chat("x", stream=True))
    assert answer.status_code == 200
    assert answer.content == stream


async def test_a_character_that_is_cut_in_two_reads_arrives_whole(stage: Any) -> None:
    stream = 'data: {"c":"é漢\U0001f600"}\n\n'.encode()
    head = HEAD.replace(b"transfer-encoding: chunked", b"content-length: %d" % len(stream))
    singles = [stream[at : at + 1] for at in range(len(stream))]
    async with scripted(says(head, *singles, pause=0.001)) as upstream:
        http = await behind(stage, upstream)
        answer = await http.post(CHAT, json=chat("x", stream=True))
    assert answer.content == stream


async def test_comments_are_not_held_back_for_ever(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "HELD_SECONDS", 0.05)
    go_on = asyncio.Event()

    async def reply(asked: Asked) -> Any:
        yield HEAD + chunk(b": still at it\n\n")
        await go_on.wait()
        yield chunk(b'data: {"choices":[]}\n\n') + LAST

    async with scripted(reply) as upstream:
        http = await behind(stage, upstream)
        async with http.stream("POST", CHAT, json=chat("x", stream=True)) as told:
            pieces = told.aiter_raw()
            assert await anext(pieces) == b": still at it\n\n"
            go_on.set()
            assert b"".join([piece async for piece in pieces]) == b'data: {"choices":[]}\n\n'


async def test_a_replica_that_only_commented_is_replaced(stage: Any) -> None:
    async with scripted(says(HEAD, chunk(b": ping\n\n"), b"zz\r\n")) as broken:
        tiers = [
            {"name": "t", "model": "m", "replicas": [broken.url]},
            {"name": "u", "model": "m70", "replicas": [stage.heavy.url]},
        ]
        http = await stage.serve(tiers=tiers)
        answer = await http.post(CHAT, json=chat("x", stream=True))
    assert answer.headers["x-tier-router-tier"] == "u"
    assert b": ping" not in answer.content


# ---- headers


async def test_what_no_upstream_gets(stage: Any) -> None:
    async with FakeVllm("m", api_key="theirs") as fake:
        tier = {"name": "t", "model": "m", "replicas": [fake.url], "api_key": "theirs"}
        await stage.serve(tiers=[tier], server={"api_keys": ["ours"]})
        headers = {
            "authorization": "Bearer ours",
            "x-api-key": "ours",
            "connection": "keep-alive, x-mine",
            "x-mine": "1",
            "keep-alive": "5",
            "te": "trailers",
            "proxy-authorization": "Basic x",
            "x-tier-router-tier": "t",
            "x-custom": "passes",
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "tracestate": "vendor=1",
            "x-request-id": "abc",
        }
        answer = await stage.ask(headers=headers)
    assert answer.status_code == 200
    sent = dict(fake.requests[0].headers)
    assert sent["authorization"] == "Bearer theirs"
    assert "ours" not in str(sent)
    gone = {"x-api-key", "connection", "x-mine", "keep-alive", "te", "proxy-authorization",
            "x-tier-router-tier"}  # fmt: skip
    assert not gone & sent.keys()
    for name in ("x-custom", "traceparent", "tracestate", "x-request-id"):
        assert sent[name] == headers[name]
    assert answer.headers["x-request-id"] == "abc"


async def test_no_trace_is_made_up(stage: Any) -> None:
    await stage.serve()
    await stage.ask()
    (sent,) = [request for fake in stage.light for request in fake.requests]
    assert sent.header("traceparent") is None


async def test_what_no_client_gets(stage: Any) -> None:
    more = (
        b"connection: keep-alive, x-hop\r\nx-hop: 1\r\nkeep-alive: timeout=5\r\n"
        b"proxy-authenticate: Basic\r\nauthorization: Bearer theirs\r\nx-api-key: theirs\r\n"
        b"x-echo: key=theirs;\r\naccess-control-allow-origin: *\r\nx-tier-router-tier: forged\r\n"
        b"x-ratelimit-remaining: 5\r\n"
    )
    async with scripted(says(json_answer(b"{}", more=more))) as upstream:
        http = await behind(stage, upstream, tier={"api_key": "theirs"})
        answer = await http.post(CHAT, json=chat("x"))
    assert "theirs" not in str(answer.headers)
    gone = {"x-hop", "keep-alive", "proxy-authenticate", "access-control-allow-origin", "x-echo"}
    assert not gone & set(answer.headers)
    assert answer.headers["x-tier-router-tier"] == "t"
    assert answer.headers["x-ratelimit-remaining"] == "5"


async def test_a_refused_key_of_ours_is_no_business_of_the_clients(stage: Any) -> None:
    body = b'{"error": {"message": "Incorrect API key provided: theirs", "code": "invalid"}}'
    async with scripted(says(json_answer(body, b"401 Unauthorized"))) as upstream:
        http = await behind(stage, upstream, tier={"api_key": "theirs"})
        answer = await http.post(CHAT, json=chat("x"))
        assert answer.status_code == 502
        assert "401 refuses the tier's key" in answer.json()["error"]["message"]
        assert "theirs" not in answer.text
    async with scripted(says(json_answer(body, b"401 Unauthorized"))) as upstream:
        tier = {"name": "u", "model": "m", "replicas": [upstream.url]}
        await stage.sidecar.reload(stage.config(tiers=[tier]))
        answer = await http.post(CHAT, json=chat("x"), headers={"authorization": "Bearer mine"})
        assert (answer.status_code, answer.content) == (401, body), "it was the client's own"
