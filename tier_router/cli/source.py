"""Where a command finds its configuration, and what people give it to judge."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

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
