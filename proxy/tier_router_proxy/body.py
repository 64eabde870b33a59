"""A request body as it came: read for routing, and re-addressed without touching the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tier_router.errors import RequestError

HEADROOM = 40
"""Frames: what reads a body again later does so from fewer of them deeper in the stack."""

SHALLOW = 1_000
"""Bytes of a body that cannot be nested too deeply: each level takes two, and some 900 are read."""

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])


def read(raw: bytes) -> dict[str, Any]:
    """The JSON object in `raw`; raises RequestError that says where it breaks."""
    try:
        body = _decoded(raw, HEADROOM if len(raw) > SHALLOW else 0)
    except msgspec.DecodeError as error:
        what = str(error) if raw.strip() else "it is empty"
        raise RequestError(f"the body is not JSON: {what}") from None
    except RecursionError:
        raise RequestError("the body is not usable JSON: it is nested too deeply") from None
    if not isinstance(body, dict):
        raise RequestError("the body must be a JSON object")
    return body


def _decoded(raw: bytes, frames: int) -> Any:
    """Decodes from so many frames deeper than the caller.

    The interpreter counts levels of JSON and frames together, so that a body at the very limit
    would be read here and not where it is written again, with a replica already chosen.
    """
    return _decoded(raw, frames - 1) if frames else msgspec.json.decode(raw)


def readdressed(raw: bytes, changes: Mapping[str, Any]) -> bytes:
    """`raw` with the top-level fields in `changes` set; the bytes of every other value stay.

    Numbers keep their digits, objects their order and strings their escapes: the values are cut
    out of the caller's bytes and never decoded.
    """
    fields: dict[str, Any] = _FIELDS.decode(raw)
    fields.update(changes)
    return msgspec.json.encode(fields)


def rewritten(raw: bytes, read: Mapping[str, Any], changes: Mapping[str, Any]) -> bytes:
    """As `readdressed`; of a list in `changes` the values that stand in `read`, which is what
    `raw` was read as, keep their bytes too."""
    fields: dict[str, Any] = _FIELDS.decode(raw)
    for name, value in changes.items():
        old = read.get(name)
        if isinstance(value, list) and isinstance(old, list):
            cut: list[msgspec.Raw] = _LIST.decode(fields[name])
            bytes_of = {id(each): part for each, part in zip(old, cut, strict=True)}
            fields[name] = [bytes_of.get(id(each), each) for each in value]
        else:
            fields[name] = value
    return msgspec.json.encode(fields)
