"""Polars, imported in one place, with a word on what to install."""

from __future__ import annotations

try:
    import polars
except ModuleNotFoundError as error:
    if error.name != "polars":
        raise
    message = "Polars is not installed: pip install 'tier-router[report]'"
    raise ImportError(message, name="polars") from None

__all__ = ["polars"]
