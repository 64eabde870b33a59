"""Answer heads against h11, at every split, and for any bytes."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tier_router_proxy.http.messages import CHUNKED, CLOSE, LENGTH, NONE, Framing, Head
from tier_router_proxy.http.responses import BadAnswer, HeadReader

LIMIT = 4096
# Status, reason, headers, bytes behind the head; None while incomplete, "bad" for a refusal.
Read = tuple[int, bytes, list[tuple[bytes, bytes]], bytes] | str | None


def head_of(pieces: list[bytes], *, no_body: bool = False) -> tuple[Head, bytes] | None:
    reader = HeadReader(LIMIT, no_body=no_body)
    assert not reader.begun
    for i, piece in enumerate(pieces):
        found = reader.feed(piece)
        assert reader.begun
        if found is not None:
            head, rest = found
            return head, rest + b"".join(pieces[i + 1 :])
    return None


def ours(pieces: list[bytes]) -> Read:
    try:
        found = head_of(pieces)
    except BadAnswer:
        return "bad"
    if found is None:
        return None
    head, rest = found
    return head.status, head.reason, head.headers, rest


def theirs(data: bytes) -> Read:
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="GET", target="/", headers=[("host", "a")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(data)
    try:
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Response):
                rest = connection._receive_buffer
                return event.status_code, event.reason, list(event.headers), bytes(rest)
            if not isinstance(event, h11.InformationalResponse):
                return None
    except h11.RemoteProtocolError:
        return "bad"


OK = b"HTTP/1.1 200 OK\r\n"
SAME = {
    "plain": OK + b"content-length: 2\r\n\r\nhi",
    "events": OK + b"Content-Type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n5\r\n",
    "until close": OK + b"\r\nhello",
    "no reason": b"HTTP/1.1 200 \r\nA: b\r\n\r\n",
    "not even a blank": b"HTTP/1.1 404\r\n\r\n",
    "long reason": b"HTTP/1.1 503 Service not there, come again\r\n\r\n",
    "http/1.0": b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx",
    "interim": b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"A: b\r\n\r\n",
    "early hints": b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK + b"\r\n",
    "two interim": b"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 102 P\r\n\r\n" + OK + b"\r\n",
    "blanks": OK + b"A: \t b c \t\r\nB:\r\n\r\n",
    "high bytes": OK + b"A: \xc3\xa4\r\n\r\n",
    "cookies": OK + b"Set-Cookie: a=b\r\nSet-Cookie: c=d\r\n\r\n",
    "incomplete": OK + b"A: b\r\n",
    "incomplete line": b"HTTP/1.1 20",
}
REFUSED = {
    "not http": b"SSH-2.0-x\r\n\r\n",
    "no status": b"HTTP/1.1 OK\r\n\r\n",
    "short status": b"HTTP/1.1 20 OK\r\n\r\n",
    "long status": b"HTTP/1.1 2000 OK\r\n\r\n",
    "blank before the colon": OK + b"A : b\r\n\r\n",
    "no colon": OK + b"A\r\n\r\n",
    "no name": OK + b": b\r\n\r\n",
    "NUL": OK + b"A: \0\r\n\r\n",
    "two lengths": OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "signed length": OK + b"Content-Length: +1\r\n\r\n",
    "other coding": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
    "version": b"HTTX/1.1 200 OK\r\n\r\n",
}
# h11 accepts these. They would reach the client in the upstream's own bytes or be understood in
# another way by it, and no server behind this proxy sends them.
STRICTER = {
    "bare LF": b"HTTP/1.1 200 OK\nA: b\n\n",
    "control character": OK + b"A: b\x01\r\n\r\n",
    "obs-fold": OK + b"A: b\r\n c\r\n\r\n",
    "length and chunks": OK + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    "equal lengths": OK + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\n",
    "length list": OK + b"Content-Length: 1, 1\r\n\r\n",
    "chunks in HTTP/1.0": b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    "HTTP/2.0": b"HTTP/2.0 200 OK\r\n\r\n",
    "HTTP/1.2": b"HTTP/1.2 200 OK\r\n\r\n",
    "19 digits of length": OK + b"Content-Length: 1000000000000000000\r\n\r\n",
}
ALL = SAME | REFUSED | STRICTER


@pytest.mark.parametrize("data", SAME.values(), ids=SAME.keys())
def test_same_as_h11(data: bytes) -> None:
    assert ours([data]) == theirs(data) != "bad"


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED.keys())
def test_refused_as_by_h11(data: bytes) -> None:
    assert ours([data]) == theirs(data) == "bad"


@pytest.mark.parametrize("data", STRICTER.values(), ids=STRICTER.keys())
def test_stricter_than_h11(data: bytes) -> None:
    assert ours([data]) == "bad" != theirs(data)


def test_protocols_are_not_switched() -> None:
    data = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n"
    assert ours([data]) == theirs(data) == "bad"


@pytest.mark.parametrize("data", ALL.values(), ids=ALL.keys())
def test_every_split_gives_the_same(data: bytes) -> None:
    whole = ours([data])
    assert ours([data[i : i + 1] for i in range(len(data))]) == whole
    for i in range(1, len(data)):
        assert ours([data[:i], data[i:]]) == whole


_insert = st.sampled_from([b"\r\n", b"\n", b"\r", b" ", b":", b"\0", b"0", b",", b"\t", b"\xff"])


@given(st.sampled_from(list(ALL.values())), st.lists(st.tuples(st.integers(0, 90), _insert)))
@settings(max_examples=500, deadline=None, derandomize=True)
def test_what_passes_is_read_alike(data: bytes, inserts: list[tuple[int, bytes]]) -> None:
    for at, what in inserts[:3]:
        data = data[:at] + what + data[at:]
    mine = ours([data])
    if isinstance(mine, tuple):
        assert mine == theirs(data)


@given(st.lists(st.binary(max_size=60), max_size=6), st.booleans())
@settings(max_examples=300, deadline=None, derandomize=True)
def test_any_bytes_raise_only_bad_answer(pieces: list[bytes], real: bool) -> None:
    ours([OK, *pieces] if real else pieces)


@pytest.mark.parametrize(
    ("head", "framing", "keep"),
    [
        (OK + b"Content-Length: 7\r\n\r\n", LENGTH(7), True),
        (OK + b"Content-Length: 0\r\n\r\n", LENGTH(0), True),
        (OK + b"Transfer-Encoding: Chunked\r\n\r\n", CHUNKED, True),
        (OK + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n", CHUNKED, False),
        (OK + b"\r\n", CLOSE, False),
        (OK + b"Connection: keep-alive\r\n\r\n", CLOSE, False),
        (b"HTTP/1.1 204 No Content\r\n\r\n", NONE, True),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n", NONE, True),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 7\r\n\r\n", LENGTH(7), False),
        (
            b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 7\r\n\r\n",
            LENGTH(7),
            True,
        ),
        (OK + b"Connection: x, CLOSE\r\nContent-Length: 7\r\n\r\n", LENGTH(7), False),
    ],
)
def test_framing_and_keep_alive(head: bytes, framing: Framing, keep: bool) -> None:
    found = head_of([head])
    assert found is not None
    assert (found[0].framing, found[0].keep_alive) == (framing, keep)
    found = head_of([head], no_body=True)
    assert found is not None
    assert found[0].framing == NONE


def test_the_head_is_bounded() -> None:
    fits = OK + b"A: " + b"x" * (LIMIT - len(OK) - 7) + b"\r\n\r\n"
    assert len(fits) == LIMIT
    assert isinstance(ours([fits]), tuple)
    assert ours([fits[:-4] + b"x\r\n\r\n"]) == "bad"
    assert ours([OK, b"A: " + b"x" * LIMIT]) == "bad"
    # The limit is for one head, not for the bytes of the body that came with it.
    assert isinstance(ours([OK + b"\r\n" + b"x" * 2 * LIMIT]), tuple)


def test_what_is_not_http_is_refused_at_its_first_bytes() -> None:
    assert ours([b"SSH"]) == "bad"
    assert ours([b"HTT"]) is None
