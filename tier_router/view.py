"""Reads the `View` of a request body: chat completions, completions, responses, messages; and of
those that are not about a talk: embeddings, tokens, a stored response.

The body stays the caller's own mapping and is never changed here.  Only what routing needs is
read; unknown fields are no concern of ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, TypeGuard

import msgspec

from tier_router.errors import RequestError
from tier_router.request import Kind, Need, Turn, View
from tier_router.turn import turn_of

PIN_HEADER = "x-tier-router-tier"
"""The request header by which a client pins a tier."""

PRIORITY_HEADER = "x-vllm-priority"
"""The request header by which a client sets vLLM's priority: lower goes first."""

EARLIER_TURNS = 6
"""Human turns before the judged one that are looked at: a hold has faded by then."""

IMAGE_TOKENS, AUDIO_TOKENS = 1_200, 750
"""Prompt tokens of an image (about 1 megapixel in Qwen2-VL) and of a half-minute clip (Whisper's
25 a second)."""

KEY_CHARS = 8_000
"""How much of the system prompt and of the first human turn makes the conversation key."""

MESSAGE_TOKENS = 4
"""Tokens that a chat template adds around each message (ChatML: start, role, newline, end)."""

SAMPLE_CHARS = 4_096
"""Of a longer text that is not ASCII about so many characters, evenly spread, tell how dense it
is: a share of one half is then known within 1.6 points (two standard errors)."""

MOST_TOKENS = 2**31 - 1
"""What `max_tokens` may be at most: more than any model writes."""

MOST_PRIORITY = 2**63 - 1
"""What a priority may be at most: 64 bits, which hold a time in nanoseconds too."""

MOST_CHOICES = 16_384
"""What `n` may be at most: vLLM's VLLM_MAX_N_SEQUENCES."""

_POOLED = ("input", "messages", "query", "queries", "documents", "text_1", "text_2", "data_1",
           "data_2", "items")  # fmt: skip
"""Where embeddings, rerank and score have their texts."""

_NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_IMAGE = frozenset({"image_url", "input_image", "image", "video_url", "image_embeds"})
_AUDIO = frozenset({"input_audio", "audio_url", "audio"})
_TEXT = frozenset({"text", "input_text", "output_text", "refusal"})
_TOOL = frozenset({"tool_result", "function_call_output", "tool_use", "function_call"})
_SYSTEM = frozenset({"system", "developer"})

_ASKING = frozenset({
    "tools", "functions", "response_format", "structured_outputs", "guided_json", "text",
    "logprobs", "prompt_logprobs", "reasoning", "reasoning_effort", "thinking",
    "chat_template_kwargs", "modalities",
})  # fmt: skip

# What chat front ends ask on their own behalf: a title, tags or follow-ups for a session that
# they quote whole.
_HOUSEKEEPING = re.compile(
    r"\b(?:generate|write|create|provide|give|suggest|propose|produce|summari[sz]e|analy[sz]e)\b"
    r"[^.\n]{0,90}\b(?:titles?|tags?|follow-?ups?|follow-up questions|new (?:conversation )?topic"
    r"|conversation topic|subject line)\b[^#]{0,160}"
    r"\b(?:conversation|chat|session|thread|dialog(?:ue)?|messages?)\b"
    r"|\b(?:generate|write|create|provide)\b[^.\n]{0,40}"
    r"\b(?:concise|short|brief|\d+(?:-\d+)?[- ]word)[^.\n]{0,40}\btitle\b",
    re.I | re.S,
)
_LABELS = ("tag", "follow", "topic", "subject line")
_TALKS = ("conversation", "chat", "session", "thread", "dialog", "message")
_HOUSEKEEPING_CHARS = 600


def view_of(body: Mapping[str, Any], headers: Mapping[str, str] = _NO_HEADERS) -> View:
    """The view of a request body and its headers (lower-case names).

    Raises RequestError, naming the field, where the body is not one of the four shapes.
    """
    reader = _Reader()
    if "messages" in body:
        reader.system(body.get("system"), "system")
        reader.messages(_list(body["messages"], "messages"), "messages")
    elif "input" in body:
        reader.system(body.get("instructions"), "instructions")
        reader.input(body["input"])
    elif "prompt" in body:
        reader.prompt(body["prompt"])
    else:
        raise RequestError("you must give `messages`, `input` or `prompt`", param="messages")
    needs = _needs(body) | reader.needs
    kind, turn, earlier = reader.judged()
    return View(
        kind=kind,
        turn=turn,
        earlier=earlier,
        tokens=reader.tokens + _schema_tokens(body),
        max_tokens=_max_tokens(body),
        needs=frozenset(needs),
        model=_typed(body, "model", str),
        key=reader.key(),
        stream=bool(_typed(body, "stream", bool)),
        n=max(_whole(body, "n", MOST_CHOICES) or 1, 1),
        header=headers.get(PIN_HEADER) or None,
        wide=reader.wide,
        priority=_priority(body, headers),
        headers=headers,
    )


