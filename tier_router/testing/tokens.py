"""Text to tokens and back, without a tokenizer."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

CHARS = 4
"""Characters of a token: the usual rule of thumb for English."""

VOCABULARY = 8_192

_PIECE = re.compile(r"\s*\S{1,4}|\s+")


def count(text: str) -> int:
    """Tokens of `text`."""
    return -(-len(text) // CHARS)


def ids(text: str) -> list[int]:
    """A token id for each token of `text`; the same text always gives the same."""
    parts = (text[at : at + CHARS] for at in range(0, len(text), CHARS))
    return [zlib.crc32(part.encode("utf-8", "surrogatepass")) % VOCABULARY for part in parts]


def text_of_ids(numbers: Sequence[int]) -> str:
    """A word for each token: the ids are hashes, which nobody can read back."""
    return " ".join(f"t{number}" for number in numbers)


def pieces(text: str) -> list[str]:
    """`text` in parts of at most four letters, as a model would write it; joined they are it."""
    return _PIECE.findall(text)


def text_of(content: Any) -> str:
    """The text of a message's content, which is text or a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        parts = (part.get("text") for part in content if isinstance(part, Mapping))
        return "\n".join(part for part in parts if isinstance(part, str))
    return ""


def render(body: Mapping[str, Any]) -> str:
    """The prompt of a chat: each message after its role, the tools first."""
    tools = body.get("tools")
    head = json.dumps(tools, separators=(",", ":")) + "\n" if tools else ""
    messages = body.get("messages") or ()
    lines = (
        f"{message.get('role', '')}\n{text_of(message.get('content'))}\n"
        for message in messages
        if isinstance(message, Mapping)
    )
    return head + "".join(lines) + "assistant\n"
