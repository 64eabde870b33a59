"""Header policy, targets, and the heads that are written."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tier_router_proxy.http
from tier_router_proxy.http.answers import answer_head
from tier_router_proxy.http.messages import (
    CHUNKED,
    CLOSE,
    LENGTH,
    NONE,
    Framing,
    Head,
    Headers,
    Request,
    client_headers,
    connection_tokens,
    encode_headers,
    origin_form,
    path_of,
    request_head,
    upstream_headers,
)


@pytest.mark.parametrize(
    ("target", "origin", "path"),
    [
        (b"/", b"/", b"/"),
        (b"/v1/x?a=b?c", b"/v1/x?a=b?c", b"/v1/x"),
        (b"/a://b", b"/a://b", b"/a://b"),
        (b"http://h/v1?x", b"/v1?x", b"/v1"),
        (b"http://h:80", b"/", b"/"),
        (b"http://h?a=/b", b"/?a=/b", b"/"),
        (b"*", b"*", b"*"),
        (b"h:443", b"h:443", b"h:443"),
        (b"?a://b", b"?a://b", b""),
    ],
)
def test_targets(target: bytes, origin: bytes, path: bytes) -> None:
    assert (origin_form(target), path_of(target)) == (origin, path)


def test_what_goes_to_an_upstream() -> None:
    headers: Headers = [
        (b"host", b"a"),
        (b"authorization", b"Bearer x"),
        (b"connection", b"close, X-Mine,, keep-alive"),
        (b"x-mine", b"1"),
        (b"te", b"trailers"),
        (b"upgrade", b"h2c"),
        (b"http2-settings", b"x"),
        (b"transfer-encoding", b"chunked"),
        (b"content-length", b"5"),
        (b"accept-encoding", b"gzip"),
        (b"expect", b"100-continue"),
        (b"proxy-authorization", b"x"),
        (b"traceparent", b"00-1"),
        (b"accept", b"*/*"),
    ]
    kept = upstream_headers(headers)
    assert [name for name, _ in kept] == [b"authorization", b"traceparent", b"accept"]
    assert upstream_headers(headers, drop=[b"authorization"]) == kept[1:]
    assert connection_tokens(headers) == {b"close", b"x-mine", b"keep-alive"}


@pytest.mark.parametrize(
    ("framing", "expected"),
    [(LENGTH(5), [b"x-a"]), (CHUNKED, [b"x-a"]), (NONE, [b"content-length", b"x-a"])],
)
def test_what_goes_to_a_client(framing: Framing, expected: list[bytes]) -> None:
    headers: Headers = [
        (b"content-length", b"5"),
        (b"keep-alive", b"timeout=5"),
        (b"connection", b"keep-alive, x-b, content-length"),
        (b"x-a", b"1"),
        (b"x-b", b"2"),
    ]
    head = Head(200, b"OK", headers, framing, True)
    assert [name for name, _ in client_headers(head)] == expected
    assert (b"x-a", b"1") not in client_headers(head, drop={b"x-a"})
    assert head.header(b"x-b") == b"2"
    assert head.header(b"x-c") is None


def test_first_header_of_a_request() -> None:
    request = Request(b"GET", b"/", b"/", [(b"a", b"1"), (b"a", b"2")], b"", True, False)
    assert (request.header(b"a"), request.header(b"b")) == (b"1", None)


@given(st.lists(st.tuples(st.binary(max_size=6), st.binary(max_size=6)), max_size=4))
@settings(deadline=None, derandomize=True)
def test_no_field_breaks_out(fields: Headers) -> None:
    clean = not any(c in part for field in fields for part in field for c in (b"\r", b"\n"))
    try:
        lines = encode_headers(fields)
    except ValueError:
        assert not clean
    else:
        assert clean
        assert lines.split(b"\r\n")[:-1] == [b"%s: %s" % field for field in fields]


def test_request_heads() -> None:
    head = request_head(b"GET", b"/a", b"h:1", [(b"a", b"b")], None)
    assert head == b"GET /a HTTP/1.1\r\nhost: h:1\r\na: b\r\n\r\n"
    head = request_head(b"POST", b"/a", b"h:1", [], 5)
    assert head == b"POST /a HTTP/1.1\r\nhost: h:1\r\ncontent-length: 5\r\n\r\n"
    for target, host in [(b"/a b", b"h"), (b"/\r\n", b"h"), (b"/", b"h\r\nx: y"), (b"/\0", b"h")]:
        with pytest.raises(ValueError):
            request_head(b"GET", target, host, [], None)


@pytest.mark.parametrize(
    ("status", "framing", "keep", "http10", "tail"),
    [
        (200, LENGTH(5), True, False, b"content-length: 5\r\n"),
        (200, CHUNKED, False, False, b"connection: close\r\ntransfer-encoding: chunked\r\n"),
        (200, CLOSE, False, False, b"connection: close\r\n"),
        (200, LENGTH(5), True, True, b"connection: keep-alive\r\ncontent-length: 5\r\n"),
        (204, LENGTH(0), True, False, b""),
        (304, NONE, True, False, b""),
        (200, None, False, True, b"connection: close\r\n"),
    ],
)
def test_answer_heads(
    status: int, framing: Framing | None, keep: bool, http10: bool, tail: bytes
) -> None:
    own: Headers = [(b"content-length", b"7"), (b"transfer-encoding", b"x"), (b"connection", b"x")]
    head = answer_head(
        status, b"Why", [(b"a", b"b"), *own], framing, keep_alive=keep, http10=http10
    )
    informs = b"content-length: 7\r\n" if framing is NONE else b""
    assert head == b"HTTP/1.1 %d Why\r\na: b\r\n%s%s\r\n" % (status, informs, tail)


@pytest.mark.parametrize("status", [0, 100, 199, 1000, -200])
def test_only_final_statuses_are_answers(status: int) -> None:
    with pytest.raises(ValueError):
        answer_head(status, b"", [], NONE, keep_alive=True)


def test_exported_names_are_sorted_and_complete() -> None:
    module = tier_router_proxy.http
    names = module.__all__
    assert names == sorted(names, key=lambda name: (not name.isupper(), name))
    for name in names:
        assert getattr(module, name) is not None
