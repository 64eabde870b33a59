"""Where a command finds its configuration, and what people give it to judge."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from tier_router.errors import RequestError

NAME = "config.yaml"


def resolve(given: Path | None) -> Path:
    """The configuration to read: the given one, ./config.yaml, or the one in the package."""
    if given is not None:
        return given
    here = Path(NAME)
    return here if here.is_file() else packaged()


def packaged() -> Path:
    """The default configuration: in the wheel it is package data, in a checkout it lies at the
    top."""
    package = Path(str(files("tier_router")))
    shipped = package / "data" / NAME
    return shipped if shipped.is_file() else package.parent / NAME


def chat(text: str) -> Mapping[str, Any]:
    """The request body of a bare prompt."""
    return {"messages": [{"role": "user", "content": text}]}


def body_of(line: bytes) -> Mapping[str, Any]:
    """The request of one line of a log: a text, a body, or a record that holds one of them."""
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestError(f"not JSON: {error}") from None
    if isinstance(value, str):
        return chat(value)
    if isinstance(value, list):
        return {"messages": value}
    if isinstance(value, dict):
        for name in ("request", "body"):
            if isinstance(value.get(name), dict):
                return value[name]  # type: ignore[no-any-return]
        if not value.keys() & {"messages", "input", "prompt"}:
            for name in ("text", "question", "query"):
                if isinstance(value.get(name), str):
                    return chat(value[name])
        return value
    raise RequestError("a line is a text, a list of messages, or an object")
