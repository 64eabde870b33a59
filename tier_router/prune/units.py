"""A request body as what may be pruned: texts with their places, tool calls with their results.

Chat completions and Anthropic's messages.  Nothing here changes the body; what is not understood
is no unit, and what is no unit is never touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tier_router.view import tokens_of

Path = tuple[str | int, ...]
"""Keys and indices from the body to a value."""

PIECE = 512
"""Characters of a piece of text that is recognised again in a cache: 8 of vLLM's 16-token blocks,
so that what is known of a cache is never off by more."""

SYSTEM, USER, ASSISTANT, TOOL = "system", "user", "assistant", "tool"
_SYSTEM_ROLES = frozenset({"system", "developer"})
_TEXT_PARTS = frozenset({"text", "input_text"})


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call: its id, the tool's name and the arguments as the model wrote them."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Text:
    """One text of a message: where it stands, who wrote it, and the call that a result is of."""

    path: Path
    text: str
    role: str
    message: int
    call: Call | None = None

    @property
    def tokens(self) -> int:
        """Estimated tokens."""
        return tokens_of(self.text)


@dataclass(frozen=True, slots=True)
class Message:
    """One message: its texts, its calls, the calls that it answers, and all else as one number.

    `rest` is the hash of what no step may change in it, `rest_tokens` its size; `results` are the
    calls whose results it holds.
    """

    index: int
    role: str
    texts: tuple[Text, ...]
    calls: tuple[Call, ...]
    results: tuple[Call, ...]
    orphan: bool
    rest: int
    rest_tokens: int

    @property
    def tokens(self) -> int:
        """Estimated tokens."""
        return self.rest_tokens + sum(text.tokens for text in self.texts)


@dataclass(frozen=True, slots=True)
class Prompt:
    """What pruning sees of a body.

    `frozen` counts the messages at the start that stay as they are (cache marks, protect marker);
    `tools` is the tool list as bytes, `pinned_tools` whether a mark freezes that too.
    """

    messages: tuple[Message, ...]
    tools: bytes = b""
    frozen: int = 0
    pinned_tools: bool = False
    head: int = 0
    head_tokens: int = 0
    last_user: int = -1
    texts: tuple[Text, ...] = field(default=())

    @property
    def tokens(self) -> int:
        """Estimated tokens of the whole prompt."""
        return self.head_tokens + sum(message.tokens for message in self.messages)


_NONE: Mapping[int, Message] = {}


def read(
    body: Mapping[str, Any], marker: str, same: Mapping[int, Message] = _NONE
) -> Prompt | None:
    """The units of `body`; None where it has no list of message objects.

    `same` are the units of messages, by index, that were read before.
    """
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return None
    if not all(isinstance(message, dict) for message in messages):
        return None
    reader = _Reader(marker)
    read_messages = tuple(
        reader.again(same[i]) if i in same else reader.message(i, each)
        for i, each in enumerate(messages)
    )
    tools = _bytes(body["tools"]) if body.get("tools") else b""
    system = _bytes(body["system"]) if body.get("system") else b""
    marked = b'"cache_control"' in tools
    frozen = reader.frozen
    return Prompt(
        messages=read_messages,
        tools=tools,
        frozen=frozen,
        pinned_tools=marked or frozen > 0 or b'"cache_control"' in system,
        head=hash(system),
        head_tokens=len(system) // 4,
        last_user=reader.last_user,
        texts=tuple(text for message in read_messages for text in message.texts),
    )


class _Reader:
    """Walks the messages once; results are matched to calls in order, since ids may repeat."""

    def __init__(self, marker: str) -> None:
        self.marker = marker
        self.frozen = 0
        self.last_user = -1
        self.open: list[Call] = []

    def message(self, index: int, message: Mapping[str, Any]) -> Message:
        role = message.get("role")
        role = role if isinstance(role, str) else ""
        if role in _SYSTEM_ROLES:
            role = SYSTEM
        content = message.get("content")
        texts: list[Text] = []
        results: list[Call] = []
        orphan = False
        rest: list[bytes] = []
        if len(message) > 2 or role not in (USER, ASSISTANT, SYSTEM):
            rest.append(_bytes({k: v for k, v in message.items() if k != "content"}))
        path: Path = ("messages", index, "content")
        if role in (TOOL, "function"):
            role, call = TOOL, self._answered(message.get("tool_call_id"), message.get("name"))
            orphan = call is None
            results += [call] if call else []
            texts += _texts(content, path, TOOL, index, call, rest)
        elif isinstance(content, str):
            texts.append(Text(path, content, role, index))
        elif isinstance(content, list):
            for place, part in enumerate(content):
                if isinstance(part, dict) and part.get("type") == "tool_result":
                    call = self._answered(part.get("tool_use_id"), None)
                    orphan = orphan or call is None
                    results += [call] if call else []
                    within = (*path, place, "content")
                    texts += _texts(part.get("content"), within, TOOL, index, call, rest)
                    rest.append(_bytes({k: v for k, v in part.items() if k != "content"}))
                else:
                    texts += _texts([part], (*path, place), role, index, None, rest, flat=True)
        elif content is not None:
            rest.append(_bytes(content))
        calls = tuple(_calls(message)) if role == ASSISTANT else ()
        self.open += calls
        if role == USER and any(text.role == USER for text in texts):
            self.last_user = index
        if any(b'"cache_control"' in each for each in rest) or any(
            self.marker in text.text for text in texts
        ):
            self.frozen = index + 1
        return Message(index, role, tuple(texts), calls, tuple(results), orphan,
                       hash((role, *rest)), sum(map(_size, rest)) + 4)  # fmt: skip

    def again(self, message: Message) -> Message:
        """Takes a message that was read before."""
        for call in message.results:
            self._answered(call.id, call.name)
        self.open += message.calls
        return message

    def _answered(self, identity: Any, name: Any) -> Call | None:
        """The first open call with this id (or, in the old shape, this name)."""
        for place, call in enumerate(self.open):
            if call.id == identity or (identity is None and call.name == name):
                return self.open.pop(place)
        return None


def _texts(
    content: Any, path: Path, role: str, index: int, call: Call | None, rest: list[bytes],
    *, flat: bool = False,
) -> list[Text]:  # fmt: skip
    """The texts of a content; what is no text goes to `rest`."""
    if isinstance(content, str):
        return [Text(path, content, role, index, call)]
    if not isinstance(content, list):
        rest += [_bytes(content)] if content is not None else []
        return []
    found = []
    for place, part in enumerate(content):
        at = path if flat else (*path, place)
        if isinstance(part, dict) and part.get("type") in _TEXT_PARTS:
            text = part.get("text")
            if isinstance(text, str):
                found.append(Text((*at, "text"), text, role, index, call))
                part = {k: v for k, v in part.items() if k != "text"}
                if len(part) == 1:
                    continue
        rest.append(_bytes(part))
    return found


def _calls(message: Mapping[str, Any]) -> list[Call]:
    found = []
    listed = message.get("tool_calls")
    for call in listed if isinstance(listed, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            arguments = function.get("arguments")
            arguments = arguments if isinstance(arguments, str) else _text(arguments)
            found.append(Call(str(call.get("id")), str(function.get("name")), arguments))
    old = message.get("function_call")
    if isinstance(old, dict):
        found.append(Call("", str(old.get("name")), str(old.get("arguments"))))
    content = message.get("content")
    parts = content if isinstance(content, list) else ()
    return found + [
        Call(str(part.get("id")), str(part.get("name")), _text(part.get("input")))
        for part in parts
        if isinstance(part, dict) and part.get("type") == "tool_use"
    ]


def _bytes(value: Any) -> bytes:
    return msgspec.json.encode(value)


def _text(value: Any) -> str:
    return "" if value is None else _bytes(value).decode()


def _size(rest: bytes) -> int:
    """Estimated tokens of what is no text; an image's bytes are no tokens."""
    return min(len(rest) // 4, 1_200)


def pieces(texts: Sequence[str]) -> list[str]:
    """The texts cut into pieces, each text from its own start."""
    out = []
    for text in texts:
        if len(text) <= PIECE:
            out.append(text)
        else:
            out += [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
    return out
