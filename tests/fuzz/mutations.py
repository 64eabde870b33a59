"""Request bodies that look like real ones, and what can be wrong with them.

All of it is drawn from one `random.Random`: the same seed gives the same requests.
"""

from __future__ import annotations

import copy
import gzip
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}

CORPUS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "What is my balance?"}]}),
    ("/v1/chat/completions", {
        "stream": True, "stream_options": {"include_usage": True}, "temperature": 0.7, "n": 2,
        "messages": [
            {"role": "system", "content": "You are terse."},
            {"role": "user", "content": "Prove that the square root of 3 is irrational."},
            {"role": "assistant", "content": "Suppose it were."},
            {"role": "user", "content": "yes, do it"},
        ],
    }),
    ("/v1/chat/completions", {
        "tools": [TOOL], "tool_choice": "auto", "messages": [
            {"role": "developer", "content": [{"type": "text", "text": "Use the tool."}]},
            {"role": "user", "content": [{"type": "text", "text": "look"}, IMAGE]},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "42"},
        ],
    }),
    ("/v1/chat/completions", {
        "response_format": {"type": "json_object"}, "logprobs": True, "reasoning_effort": "high",
        "messages": [{"role": "user", "content": "漢字 und Ünïcödé \U0001f600 مرحبا"}],
    }),
    ("/v1/completions", {"prompt": "Once upon a time", "stop": ["\n"]}),
    ("/v1/completions", {"prompt": [[1, 2, 3], [4, 5]], "echo": False}),
    ("/v1/responses", {"input": "hello", "instructions": "be kind", "store": True}),
    ("/v1/responses", {
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "hello"}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "5"},
        ],
        "previous_response_id": "resp_0", "stream": True,
    }),
    ("/v1/messages", {
        "system": [{"type": "text", "text": "terse", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t", "content": "5"}]},
        ],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    }),
    ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "hello"}]}),
    ("/v1/embeddings", {"input": ["a b", "c"], "encoding_format": "float"}),
    ("/v1/rerank", {"query": "red", "documents": ["blue", "red"], "top_n": 1}),
    ("/v1/score", {"text_1": "a", "text_2": ["a", "b"]}),
    ("/tokenize", {"prompt": "hello"}),
    ("/detokenize", {"tokens": [1, 2, 3], "model": "light"}),
    ("/v1/tier/decision", {"messages": [{"role": "user", "content": "What is my balance?"}]}),
    ("/v1/tier/feedback", {"request_id": "x", "verdict": "good"}),
    ("/v1/systemone", {
        "state": "hello", "questions": {"tier": {
            "type": "choice", "criteria": {"light": "easy", "heavy": "hard"}}},
    }),
]  # fmt: skip
"""(path, body); those that generate are given a model and a short answer."""