def pooling_view(body: Mapping[str, Any], headers: Mapping[str, str] = _NO_HEADERS) -> View:
    """The view of a request for embeddings or scores: there is nothing to judge."""
    given = (body.get(name) for name in _POOLED)
    tokens = sum(_size(value) // 4 for value in given if value is not None)
    return bare_view(body, headers, tokens, frozenset({Need.EMBEDDINGS}))


def bare_view(
    body: Mapping[str, Any],
    headers: Mapping[str, str] = _NO_HEADERS,
    tokens: int = 0,
    needs: frozenset[Need] = frozenset(),
) -> View:
    """The view of a request without a talk, and without an answer that is generated."""
    return View(
        kind=Kind.NONE,
        turn=Turn(""),
        earlier=(),
        tokens=tokens,
        max_tokens=1,
        needs=needs,
        model=_typed(body, "model", str),
        key=0,
        header=headers.get(PIN_HEADER) or None,
        priority=_priority(body, headers),
        headers=headers,
    )


def tokens_of(text: str) -> int:
    """Estimated tokens of `text`: 4 ASCII characters each, one CJK character, 1.6 of Cyrillic.

    Tokenizers of the Llama 3 and Qwen families come to 3.5 to 4.5 English characters a token; the
    non-ASCII rates are on the safe side (more tokens than there are).
    """
    chars = len(text)
    if text.isascii():
        return (chars + 3) // 4
    sample = text if chars <= SAMPLE_CHARS else text[:: chars // SAMPLE_CHARS]
    extra = len(sample.encode("utf-8", "surrogatepass")) / len(sample) - 1
    return int(chars * (0.25 + extra * 0.375)) + 1


class _Reader:
    """Walks the messages once and keeps what `View` is made of."""

    def __init__(self) -> None:
        self.needs: set[Need] = set()
        self.tokens = self.wide = 0
        self.human: list[tuple[str, int]] = []  # (raw text, media) of each human turn
        self.last = Kind.NONE
        self._system: list[str] = []

    # ---- the shapes

    def system(self, value: Any, where: str) -> None:
        """Takes Anthropic's `system` or the responses' `instructions`."""
        if value is not None:
            text, _, _ = self._content(value, where)
            self._system.append(text)

    def messages(self, messages: Sequence[Any], where: str) -> None:
        """Takes chat messages, Anthropic's or the responses' items."""
        if not messages:
            raise RequestError(f"`{where}` must not be empty", param=where)
        for index, message in enumerate(messages):
            if type(message) is dict and type(message.get("content")) is str:
                self._plain(message, where, index)
            elif isinstance(message, Mapping):
                self._message(message, f"{where}[{index}]")
            else:
                raise RequestError("a message must be an object", param=f"{where}[{index}]")

    def input(self, value: Any) -> None:
        """Takes the responses' `input`: a string, or a list of items."""
        if isinstance(value, str):
            self._count(value)
            self._human(value, 0)
        else:
            self.messages(_list(value, "input"), "input")

    def prompt(self, value: Any) -> None:
        """Takes the completions' `prompt`: text, texts, tokens or lists of tokens."""
        if isinstance(value, str):
            self._count(value)
            self._human(value, 0)
            return
        items = _list(value, "prompt")
        if not items:
            raise RequestError("`prompt` must not be empty", param="prompt")
        kinds = set(map(type, items))  # `isinstance` would take true for a number
        if kinds == {int}:
            self.tokens += len(items)
        elif kinds == {str}:
            for item in items:
                self._count(item)
            self._human("\n".join(items), 0)
        elif kinds == {list}:
            self.tokens += sum(map(len, items))
        else:
            raise RequestError("`prompt` must be text, tokens, or a list of one", param="prompt")

    # ---- one message

    def _plain(self, message: dict[str, Any], where: str, index: int) -> None:
        """`_message` of one that is a role and a text, as most are: a long talk has hundreds."""
        role, text = message.get("role"), message["content"]
        if len(message) != 2 or type(role) is not str or role == "tool" or role == "function":
            self._message(message, f"{where}[{index}]")
            return
        self.tokens += MESSAGE_TOKENS
        self._count(text)
        if role == "user":
            self._human(text, 0)
        elif role in _SYSTEM:
            self._system.append(text)

    def _message(self, message: Mapping[str, Any], where: str) -> None:
        self.tokens += MESSAGE_TOKENS
        role, item = message.get("role"), _kind(message, where)
        if role is not None and not isinstance(role, str):
            raise RequestError("`role` must be a string", param=f"{where}.role")
        calls = message.get("tool_calls")
        if calls:
            self.tokens += _size(calls) // 4
        if item in _TOOL:
            self._tool(message, where)
            return
        text, media, tools = self._content(message.get("content"), f"{where}.content")
        if role in _SYSTEM:
            self._system.append(text)
        elif role in ("tool", "function"):
            self.last = Kind.TOOL
        elif role == "user" or (role is None and item is None):
            if tools and not _speaks(text) and not media:
                self.last = Kind.TOOL
            else:
                self._human(text, media)

    def _tool(self, item: Mapping[str, Any], where: str) -> None:
        """A tool call or its result as an item of its own (responses)."""
        if item.get("type") in ("function_call_output", "tool_result"):
            self.last = Kind.TOOL
            self._content(item.get("output", item.get("content")), f"{where}.output")
        else:
            self.tokens += _size(item) // 4

    def _human(self, text: str, media: int) -> None:
        self.human.append((text, media))
        self.last = Kind.HUMAN

    def _content(self, content: Any, where: str) -> tuple[str, int, int]:
        """(text, number of media parts, number of tool parts); counts tokens and needs."""
        if content is None:
            return "", 0, 0
        if isinstance(content, str):
            self._count(content)
            return content, 0, 0
        if isinstance(content, Mapping):
            content = [content]
        texts: list[str] = []
        media = tools = 0
        for index, part in enumerate(_list(content, where)):
            if isinstance(part, str):
                self._count(part)
                texts.append(part)
                continue
            if not isinstance(part, Mapping):
                raise RequestError("a part must be an object", param=f"{where}[{index}]")
            kind = _kind(part, f"{where}[{index}]")
            if kind in _TEXT or (kind is None and "text" in part):
                texts.append(self._text(part, f"{where}[{index}]"))
            elif kind in _TOOL:
                tools += 1
                self._part_of_tool(part, f"{where}[{index}]")
            else:
                media += self._media(kind)
        return "\n".join(texts) if len(texts) != 1 else texts[0], media, tools

    def _text(self, part: Mapping[str, Any], where: str) -> str:
        text = part.get("text", part.get("refusal"))
        if text is None:
            return ""
        if not isinstance(text, str):
            raise RequestError("`text` must be a string", param=f"{where}.text")
        self._count(text)
        return text

    def _part_of_tool(self, part: Mapping[str, Any], where: str) -> None:
        if part.get("type") == "tool_result":
            self._content(part.get("content"), f"{where}.content")  # its images need vision too
        else:
            self.tokens += _size(part) // 4

    def _media(self, kind: str | None) -> int:
        if kind in _IMAGE:
            self.needs.add(Need.VISION)
            self.tokens += IMAGE_TOKENS
            return 1
        if kind in _AUDIO:
            self.needs.add(Need.AUDIO)
            self.tokens += AUDIO_TOKENS
            return 1
        return 0  # thinking blocks, files by id, parts of tomorrow

    def _count(self, text: str) -> None:
        tokens = tokens_of(text)
        self.tokens += tokens
        if not text.isascii():
            self.wide += tokens

    # ---- what comes of it

    def judged(self) -> tuple[Kind, Turn, tuple[Turn, ...]]:
        """(kind, the turn to judge, the human turns before it)."""
        turns: list[Turn] = []
        noise_last = False
        for position, (text, media) in enumerate(reversed(self.human)):
            turn = turn_of(text, media)
            if turn.text or turn.code or turn.pasted or media:
                turns.append(turn)
            elif position == 0:
                noise_last = True
            if len(turns) > EARLIER_TURNS:
                break
        if not turns:
            return Kind.NONE, Turn(""), ()
        kind = Kind.TOOL if noise_last and self.last is Kind.HUMAN else self.last
        if kind is Kind.HUMAN and self._housekeeping():
            return Kind.HOUSEKEEPING, turns[0], ()
        return kind, turns[0], tuple(reversed(turns[1:]))

    def _housekeeping(self) -> bool:
        text = self.human[-1][0]
        last = max(len(text) - _HOUSEKEEPING_CHARS, _HOUSEKEEPING_CHARS)
        ends = [text[:_HOUSEKEEPING_CHARS], text[last:]]
        if len(self.human) == 1:
            ends += [system[:_HOUSEKEEPING_CHARS] for system in self._system]
        return any(map(_asks_for_title, ends))

    def key(self) -> int:
        """64 bits of the system prompt and the first human turn."""
        digest = blake2b(digest_size=8)
        for text in (*self._system[:2], self.human[0][0] if self.human else ""):
            digest.update(text[:KEY_CHARS].encode("utf-8", "surrogatepass"))
            digest.update(b"\0")
        return int.from_bytes(digest.digest(), "big")


def _asks_for_title(text: str) -> bool:
    low = text.lower()
    names = low.__contains__
    if not names("title") and not (any(map(names, _LABELS)) and any(map(names, _TALKS))):
        return False  # as most texts; the expression takes long
    return bool(_HOUSEKEEPING.search(low))


def _speaks(text: str) -> bool:
    """Whether a person's words stand beside a tool's result (not just harness noise)."""
    return bool(text) and bool(turn_of(text).text)


def _kind(part: Mapping[str, Any], where: str) -> str | None:
    kind = part.get("type")
    if kind is not None and not isinstance(kind, str):
        raise RequestError("`type` must be a string", param=f"{where}.type")
    return kind


def _list(value: Any, where: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise RequestError(f"`{where}` must be a list", param=where)
    return value


def _typed(body: Mapping[str, Any], name: str, kind: type) -> Any:
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        names = {str: "a string", bool: "true or false", int: "an integer"}
        raise RequestError(f"`{name}` must be {names[kind]}", param=name)
    return value


def _whole(body: Mapping[str, Any], name: str, most: int) -> int | None:
    """A number that can be added up; whether it makes sense, the replica says."""
    value: int | None = _typed(body, name, int)
    return None if value is None else _within(value, name, most)


def _within(value: int, name: str, most: int) -> int:
    if not -most <= value <= most:
        raise RequestError(f"`{name}` must be from {-most} to {most}", param=name)
    return value


def _max_tokens(body: Mapping[str, Any]) -> int | None:
    found: int | None = None
    for name in ("max_completion_tokens", "max_tokens", "max_output_tokens"):
        value = _whole(body, name, MOST_TOKENS)
        found = value if found is None else found
    return None if found is None or found < 0 else found  # of -1 some hosts make no limit


def _priority(body: Mapping[str, Any], headers: Mapping[str, str]) -> int | None:
    """The priority that the client set; vLLM lets the header win over the body."""
    header = headers.get(PRIORITY_HEADER)
    if header is None:
        return _whole(body, "priority", MOST_PRIORITY)
    try:
        return _within(int(header), PRIORITY_HEADER, MOST_PRIORITY)
    except ValueError:
        raise RequestError(
            f"`{PRIORITY_HEADER}` must be an integer", param=PRIORITY_HEADER
        ) from None


def _size(value: Any) -> int:
    return len(msgspec.json.encode(value))


def _schema_tokens(body: Mapping[str, Any]) -> int:
    """Prompt tokens of the tools' schemas."""
    tools = body.get("tools") or body.get("functions")
    return _size(tools) // 4 if tools else 0


def _needs(body: Mapping[str, Any]) -> set[Need]:
    """What the parameters ask for; media are found in the messages."""
    needs: set[Need] = set()
    if _ASKING.isdisjoint(body):  # as most requests
        return needs
    if (body.get("tools") or body.get("functions")) and body.get("tool_choice") != "none":
        needs.add(Need.TOOLS)
    if _wants_json(body):
        needs.add(Need.JSON)
    if any(body.get(name) not in (None, False) for name in ("logprobs", "prompt_logprobs")):
        needs.add(Need.LOGPROBS)
    if _wants_reasoning(body):
        needs.add(Need.REASONING)
    modalities = body.get("modalities")
    if isinstance(modalities, list) and "audio" in modalities:
        needs.add(Need.AUDIO)
    return needs


def _wants_json(body: Mapping[str, Any]) -> bool:
    if body.get("structured_outputs") or body.get("guided_json"):
        return True
    text = body.get("text")
    formats = (body.get("response_format"), text.get("format") if _is_map(text) else None)
    return any(
        _is_map(form) and form.get("type") in ("json_object", "json_schema") for form in formats
    )


def _wants_reasoning(body: Mapping[str, Any]) -> bool:
    reasoning, thinking = body.get("reasoning"), body.get("thinking")
    effort = reasoning.get("effort") if _is_map(reasoning) else body.get("reasoning_effort")
    if effort not in (None, "none", "minimal"):
        return True
    if _is_map(thinking) and thinking.get("type") == "enabled":
        return True
    kwargs = body.get("chat_template_kwargs")
    return _is_map(kwargs) and (
        kwargs.get("enable_thinking") is True or kwargs.get("thinking") is True
    )


def _is_map(value: Any) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)
