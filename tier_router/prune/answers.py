"""An answer as an audit reads it, put together from a stream's events or read from one body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tier_router.prune.audit import Answer, answer_of
from tier_router.prune.steps.reasoning import misfired

_DATA = b"data:"
_DONE = b"[DONE]"


def whole_of(text: bytes, *, stream: bool) -> Mapping[str, Any] | None:
    """The chat completion in `text`, a JSON body or server-sent events; None where there is none.

    Of a stream the deltas are joined, so that it looks like the body of one that was not streamed.
    """
    if stream:
        return _joined(text)
    try:
        body = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return body if isinstance(body, dict) and isinstance(body.get("choices"), list) else None


def answer_in(text: bytes, *, stream: bool) -> Answer | None:
    """What an audit reads of the answer in `text`; None where it is no whole chat completion."""
    body = whole_of(text, stream=stream)
    return None if body is None else answer_of(body)


def is_empty(text: bytes, *, stream: bool) -> bool:
    """Whether an answer to a request with thinking off has all its words in `reasoning`."""
    body = whole_of(text, stream=stream)
    return body is not None and misfired(body)


def _joined(text: bytes) -> Mapping[str, Any] | None:
    choices: dict[int, _Choice] = {}
    usage: Any = None
    done = False
    for line in text.splitlines():
        if not line.startswith(_DATA):
            continue
        data = line[len(_DATA) :].strip()
        if data == _DONE:
            done = True
            break
        try:
            event = msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError):
            return None
        if not isinstance(event, dict) or "error" in event:
            return None
        usage = event.get("usage") or usage
        listed = event.get("choices")
        for each in listed if isinstance(listed, list) else ():
            if isinstance(each, dict) and isinstance(each.get("index", 0), int):
                choices.setdefault(each.get("index", 0), _Choice()).add(each)
    if not choices or not (done or all(choice.ended for choice in choices.values())):
        return None
    whole = [choice.whole() for _, choice in sorted(choices.items())]
    return {"choices": whole, "usage": usage}


class _Choice:
    """One choice of a stream: its texts, and its tool calls by their index."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._calls: dict[int, dict[str, str]] = {}
        self.ended: Any = None

    def add(self, choice: Mapping[str, Any]) -> None:
        """Takes the next delta."""
        self.ended = choice.get("finish_reason") or self.ended
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            return
        for name in ("content", "reasoning", "reasoning_content"):
            if isinstance(delta.get(name), str):
                self._texts.setdefault(name, []).append(delta[name])
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict) and isinstance(call.get("index", 0), int):
                known = self._calls.setdefault(call.get("index", 0), {"name": "", "arguments": ""})
                for name in known:
                    known[name] += function.get(name) or ""

    def whole(self) -> dict[str, Any]:
        """The choice as a body that was not streamed has it."""
        message: dict[str, Any] = {name: "".join(parts) for name, parts in self._texts.items()}
        if self._calls:
            message["tool_calls"] = [{"function": call} for _, call in sorted(self._calls.items())]
        return {"message": message, "finish_reason": self.ended}
