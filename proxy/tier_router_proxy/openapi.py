"""The OpenAPI document of what is answered, made of the table of paths and `openapi.yaml`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import Any

import yaml

from tier_router_proxy.answers import json_body, speaks_anthropic
from tier_router_proxy.paths import OPEN, PATHS, TEMPLATES

VERSION = "3.1.0"

Data = dict[str, Any]

_WIRE = (400, 408, 413, 431, 500)
"""What may come back at any path, some of it before the request is whole."""
_ROUTED = (403, 404, 415, 429, 502, 503, 504)
_READS = ("tier", "priority", "request_id", "traceparent")
_TAGS = ("x-request-id", "x-tier-router-tier", "x-tier-router-replica", "x-tier-router-reason",
         "x-tier-router-difficulty")  # fmt: skip
_HEADERS: Mapping[int, Sequence[str]] = {
    401: ("www-authenticate",),
    429: ("retry-after",),
    503: ("retry-after",),
}
_JSON = "application/json"
_KINDS: Mapping[str, tuple[str, Data]] = {
    "json": (_JSON, {"type": "object"}),
    "events": ("text/event-stream", {"description": "Server-sent events, as a replica's."}),
    "bytes": ("application/octet-stream", {}),
    "text": ("text/plain", {"type": "string"}),
}


@cache
def encoded() -> bytes:
    """The document as JSON."""
    return json_body(document())


def document() -> Data:
    """The document; raises KeyError for an operation that `openapi.yaml` does not describe."""
    told = _told()
    paths = {path: _path(path, methods, told) for path, methods in _table()}
    return {
        "openapi": VERSION,
        "info": {**told["info"], "version": _version()},
        "servers": [{"url": "/"}],
        "tags": told["tags"],
        "paths": paths,
        "components": {**told["components"], "responses": dict(_shared(told["statuses"]))},
    }


def _told() -> Data:
    text = files(__package__).joinpath("openapi.yaml").read_text("utf-8")
    told: Data = yaml.safe_load(text)
    return told


def _version() -> str:
    try:
        return version("tier-router")
    except PackageNotFoundError:  # run from a checkout
        return "0"


def _table() -> Iterator[tuple[str, list[str]]]:
    """(path, methods in lower case) of everything that is answered."""
    fixed = {path.decode(): methods for path, methods in PATHS.items()}
    for path, methods in {**fixed, **TEMPLATES}.items():
        yield path, methods.decode().lower().split(", ")


def _path(path: str, methods: Sequence[str], told: Data) -> Data:
    item = {method: _operation(path, method, told) for method in methods}
    names = [name for name in told["components"]["parameters"] if f"{{{name}}}" in path]
    return {**({"parameters": _refs("parameters", names)} if names else {}), **item}


def _operation(path: str, method: str, told: Data) -> Data:
    of = told["operations"][path][method]
    routed = "relays" in of
    reads = [*(_READS if routed or "body" in of else ("request_id",)), *of.get("query", ())]
    operation: Data = {
        "operationId": _name(path, method),
        **{key: of[key] for key in ("summary", "description", "tags") if key in of},
        "parameters": _refs("parameters", reads),
        "responses": _responses(path, of, told["statuses"], routed),
        "security": [{}] if path.encode() in OPEN else [{"bearer": []}, {"key": []}, {}],
    }
    if "body" in of:
        operation["requestBody"] = {"required": True, "content": _json(of["body"])}
    return operation


def _responses(path: str, of: Data, words: Mapping[int | str, str], routed: bool) -> Data:
    """What may come back, by status."""
    answer: Data = {"description": words[200], "content": _content(of, routed)}
    if routed:
        answer["headers"] = _by_name(_TAGS)
    responses: Data = {"200": answer}
    keyed = () if path.encode() in OPEN else (401,)
    own = _ROUTED if routed else of.get("refuses", ())
    shape = "AnthropicError" if speaks_anthropic(path.encode()) else "Error"
    for status in sorted({*_WIRE, *keyed, *own}):
        responses[str(status)] = _ref("responses", f"{shape}{status}")
    for status, schema in of.get("also", {}).items():
        responses[str(status)] = {"description": words[status], "content": _json(schema)}
    if routed:
        responses["4XX"] = _ref("responses", "Relayed")
    return responses


def _shared(words: Mapping[int | str, str]) -> Iterator[tuple[str, Data]]:
    """(name, response) of every error, in both shapes."""
    for status in sorted({*_WIRE, 401, *_ROUTED}):
        headers = _by_name(("x-request-id", *_HEADERS.get(status, ())))
        told = {"description": words[status], "headers": headers}
        for shape in ("Error", "AnthropicError"):
            yield f"{shape}{status}", {**told, "content": _json(shape)}
    yield "Relayed", {"description": words["4XX"], "headers": _by_name(_TAGS)}


def _content(of: Data, routed: bool) -> Data:
    if routed:
        return {kind: {"schema": schema} for kind, schema in map(_KINDS.__getitem__, of["relays"])}
    if of["says"] in _KINDS:
        kind, schema = _KINDS[of["says"]]
        return {kind: {"schema": schema}}
    return _json(of["says"])


def _json(schema: str) -> Data:
    return {_JSON: {"schema": _ref("schemas", schema)}}


def _name(path: str, method: str) -> str:
    """A name that no other operation has: `post_v1_chat_completions`."""
    words = path.strip("/").replace(".", "_").replace("{", "").replace("}", "")
    return f"{method}_{words.replace('/', '_')}"


def _by_name(headers: Sequence[str]) -> Data:
    return {name: _ref("headers", name) for name in headers}


def _refs(kind: str, names: Sequence[str]) -> list[Data]:
    return [_ref(kind, name) for name in names]


def _ref(kind: str, name: str) -> Data:
    return {"$ref": f"#/components/{kind}/{name}"}
