"""A request body as it came: read for routing, and re-addressed without touching the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tier_router.errors import RequestError

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read(raw: bytes) -> dict[str, Any]:
    """The JSON object in `raw`; raises RequestError that says where it breaks."""
    try:
        body = msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        what = str(error) if raw.strip() else "it is empty"
        raise RequestError(f"the body is not JSON: {what}") from None
    except RecursionError:
        raise RequestError("the body is not usable JSON: it is nested too deeply") from None
    if not isinstance(body, dict):
        raise RequestError("the body must be a JSON object")
    return body


def readdressed(raw: bytes, changes: Mapping[str, Any]) -> bytes:
    """`raw` with the top-level fields in `changes` set; the bytes of every other value stay.

    Numbers keep their digits, objects their order and strings their escapes: the values are cut
    out of the caller's bytes and never decoded.
    """
    fields: dict[str, Any] = _FIELDS.decode(raw)
    fields.update(changes)
    return msgspec.json.encode(fields)
