"""The walker against h11's reader: same data, same end, at every split."""

from __future__ import annotations

from itertools import pairwise

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tier_router_proxy.http.framing import (
    MAX_CHUNK_LINE,
    MAX_TRAILER_BYTES,
    FramingError,
    Walker,
)
from tier_router_proxy.http.messages import CHUNKED, CLOSE, LENGTH, NONE, Framing

# Payload, whether the body is complete, and the bytes behind it; None for a refusal.
Walked = tuple[bytes, bool, bytes] | None


def walked(pieces: list[bytes], framing: Framing = CHUNKED) -> Walked:
    by_feed, by_payload = Walker(framing), Walker(framing)
    data, raw, rest = b"", b"", b""
    try:
        for piece in pieces:
            end = by_feed.feed(piece)
            parts, same = by_payload.payload(piece)
            assert end == same
            assert by_feed.done == by_payload.done
            raw += piece[:end]
            rest += piece[end:]
            data += b"".join(parts)
    except FramingError:
        return None
    assert raw + rest == b"".join(pieces)
    return data, by_feed.done, rest


def theirs(body: bytes) -> Walked:
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="GET", target="/", headers=[("host", "a")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + body)
    data = b""
    done = False
    try:
        while not done:
            event = connection.next_event()
            if isinstance(event, h11.Data):
                data += bytes(event.data)
            done = isinstance(event, h11.EndOfMessage)
            if event is h11.NEED_DATA:
                return data, False, b""
    except h11.RemoteProtocolError:
        return None
    return data, True, connection.trailing_data[0]


SAME = {
    "empty": b"0\r\n\r\n",
    "two chunks": b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
    "events": b'10\r\ndata: {"a": 1}\n\n\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n',
    "the end inside the data": b"c\r\n0\r\n\r\n0\r\n\r\n\r\n\r\n0\r\n\r\n",
    "hex of both cases": b"aA\r\n" + b"x" * 0xAA + b"\r\n0\r\n\r\n",
    "zeros in front": b"0001\r\nx\r\n0000\r\n\r\n",
    "extension": b"1;a=b\r\nx\r\n0;last\r\n\r\n",
    "trailers": b"1\r\nx\r\n0\r\nA: b\r\nC:d\r\n\r\n",
    "bytes behind": b"1\r\nx\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n",
    "open in the data": b"5\r\nhel",
    "open in the size": b"5\r\nhello\r\n1",
    "open at the end": b"0\r\n",
}
REFUSED = {
    "no size": b"\r\n",
    "no hex": b"g\r\n",
    "sign": b"+1\r\nx\r\n",
    "minus": b"-1\r\nx\r\n",
    "prefix": b"0x1\r\nx\r\n",
    "underscore": b"1_0\r\n" + b"x" * 16 + b"\r\n",
    "data too long": b"1\r\nxy\r\n0\r\n\r\n",
    "data too short": b"3\r\nx\r\n0\r\n\r\n",
    "blank in front": b" 1\r\nx\r\n0\r\n\r\n",
    "bare LF behind the size": b"1\nx\r\n0\r\n\r\n",
    "blank before an extension": b"1 ;a\r\nx\r\n0\r\n\r\n",
    "far too large": b"f" * 21 + b"\r\n",
}
# h11 lets these pass. What a client does with them is unknown, so they end here.
STRICTER = {
    "blank behind the size": b"1 \r\nx\r\n0\r\n\r\n",
    "bare LF behind trailers": b"0\r\nA: b\n\n",
    "folded trailer": b"0\r\nA: b\r\n c\r\n\r\n",
    "beyond 63 bits": b"8000000000000000\r\n",
    "seventeen digits": b"0" * 16 + b"1\r\nx\r\n0\r\n\r\n",
}
ALL = SAME | REFUSED | STRICTER


@pytest.mark.parametrize("body", SAME.values(), ids=SAME.keys())
def test_same_as_h11(body: bytes) -> None:
    assert walked([body]) == theirs(body)
    assert walked([body]) is not None


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED.keys())
def test_refused_as_by_h11(body: bytes) -> None:
    assert walked([body]) is theirs(body) is None


@pytest.mark.parametrize("body", STRICTER.values(), ids=STRICTER.keys())
def test_stricter_than_h11(body: bytes) -> None:
    assert walked([body]) is None
    assert theirs(body) is not None


@pytest.mark.parametrize("body", ALL.values(), ids=ALL.keys())
def test_every_split_gives_the_same(body: bytes) -> None:
    whole = walked([body])
    assert walked([body[i : i + 1] for i in range(len(body))]) == whole
    for i in range(1, len(body)):
        assert walked([body[:i], body[i:]]) == whole


_tokens = st.sampled_from(
    [b"0", b"1", b"5", b"a", b"\r\n", b"\r", b"\n", b";", b" ", b"x", b"hello", b":", b"-", b"\0"]
)


@given(st.lists(_tokens, max_size=14), st.lists(st.integers(0, 40), max_size=3))
@settings(max_examples=1000, deadline=None, derandomize=True)
def test_what_passes_is_read_alike(tokens: list[bytes], cuts: list[int]) -> None:
    body = b"".join(tokens)
    mine = walked([body])
    edges = [0, *sorted({min(cut, len(body)) for cut in cuts}), len(body)]
    assert walked([body[a:b] for a, b in pairwise(edges)]) == mine
    if mine is not None and mine[1]:
        assert theirs(body) == mine


@given(st.lists(st.binary(max_size=40), max_size=6))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_any_bytes_raise_nothing_else(pieces: list[bytes]) -> None:
    walked(pieces)


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=8), st.integers(1, 20))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_chunks_of_anything_come_back(chunks: list[bytes], step: int) -> None:
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    pieces = [body[i : i + step] for i in range(0, len(body), step)]
    assert walked([*pieces, b"next"]) == (b"".join(chunks), True, b"next")


def test_counted_endless_and_no_body() -> None:
    assert walked([b"he", b"llo", b"!"], LENGTH(5)) == (b"hello", True, b"!")
    assert walked([b"he"], LENGTH(5)) == (b"he", False, b"")
    assert walked([b"x"], LENGTH(0)) == (b"", True, b"x")
    assert walked([b"x"], NONE) == (b"", True, b"x")
    assert walked([b"a", b"b"], CLOSE) == (b"ab", False, b"")


def test_feed_and_payload_begin_at_an_offset() -> None:
    assert Walker(LENGTH(2)).feed(b"..hi!", 2) == 4
    assert Walker(CHUNKED).payload(b"..1\r\nx\r\n0\r\n\r\n!", 2) == ([b"x"], 13)
    assert Walker(CLOSE).payload(b"..hi", 2) == ([b"hi"], 4)


def test_lines_are_bounded() -> None:
    assert walked([b"1;" + b"x" * (MAX_CHUNK_LINE - 4) + b"\r\nx\r\n0\r\n\r\n"]) is not None
    assert walked([b"1;" + b"x" * MAX_CHUNK_LINE + b"\r\nx\r\n0\r\n\r\n"]) is None
    assert walked([b"1;" + b"x" * MAX_CHUNK_LINE]) is None
    assert walked([b"0\r\n", *[b"a: bcdefgh\r\n"] * (MAX_TRAILER_BYTES // 12 - 1), b"\r\n"])
    assert walked([b"0\r\n", *[b"a: bcdefgh\r\n"] * (MAX_TRAILER_BYTES // 12 + 1)]) is None
