"""The types of the `log:` section: where decisions are written down."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from tier_router.config.base import Model


class Rotate(Model):
    """When the file is put aside, and how many of those are kept."""

    bytes: int = Field(256 * 1024 * 1024, ge=64 * 1024)
    """Size from which a new file is begun; the old one is renamed to `PATH.1`."""
    keep: int = Field(4, ge=0, le=1_000)
    """Old files that stay."""


class Log(Model):
    """One JSON line for each request; a plain path stands for `{path: ...}`."""

    path: str = Field(min_length=1)
    """The file, relative to this one.  Several processes may share it.  `PATH.salt` beside it holds
    the secret that conversation keys are hashed with."""
    prompts: bool = False
    """Whether the judged text of each request is written too."""
    rotate: Rotate = Rotate()

    @model_validator(mode="before")
    @classmethod
    def _from_path(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str) else value
