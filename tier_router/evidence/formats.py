"""The logs that can be read, and one line of them as a request.

decisions   our own log (`tier_router.decisionlog`)
openai      JSON lines with a request body: itself, or under `body` or `request`
litellm     rows of LiteLLM's spend logs, JSON lines; prompts where it stores them
vllm        vLLM's text log with `--enable-log-requests`
plain       a prompt on each line, bare or as a JSON string
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec

from tier_router.decisionlog import Record
from tier_router.errors import RequestError


class Format(StrEnum):
    """What a log's lines are."""

    DECISIONS = "decisions"
    OPENAI = "openai"
    LITELLM = "litellm"
    VLLM = "vllm"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Asked:
    """One request of a log: its `body`, or our `record` of it; and what the log tells of its fate.

    `at` is in Unix seconds, `ttft` and `latency` in seconds, the rest in tokens.
    """

    body: Mapping[str, Any] | None = None
    record: Record | None = None
    id: str | None = None
    at: float | None = None
    ttft: float | None = None
    latency: float | None = None
    prompt: int | None = None
    cached: int = 0
    completion: int | None = None


Reader = Callable[[bytes], Asked | None]
"""One line's request; None where the line is none.  Raises RequestError."""


def sniff(lines: Iterable[bytes]) -> Format:
    """The format that most of `lines` look like."""
    votes = dict.fromkeys(Format, 0)
    for line in lines:
        found = _looks_like(line)
        if found is not None:
            votes[found] += 1
    if votes[Format.VLLM]:  # its log has many other lines
        return Format.VLLM
    return max(votes, key=votes.__getitem__)


def _looks_like(line: bytes) -> Format | None:
    if not line.strip():
        return None
    if _VLLM.search(line) or _VLLM_DETAILS.search(line):
        return Format.VLLM
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return Format.PLAIN if line.lstrip()[:1] not in b"{[" else None
    if not isinstance(value, dict):
        return Format.OPENAI if isinstance(value, list) else Format.PLAIN
    if {"v", "at", "door"} <= value.keys():
        return Format.DECISIONS
    if "startTime" in value or {"call_type", "spend"} <= value.keys():
        return Format.LITELLM
    return Format.OPENAI


def reader_of(format: Format) -> Reader:
    """What reads the lines of `format`."""
    readers: dict[Format, Callable[[], Reader]] = {
        Format.DECISIONS: lambda: _decision,
        Format.OPENAI: lambda: _openai,
        Format.LITELLM: lambda: _litellm,
        Format.VLLM: _Vllm,
        Format.PLAIN: lambda: _plain,
    }
    return readers[format]()


# ---- ours

_RECORDS = msgspec.json.Decoder(Record)


def _decision(line: bytes) -> Asked:
    try:
        record = _RECORDS.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestError(f"not a decision record: {error}") from None
    usage = record.usage
    return Asked(
        record=record,
        id=record.id,
        at=record.at,
        ttft=record.ttft,
        latency=record.latency,
        prompt=None if usage is None else usage.prompt,
        cached=0 if usage is None else usage.cached,
        completion=None if usage is None else usage.completion,
    )


# ---- plain and OpenAI


def chat(text: str) -> Mapping[str, Any]:
    """The request body of a bare prompt."""
    return {"messages": [{"role": "user", "content": text}]}


def _plain(line: bytes) -> Asked:
    text = line.decode("utf-8", "replace").strip()
    if text[:1] == '"' and text[-1:] == '"':
        try:
            text = msgspec.json.decode(text, type=str)
        except msgspec.DecodeError:
            pass  # a prompt in quotation marks
    return Asked(chat(text))


