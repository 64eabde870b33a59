"""Request bodies that come compressed."""

from __future__ import annotations

import zlib

from tier_router.errors import BodyTooLarge, RequestError
from tier_router_proxy.http.messages import Request

MEMBERS = 64
"""Parts of one gzip body: nearly all have one, and each costs memory of its own to begin."""

_GZIP = 16 + zlib.MAX_WBITS  # zlib's own way to ask for a gzip wrapper


class UnknownCoding(RequestError):
    """A content coding that is not read here."""

    status = 415
    code = "unsupported_content_encoding"


def plain_body(request: Request, limit: int) -> bytes:
    """The request's body, decompressed where it says that it is gzip.

    Never holds more than `limit` bytes of it.  Raises BodyTooLarge, UnknownCoding, or RequestError
    for what is not gzip.
    """
    coding = (request.header(b"content-encoding") or b"identity").strip().lower()
    if coding == b"identity":
        return request.body
    if coding not in (b"gzip", b"x-gzip"):
        shown = coding.decode("latin-1")[:40]
        raise UnknownCoding(f"the content encoding `{shown}` is not read here; gzip is")
    return _unzipped(request.body, limit)


def _unzipped(data: bytes, limit: int) -> bytes:
    pieces, size = [], 0
    for _ in range(MEMBERS):
        reader = zlib.decompressobj(_GZIP)
        try:
            piece = reader.decompress(data, limit - size + 1)
        except zlib.error:
            raise RequestError("the body is not gzip, as its content encoding says") from None
        size += len(piece)
        if size > limit:
            raise BodyTooLarge(f"the decompressed body is over {limit} bytes")
        if not reader.eof:
            raise RequestError("the body is gzip that ends too early")
        pieces.append(piece)
        data = reader.unused_data
        if not data:
            return b"".join(pieces)
    raise RequestError(f"the body is gzip of more than {MEMBERS} members")
