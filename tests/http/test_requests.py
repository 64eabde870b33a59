"""Requests out of bytes: against h11, at every split, and for any bytes at all."""

from __future__ import annotations

import re
from itertools import pairwise

import h11
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tier_router_proxy.http.messages import Request
from tier_router_proxy.http.requests import MAX_READY, Limits, Refusal, RequestReader, Stage

SMALL = Limits(head=2048, body=4096, headers=20)
# method, target, headers, body; or the status of a refusal.
Seen = tuple[bytes, bytes, list[tuple[bytes, bytes]], bytes] | int


def drain(reader: RequestReader) -> list[Seen]:
    seen: list[Seen] = []
    while reader.ready:
        item = reader.ready.popleft()
        if isinstance(item, Refusal):
            seen.append(item.status)
        else:
            seen.append((item.method, item.target, item.headers, item.body))
    return seen


def ours(pieces: list[bytes], limits: Limits = SMALL) -> list[Seen]:
    reader = RequestReader(limits)
    for piece in pieces:
        reader.feed(piece)
    return drain(reader)


def theirs(data: bytes) -> list[Seen]:
    """What h11 makes of the same bytes; 400 stands for any refusal."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=4096)
    connection.receive_data(data)
    seen: list[Seen] = []
    head: h11.Request | None = None
    body = b""
    try:
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Request):
                head, body = event, b""
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                seen.append((head.method, head.target, list(head.headers), body))
                connection.send(h11.Response(status_code=404, headers=[("content-length", "0")]))
                connection.send(h11.EndOfMessage())
                if connection.our_state is not h11.DONE:
                    return seen
                connection.start_next_cycle()
            else:
                return seen
    except h11.RemoteProtocolError:
        return [*seen, 400]


H = b"Host: a\r\n"
POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"

# Both accept these, and see the same.
SAME = {
    "get": b"GET / HTTP/1.1\r\n" + H + b"\r\n",
    "query": b"GET /a?b=c&d=%20 HTTP/1.1\r\n" + H + b"\r\n",
    "absolute": b"GET http://a:8000/v1/models?x HTTP/1.1\r\n" + H + b"\r\n",
    "asterisk": b"OPTIONS * HTTP/1.1\r\n" + H + b"\r\n",
    "length": POST + b"Content-Length: 5\r\n\r\nhello",
    "no body": POST + b"Content-Length: 0\r\n\r\n",
    "chunks": CHUNKED + b"5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n",
    "upper-case size": CHUNKED + b"A\r\n0123456789\r\n0\r\n\r\n",
    "leading zeros": CHUNKED + b"0005\r\nhello\r\n000\r\n\r\n",
    "chunk extension": CHUNKED + b'5;a=b;c="d"\r\nhello\r\n0\r\n\r\n',
    "trailers": CHUNKED + b"1\r\nx\r\n0\r\nX-Sum: 1\r\nX-More: 2\r\n\r\n",
    "end inside data": CHUNKED + b"7\r\n0\r\n\r\nab\r\n0\r\n\r\n",
    "blanks around values": POST + b"X:\t a b \t\r\nContent-Length:  2  \r\n\r\nhi",
    "empty value": POST + b"X:\r\nY: \r\n\r\n",
    "odd token": b"GET / HTTP/1.1\r\nHost: a\r\n!#$%&'*+-.^_`|~: x\r\n\r\n",
    "high bytes in a value": b"GET / HTTP/1.1\r\nHost: a\r\nX: \xc3\xa4\xff\r\n\r\n",
    "repeated fields": b"GET / HTTP/1.1\r\nHost: a\r\nA: 1\r\nA: 2\r\n\r\n",
    "empty host": b"GET / HTTP/1.1\r\nHost:\r\n\r\n",
    "http/1.0": b"GET / HTTP/1.0\r\n\r\n",
    "http/1.0 body": b"POST / HTTP/1.0\r\nContent-Length: 2\r\n\r\nhi",
    "http/1.0 keep-alive": b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "close": b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    "pipelined": POST
    + b"Content-Length: 2\r\n\r\nhi"
    + CHUNKED
    + b"1\r\nx\r\n0\r\n\r\n"
    + POST
    + b"\r\n",
    "trailers, then another": CHUNKED + b"0\r\nX-Last: 1\r\n\r\nGET /b HTTP/1.1\r\nHost: b\r\n\r\n",
    "unfinished": POST + b"Content-Length: 5\r\n\r\nhell",
}
# Both refuse these.
REFUSED = {
    "no request line": b"hello\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(30) + b"\r\n\r\n",
    "blank in the name": b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
    "no colon": b"GET / HTTP/1.1\r\nHost: a\r\nwhat\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
    "NUL in a value": b"GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n",
    "control in a value": b"GET / HTTP/1.1\r\nHost: a\r\nX: a\x0bb\r\n\r\n",
    "negative length": POST + b"Content-Length: -1\r\n\r\n",
    "signed length": POST + b"Content-Length: +1\r\n\r\nx",
    "hex length": POST + b"Content-Length: 0x1\r\n\r\nx",
    "empty length": POST + b"Content-Length:\r\n\r\n",
    "two lengths": POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
    "two lengths in one": POST + b"Content-Length: 1, 2\r\n\r\nxx",
    "other coding": POST + b"Transfer-Encoding: gzip\r\n\r\n",
    "two codings": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "not quite chunked": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "signed chunk": CHUNKED + b"+1\r\nx\r\n0\r\n\r\n",
    "prefixed chunk": CHUNKED + b"0x1\r\nx\r\n0\r\n\r\n",
    "empty chunk size": CHUNKED + b"\r\nx\r\n0\r\n\r\n",
    "long chunk": CHUNKED + b"1\r\nxy\r\n0\r\n\r\n",
    "huge chunk": CHUNKED + b"fffffffffffffffffffffff\r\n",
    "version in lower case": b"GET / http/1.1\r\nHost: a\r\n\r\n",
    "blank in the target": b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
    "control in the target": b"GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n",
}
# h11 accepts these and we do not: they would have to be understood alike by the upstream, or they
# have no business here.
STRICTER = {
    "obs-fold": b"GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
    "obs-fold by tab": b"GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n\tb\r\n\r\n",
    "bare LF": b"GET / HTTP/1.1\nHost: a\n\n",
    "length and chunks": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "equal lengths": POST + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\nx",
    "equal lengths in one": POST + b"Content-Length: 1, 1\r\n\r\nx",
    "method of another protocol": b"SOURCE / HTTP/1.1\r\nHost: a\r\n\r\n",
    "unknown method": b"BREW / HTTP/1.1\r\nHost: a\r\n\r\n",
    "CONNECT": b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n",
    "HTTP/2.0": b"GET / HTTP/2.0\r\nHost: a\r\n\r\n",
    "HTTP/0.9 by number": b"GET / HTTP/0.9\r\n\r\n",
    "HTTP/1.2": b"GET / HTTP/1.2\r\nHost: a\r\n\r\n",
    "host with a path": b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
    "host with a user": b"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n",
    "host with a blank": b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
    "chunks in HTTP/1.0": b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "blank after the chunk size": CHUNKED + b"1 \r\nx\r\n0\r\n\r\n",
    "upgrade of CONNECT kind": b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\n\r\n",
}
# We accept these and h11 does not.
LOOSER = {
    # RFC 9112, 2.2: a server should ignore at least one empty line before the request line.
    "line break in front": b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    # RFC 9112, 3: blanks around the target may be taken for one. No border of a message moves.
    "blanks before the target": b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
    "blanks behind the target": b"GET /  HTTP/1.1\r\nHost: a\r\n\r\n",
}


@pytest.mark.parametrize("data", SAME.values(), ids=SAME.keys())
def test_same_as_h11(data: bytes) -> None:
    assert ours([data]) == theirs(data)
    assert 400 not in ours([data])


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED.keys())
def test_refused_as_by_h11(data: bytes) -> None:
    assert ours([data]) == theirs(data) == [400]


@pytest.mark.parametrize("data", STRICTER.values(), ids=STRICTER.keys())
def test_stricter_than_h11(data: bytes) -> None:
    assert ours([data]) == [400]
    assert 400 not in theirs(data)


@pytest.mark.parametrize("data", LOOSER.values(), ids=LOOSER.keys())
def test_looser_than_h11(data: bytes) -> None:
    assert theirs(data) == [400]
    assert ours([data]) == theirs(for_h11(data))
    assert 400 not in ours([data])


UPGRADES = {
    "upgrade": b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    "upgrade with a body": POST
    + b"Connection: upgrade, http2-settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n"
    + b"Content-Length: 2\r\n\r\nhi"
    + b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n",
    "upgrade with chunks": CHUNKED[:-2]
    + b"Connection: upgrade\r\nUpgrade: h2c\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("data", UPGRADES.values(), ids=UPGRADES.keys())
def test_upgrades_are_ignored(data: bytes) -> None:
    plain = re.sub(rb"Upgrade: [a-z0-9]+\r\n", b"", data)
    assert ours([data]) == theirs(plain)
    assert 400 not in ours([data])


def test_coding_names_have_no_case() -> None:  # h11 rewrites the header, so it is not in SAME
    data = POST + b"Transfer-Encoding: CHUNKED\r\n\r\n1\r\nx\r\n0\r\n\r\n"
    request = one(data)
    assert isinstance(request, Request)
    assert request.body == b"x"


def test_the_preface_of_http2_is_refused() -> None:
    assert ours([b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]) == [400]


def test_upgrade_of_http10_stays_http10() -> None:
    reader = RequestReader(SMALL)
    reader.feed(b"GET / HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n")
    request = reader.ready.popleft()
    assert isinstance(request, Request)
    assert request.http10
    assert not request.keep_alive


ALL = SAME | REFUSED | STRICTER | LOOSER | UPGRADES


@pytest.mark.parametrize("data", ALL.values(), ids=ALL.keys())
def test_every_split_gives_the_same(data: bytes) -> None:
    whole = ours([data])
    assert ours([data[i : i + 1] for i in range(len(data))]) == whole
    for i in range(1, len(data)):
        assert ours([data[:i], data[i:]]) == whole


def for_h11(data: bytes) -> bytes:
    """The same requests without the liberties of LOOSER, which h11 does not allow."""
    data = re.sub(rb"(^|\r\n\r\n)[\r\n]+(?=[A-Z]+ )", rb"\1", data)
    return re.sub(rb"([A-Z]+) +(\S+) +(HTTP/1\.[01]\r\n)", rb"\1 \2 \3", data)


# h11 wants ASCII in a target. Other bytes are passed on as they came; no border moves by them.
_HIGH_TARGET = re.compile(rb"[A-Z]+ +\S*[\x80-\xff]\S* +HTTP/1")
_parts = st.sampled_from(list(ALL.values()))


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(_parts))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        kind = draw(st.integers(0, 2))
        if kind == 0:
            data[at:at] = draw(
                st.sampled_from(
                    [
                        b"\r\n",
                        b"\n",
                        b"\r",
                        b" ",
                        b"\t",
                        b":",
                        b"\0",
                        b"0",
                        b"1",
                        b",",
                        b";",
                        b"\xff",
                    ]
                )
            )
        elif kind == 1:
            del data[at : at + draw(st.integers(1, 4))]
        elif at < len(data):
            data[at] = draw(st.integers(0, 255))
    return bytes(data)


@given(mutated())
@settings(max_examples=600, deadline=None, derandomize=True)
def test_nothing_is_accepted_that_h11_reads_differently(data: bytes) -> None:
    mine, reference = ours([data]), theirs(for_h11(data))
    if _HIGH_TARGET.search(data) or b"pgrade" in data:  # the latter have tests of their own
        return
    for i, seen in enumerate(mine):
        if seen == 400 or isinstance(seen, int):
            return
        if i < len(reference) and reference[i] == seen:
            continue
        pytest.fail(f"ours {mine}, h11 {reference}")


@given(st.lists(st.binary(max_size=60), max_size=6))
@example([b"\r\n" * 1500])
@settings(max_examples=300, deadline=None, derandomize=True)
def test_any_bytes_raise_nothing(pieces: list[bytes]) -> None:
    ours(pieces)


@given(mutated(), st.lists(st.integers(0, 400), max_size=4))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_splits_of_mutated_requests_give_the_same(data: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted({min(cut, len(data)) for cut in cuts}), len(data)]
    pieces = [data[a:b] for a, b in pairwise(edges)]
    assert ours(pieces) == ours([data])


# Limits.


def one(data: bytes, limits: Limits = SMALL) -> Request | Refusal:
    reader = RequestReader(limits)
    reader.feed(data)
    assert len(reader.ready) == 1
    return reader.ready[0]


def test_head_limit_in_one_piece_and_while_it_grows() -> None:
    long = b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 2048
    reader = RequestReader(SMALL)
    reader.feed(long)
    assert drain(reader) == [431]
    assert ours([long + b"\r\n\r\n"]) == [431]
    assert ours([b"GET /" + b"x" * 3000 + b" HTTP/1.1\r\nHost: a\r\n\r\n"]) == [431]
    assert ours([b"GET / HTTP/1.1\r\n" + b"a:b\r\n" * 25 + b"\r\n"]) == [431]
    assert ours([b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 1900 + b"\r\n\r\n"]) != [431]


def test_body_limit_before_and_while_reading() -> None:
    refusal = one(POST + b"Content-Length: 4097\r\n\r\n")
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.code) == (413, "body_too_large")
    assert ours([CHUNKED, b"fff\r\n" + b"x" * 0xFFF + b"\r\n", b"2\r\nx"]) == []
    assert ours([CHUNKED, b"fff\r\n" + b"x" * 0xFFF + b"\r\n", b"2\r\nxx"]) == [413]
    assert isinstance(one(POST + b"Content-Length: 4096\r\n\r\n" + b"x" * 4096), Request)


def test_chunks_that_are_mostly_framing_are_refused() -> None:
    extension = b"1;" + b"x" * 500 + b"\r\na\r\n"
    assert ours([CHUNKED, *[extension] * 10]) == [400]
    assert ours([CHUNKED, *[b"1\r\na\r\n"] * 1000, b"0\r\n\r\n"])[0] != 400


def test_trailers_are_bounded_and_never_headers() -> None:
    assert ours([CHUNKED + b"0\r\n", *[b"a: b\r\n"] * 1000]) == [400]
    [first, second] = ours([CHUNKED + b"0\r\nEvil: 1\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"])
    assert not isinstance(first, int)
    assert not isinstance(second, int)
    assert second[2] == [(b"host", b"a")]


def test_small_pieces_of_a_body_are_gathered() -> None:
    reader = RequestReader(Limits())
    reader.feed(CHUNKED)
    for _ in range(1000):
        reader.feed(b"2\r\nab\r\n")
    assert len(reader._body) == 2
    reader.feed(b"2000\r\n" + b"x" * 0x2000 + b"\r\n1\r\nc\r\n0\r\n\r\n")
    request = reader.ready.popleft()
    assert isinstance(request, Request)
    assert request.body == b"ab" * 1000 + b"x" * 0x2000 + b"c"
    assert type(request.body) is bytes


def test_a_flood_of_requests_is_refused_behind_those_that_fit() -> None:
    seen = ours([b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * (MAX_READY + 5)])
    assert seen[-1] == 400
    assert len(seen) == MAX_READY + 1


def test_stages_and_expectation() -> None:
    reader = RequestReader(SMALL)
    reader.feed(b"\r\n")
    assert reader.stage is Stage.IDLE
    reader.feed(b"P")
    assert reader.stage is Stage.HEAD
    reader.feed(POST[1:] + b"Expect: 100-Continue\r\nContent-Length: 2\r\n\r\n")
    assert reader.stage is Stage.BODY
    assert reader.expecting
    reader.feed(b"hi")
    assert reader.stage is Stage.IDLE
    assert not reader.expecting


@pytest.mark.parametrize(
    "data",
    [
        POST + b"Expect: 100-continue\r\nContent-Length: 5000\r\n\r\n",  # refused
        POST + b"Expect: 100-continue\r\n\r\n",  # no body
        b"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n",
        POST + b"Expect: something\r\nContent-Length: 2\r\n\r\n",
    ],
)
def test_no_expectation(data: bytes) -> None:
    reader = RequestReader(SMALL)
    reader.feed(data)
    assert not reader.expecting


def test_refusals_know_head() -> None:
    refusal = one(b"HEAD / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n")
    assert isinstance(refusal, Refusal)
    assert refusal.head
    reader = RequestReader(SMALL)
    reader.feed(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\nnonsense\r\n\r\n")
    reader.ready.popleft()
    refusal = reader.ready.popleft()
    assert isinstance(refusal, Refusal)
    assert not refusal.head


@pytest.mark.parametrize(
    ("data", "keep", "http10"),
    [
        (SAME["get"], True, False),
        (SAME["close"], False, False),
        (SAME["http/1.0"], False, True),
        (SAME["http/1.0 keep-alive"], True, True),
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Close\r\n\r\n", False, False),
    ],
)
def test_keep_alive(data: bytes, keep: bool, http10: bool) -> None:
    request = one(data)
    assert isinstance(request, Request)
    assert (request.keep_alive, request.http10) == (keep, http10)


def test_nothing_is_read_behind_close_or_a_refusal() -> None:
    assert len(ours([SAME["close"] + SAME["get"]])) == 1
    assert ours([REFUSED["no host"], SAME["get"]]) == [400]


def test_a_refusal_quotes_no_client_bytes() -> None:
    for data in REFUSED.values():
        refusal = one(data)
        assert isinstance(refusal, Refusal)
        assert refusal.message.isprintable()


def test_time_out() -> None:
    reader = RequestReader(SMALL)
    reader.feed(b"GET / HT")
    reader.time_out()
    refusal = reader.ready.popleft()
    assert isinstance(refusal, Refusal)
    assert (refusal.status, "headers" in refusal.message) == (408, True)
    reader.feed(b"TP/1.1\r\n")
    assert not reader.ready
