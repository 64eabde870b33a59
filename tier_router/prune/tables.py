"""JSON lists of objects with the same keys as tables: the keys once, then the values row by row.

The values stay as they were written, in their order, and the list can be made again from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

COLUMNS, ROWS = "columns", "rows"
"""The keys of a table; a text that has them as an object's only ones is left as it is."""
FEWEST = 2
"""Rows of a table: one object is shorter as it is."""
STEP = "."
"""Between the keys of a nested object's column; where a key holds it, nothing is a table."""


def tabled(text: str) -> str | None:
    """Compact JSON with its lists of like objects as tables; None where there is none to make, or
    where a number or a doubled key would not come out as it went in."""
    try:
        value = msgspec.json.decode(text)
        if msgspec.json.encode(value).decode() != text or _reserved(value):
            return None
        made = msgspec.json.encode(_tabled(value)).decode()
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None
    return made if len(made) < len(text) else None


def untabled(value: Any) -> Any:
    """The JSON value of which `tabled` made this one."""
    if isinstance(value, list):
        return [untabled(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.keys() != {COLUMNS, ROWS}:
        return {key: untabled(each) for key, each in value.items()}
    return [_nested(value[COLUMNS], map(untabled, row)) for row in value[ROWS]]


def _tabled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _tabled(each) for key, each in value.items()}
    if not isinstance(value, list):
        return value
    columns = _columns(value)
    if columns is None:
        return [_tabled(each) for each in value]
    rows = [[_tabled(each) for _, each in _flat(row)] for row in value]
    return {COLUMNS: columns, ROWS: rows}


def _columns(value: list[Any]) -> list[str] | None:
    """The columns that all objects of a list have, in the same order; None where they differ."""
    if len(value) < FEWEST or not all(isinstance(each, dict) and each for each in value):
        return None
    first = [key for key, _ in _flat(value[0])]
    return first if all([key for key, _ in _flat(each)] == first for each in value) else None


def _flat(value: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, each in value.items():
        if isinstance(each, dict) and each:
            yield from _flat(each, f"{before}{key}{STEP}")
        else:
            yield before + key, each


def _nested(columns: list[str], row: Iterator[Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for column, each in zip(columns, row, strict=True):
        *path, key = column.split(STEP)
        at = out
        for step in path:
            at = at.setdefault(step, {})
        at[key] = each
    return out


def _reserved(value: Any) -> bool:
    """Whether some key would be taken for a table's, or for a nested column."""
    if isinstance(value, list):
        return any(map(_reserved, value))
    if not isinstance(value, dict):
        return False
    return value.keys() == {COLUMNS, ROWS} or any(
        STEP in key or _reserved(each) for key, each in value.items()
    )