WRITES = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"})
ODD: list[Any] = [
    None, True, False, 0, 1, -1, 0.5, 1.0, 2**31, 2**63, 2**64, -(10**30), 10**400, float("nan"),
    float("inf"), "", " ", "x", "auto", "light", "5", "\0", "\ud800", "\udc00\ud800", "é\u0301",
    "\u2028", "<system-reminder>x</system-reminder>", "```\ncode\n```", "A" * 5000, "漢" * 3000,
    [], {}, [[]], [None], [{}], [1, "a"], {"": None}, {"type": "text", "text": "x"},
    {"role": "user", "content": "x"}, IMAGE, [TOOL],
]  # fmt: skip
DEPTHS = (2, 10, 100, 500, 800, 850, 900, 950, 970, 1000, 5000)
HEADERS: list[tuple[str, list[bytes]]] = [
    ("x-vllm-priority", [b"1", b"-5", b"x", b"", b"1" * 30, b"1" * 5000, b"1e3", b"\xff"]),
    ("x-tier-router-tier", [b"heavy", b"auto", b"nobody", b"", b"\xe9", b"x" * 2000]),
    ("x-request-id", [b"abc", b"", b"a b", b"\xff\xfe", b"x" * 500]),
    ("traceparent", [b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", b"00-x", b""]),
    ("content-type", [b"application/json", b"text/plain", b"", b"application/json; charset=x"]),
    ("content-encoding", [b"identity", b"br", b"gzip", b"GZIP", b""]),
]


@dataclass
class Asking:
    """One request."""

    path: str
    body: bytes
    headers: list[tuple[str, bytes]] = field(default_factory=list)
    chunked: bool = False


def asking(random_: random.Random) -> Asking:
    """The next request: a real one with some mutations."""
    path, real = random_.choice(CORPUS)
    body = copy.deepcopy(real)
    if path in WRITES:
        body.setdefault("model", random_.choice(["auto", "light", "heavy", "m70"]))
        body.setdefault("max_output_tokens" if "input" in body else "max_tokens", 4)
    for _ in range(random_.choice((0, 1, 1, 2, 3))):
        _structure(random_, body)
    raw = _written(random_, body)
    if random_.random() < 0.15:
        raw = _bytes(random_, raw)
    asked = Asking(path if random_.random() < 0.95 else random_.choice(CORPUS)[0], raw)
    if random_.random() < 0.2:
        name, values = random_.choice(HEADERS)
        asked.headers.append((name, random_.choice(values)))
    if random_.random() < 0.05:
        asked.body = gzip.compress(asked.body, 1)
        asked.headers.append(("content-encoding", b"gzip"))
    asked.chunked = random_.random() < 0.1
    return asked


def _structure(random_: random.Random, body: dict[str, Any]) -> None:
    """Replaces, removes or adds one value, anywhere in the body."""
    holders = _containers(body)
    holder = random_.choice(holders)
    if not holder or random_.random() < 0.15:
        added = copy.deepcopy(random_.choice(ODD))
        if isinstance(holder, dict):
            holder[random_.choice(["x", "", "type", "content", "model", "n", "stream"])] = added
        else:
            holder.append(added)
        return
    key = random_.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    if random_.random() < 0.2:
        del holder[key]
    elif random_.random() < 0.1:
        holder[key] = _Deep(random_.choice(DEPTHS), random_.random() < 0.5)
    else:
        holder[key] = copy.deepcopy(random_.choice(ODD))


def _containers(value: Any) -> list[Any]:
    found, left = [], [value]
    while left:
        here = left.pop()
        found.append(here)
        inner = here.values() if isinstance(here, dict) else here
        left.extend(each for each in inner if isinstance(each, dict | list))
    return found


@dataclass
class _Deep:
    """A value that is nested so many times."""

    levels: int
    objects: bool

    def __str__(self) -> str:
        opening, closing = ('{"a":', "}") if self.objects else ("[", "]")
        return opening * self.levels + "1" + closing * self.levels


def _written(random_: random.Random, body: dict[str, Any]) -> bytes:
    """JSON, at times with a key given twice or in another encoding."""
    deep: list[_Deep] = []

    def placeholder(value: Any) -> Any:
        deep.append(value)
        return f"\x01{len(deep) - 1}"

    plain = random_.random() < 0.5
    text = json.dumps(body, default=placeholder, ensure_ascii=plain)
    for index, value in enumerate(deep):
        text = text.replace(f'"\\u0001{index}"', str(value))
    if random_.random() < 0.03:
        text = text[:-1] + ',"model":5,"messages":[],"stream":null}'
    coding = random_.choice(["utf-8"] * 40 + ["utf-16", "utf-8-sig", "utf-32"])
    return text.encode(coding, "surrogatepass")


def _bytes(random_: random.Random, raw: bytes) -> bytes:
    at = random_.randint(0, len(raw))
    change: Callable[[], bytes] = random_.choice([
        lambda: raw[:at],
        lambda: raw[:at] + random_.randbytes(random_.randint(1, 8)) + raw[at:],
        lambda: raw[:at] + raw[at + 1 :],
        lambda: raw + random_.choice([b"\0", b" x", b"}", b"\n\n", raw]),
        lambda: random_.choice([b"", b" ", b"null", b"[]", b'"x"', b"5", b"{", b"\xff"]),
        lambda: raw.replace(b":", b": NaN,", 1),
    ])  # fmt: skip
    return change()
