"""What a replica can do, found out by one request of one token each.

vLLM refuses what it cannot do with 400 (a tool call without a parser, an image for a model of
texts).  Thinking is no error: it shows in where the first token is put.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from tier_router.request import Need
from tier_router.scrape.pages import json_object

CHAT = "/v1/chat/completions"

SIDE = 56
"""Pixels of the image's sides: some vision models refuse less than twice their patch of 14 or 28,
so that one pixel would look like no vision at all."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back on a probe; `message` is the first choice's, `problem` an error's words."""

    status: int
    message: Mapping[str, Any]
    problem: str
    whole: Mapping[str, Any]


def answer_of(status: int, content: bytes) -> Answer:
    """The answer to a chat, however broken."""
    whole = json_object(content)
    choices = whole.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, Mapping) else None
    error = whole.get("error")
    problem = error.get("message") if isinstance(error, Mapping) else error
    return Answer(
        status,
        message if isinstance(message, Mapping) else {},
        problem if isinstance(problem, str) else "",
        whole,
    )


def probe(need: Need, model: str) -> bytes:
    """The body that asks whether `model` can do `need`."""
    return msgspec.json.encode(chat(model, **_ASKS[need]()))


def verdict(need: Need, answer: Answer) -> bool | None:
    """Whether the replica can do `need`; None where the answer does not tell (busy, unknown model,
    wrong key, a failure)."""
    if answer.status in (400, 422, 501):
        return False
    if answer.status != 200 or not answer.message:
        return None
    if need is not Need.REASONING:
        return True
    thought = answer.message.get("reasoning") or answer.message.get("reasoning_content")
    # a lone `<think>` is taken out by the parser, and leaves neither thought nor content
    return bool(thought) or answer.message.get("content") is None


def chat(model: str, text: str = "Hi", tokens: int = 1, **more: Any) -> dict[str, Any]:
    """The body of a small chat."""
    messages = [{"role": "user", "content": text}]
    return {"model": model, "messages": messages, "max_tokens": tokens, **more}


def _tools() -> dict[str, Any]:
    nothing = {"type": "object", "properties": {}}
    function = {"name": "now", "description": "The time.", "parameters": nothing}
    return {"tools": [{"type": "function", "function": function}], "tool_choice": "auto"}


def _json() -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    return {"response_format": form}


def _vision() -> dict[str, Any]:
    url = "data:image/png;base64," + base64.b64encode(white_png(SIDE)).decode()
    image = {"type": "image_url", "image_url": {"url": url}}
    return {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}, image]}]}


def _reasoning() -> dict[str, Any]:
    return {"chat_template_kwargs": {"enable_thinking": True}}


_ASKS = {
    Need.TOOLS: _tools,
    Need.JSON: _json,
    Need.VISION: _vision,
    Need.REASONING: _reasoning,
}

PROBED = frozenset(_ASKS)
"""What probes find out.  Logprobs vLLM always has; audio has to be written in the file."""


def white_png(side: int) -> bytes:
    """A white image of `side` x `side` pixels: 100 bytes or so."""
    rows = (b"\0" + b"\xff" * side) * side
    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
