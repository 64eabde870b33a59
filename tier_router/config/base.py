"""What the types of the configuration are made of."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator


class Model(BaseModel):
    """Frozen, and without unknown keys; docstrings are what editors show."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    stands_for: ClassVar[str | None] = None
    """The field that a plain text, written instead of a mapping, stands for."""

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        plain = cls.stands_for is not None and isinstance(value, str)
        return {cls.stands_for: value} if plain else value


def _name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", value):
        raise ValueError("a name is letters, digits, `.`, `_` and `-`, at most 64 of them")
    return value


def split(value: Any) -> Any:
    """`a, b` as a list; an empty text as an empty one."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return [] if value is None else value


Name = Annotated[str, AfterValidator(_name)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