def _object(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestError(f"not JSON: {error}") from None


def _openai(line: bytes) -> Asked:
    value = _object(line)
    if isinstance(value, str):
        return Asked(chat(value))
    if isinstance(value, list):
        return Asked({"messages": value})
    if not isinstance(value, dict):
        raise RequestError("a line is a text, a list of messages, or an object")
    body: Mapping[str, Any] | None
    body = next((b for b in (value.get("body"), value.get("request")) if isinstance(b, dict)), None)
    if body is None and isinstance(value.get("request"), dict | str):
        body = _inner(value["request"])
    if body is None:
        body = value
        if not value.keys() & {"messages", "input", "prompt"}:
            text = next((value[n] for n in ("text", "question", "query") if n in value), None)
            if not isinstance(text, str):
                raise RequestError("no `messages`, `input`, `prompt` or `body` in this line")
            body = chat(text)
    answer = value.get("response")
    inner = answer.get("body", answer) if isinstance(answer, dict) else None
    told = inner if isinstance(inner, dict) else value
    prompt, cached, completion = _usage(told.get("usage"))
    return Asked(
        body,
        id=_text(value, "id", "custom_id", "request_id"),
        at=_first_time(value, "at", "timestamp", "time", "ts", "created_at", "created"),
        ttft=_number(value, "ttft", "time_to_first_token"),
        latency=_number(value, "latency", "duration", "response_time"),
        prompt=prompt,
        cached=cached,
        completion=completion,
    )


def _inner(value: Any) -> Mapping[str, Any] | None:
    if isinstance(value, str) and value.lstrip()[:1] == "{":
        value = _object(value.encode())
    return value if isinstance(value, dict) else None


# ---- LiteLLM


def _litellm(line: bytes) -> Asked | None:
    row = _object(line)
    if not isinstance(row, dict):
        raise RequestError("a spend log's line is an object")
    kind = row.get("call_type")
    if isinstance(kind, str) and kind and "completion" not in kind and "response" not in kind:
        return None
    messages = row.get("messages")
    if isinstance(messages, str) and messages.lstrip()[:1] in "[{" and messages.strip():
        messages = _object(messages.encode())
    body: Mapping[str, Any] | None
    body = {"messages": messages} if isinstance(messages, list) and messages else None
    if body is None:
        sent = _inner(row.get("proxy_server_request"))
        body = sent if sent and sent.keys() & {"messages", "input", "prompt"} else None
    if body is None:
        raise RequestError(
            "no prompt in this row (LiteLLM stores them with `store_prompts_in_spend_logs: true`)"
        )
    begin, end = _first_time(row, "startTime"), _first_time(row, "endTime")
    first = _first_time(row, "completionStartTime")
    counted = row.get("prompt_tokens"), row.get("completion_tokens")
    return Asked(
        {key: value for key, value in body.items() if key != "model"},  # LiteLLM's name for it
        id=_text(row, "request_id", "id"),
        at=begin,
        ttft=_between(begin, first) if first != end else None,
        latency=_between(begin, end),
        prompt=_count(counted[0]),
        completion=_count(counted[1]),
    )


# ---- vLLM

_VLLM = re.compile(rb"Received request (\S+?): (?:prompt: (?P<prompt>['\"].*?['\"]), )?params: ")
_VLLM_DETAILS = re.compile(rb"Request (\S+) details: prompt: (?P<prompt>['\"].*?['\"]), prompt_tok")
_VLLM_TIME = re.compile(rb"\b(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)\b")
_VLLM_LIMIT = re.compile(rb"max_tokens=(\d+)")
_TURNS = re.compile(
    r"<\|im_start\|>user\n(.*?)<\|im_end\|>"  # ChatML: Qwen and others
    r"|<\|start_header_id\|>user<\|end_header_id\|>\n\n(.*?)<\|eot_id\|>"  # Llama 3
    r"|\[INST\](.*?)\[/INST\]",  # Mistral
    re.S,
)


class _Vllm:
    """Reads vLLM's log, whose times have no year: the one given, else the present."""

    def __init__(self, year: int | None = None) -> None:
        self._year = year or datetime.now(UTC).year

    def __call__(self, line: bytes) -> Asked | None:
        found = _VLLM_DETAILS.search(line) or _VLLM.search(line)
        if found is None or found["prompt"] is None:
            return None  # the prompt is in the line with the details, at log level debug
        try:
            prompt = ast.literal_eval(found["prompt"].decode("utf-8", "replace"))
        except (SyntaxError, ValueError):
            raise RequestError("the prompt is cut off or not quoted") from None
        limit = _VLLM_LIMIT.search(line)
        messages = [
            {"role": "user", "content": next(text for text in turn if text or text == turn[-1])}
            for turn in _TURNS.findall(prompt)
        ]
        body: dict[str, Any] = {"messages": messages or chat(prompt)["messages"]}
        if limit is not None:
            body["max_tokens"] = int(limit[1])
        return Asked(body, id=found[1].decode("utf-8", "replace"), at=self._time(line))

    def _time(self, line: bytes) -> float | None:
        found = _VLLM_TIME.search(line)
        if found is None:
            return None
        month, day, hour, minute, second = map(int, found.groups())
        try:
            at = datetime(self._year, month, day, hour, minute, second, tzinfo=UTC)
        except ValueError:
            return None
        return at.timestamp()


# ---- values


def _usage(usage: Any) -> tuple[int | None, int, int | None]:
    if not isinstance(usage, dict):
        return None, 0, None
    prompt = _count(usage.get("prompt_tokens", usage.get("input_tokens")))
    completion = _count(usage.get("completion_tokens", usage.get("output_tokens")))
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
    return prompt, cached or 0, completion


def _count(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**40:
        return None
    return int(value)


def _number(row: Mapping[str, Any], *names: str) -> float | None:
    for name in names:
        value = row.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9:
            return float(value)
    return None


def _text(row: Mapping[str, Any], *names: str) -> str | None:
    return next((row[n] for n in names if isinstance(row.get(n), str)), None)


def _first_time(row: Mapping[str, Any], *names: str) -> float | None:
    return next((at for at in map(_when, map(row.get, names)) if at is not None), None)


def _when(value: Any) -> float | None:
    """Unix seconds of a number (of seconds, or milliseconds from 1e11 on) or an ISO 8601 text."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        value = value / 1000 if value >= 1e11 else value
        return float(value) if 0 <= value < 1e11 else None
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _between(begin: float | None, end: float | None) -> float | None:
    return None if begin is None or end is None else max(0.0, end - begin)
