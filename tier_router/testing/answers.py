"""What the fake model writes: deterministic, as long as the question deserves, and signed."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tier_router.testing import structured, tokens

Body = dict[str, Any]

_WORDS = tuple(
    re.findall(
        r"\w+",
        """the of and to in is that for it as was with be by on not he his but at are this have from
        or had an they one all we her she were there been their has will more when who out so if
        can said what up its about than into them only time some could these two may then do any
        now like our over man me even most made after also did many way must well back down""",
    )
)

_HARD = re.compile(
    r"\b(?:prove|derive|proof|step by step|analy[sz]e|explain|compare|implement|refactor"
    r"|optimi[sz]e|design|essay|write|review|contract|why|algorithm|theorem|integral|debug)\b",
    re.I,
)

SHORT, LONG, LONGEST = 16, 160, 800
"""Tokens of an answer: of the shortest, of one to a hard question, and of any."""


class Part(StrEnum):
    """Which part of an answer a token belongs to."""

    REASONING = "reasoning"
    CONTENT = "content"
    CALL = "call"
    """The head of a tool call: its name."""
    ARGUMENTS = "arguments"


@dataclass(frozen=True, slots=True)
class Draft:
    """A whole answer before it is sent: its tokens, and why it ends."""

    pieces: tuple[tuple[Part, str], ...]
    finish: str
    stop: str | None = None

    def text(self, part: Part) -> str:
        """All of one part."""
        return "".join(piece for kind, piece in self.pieces if kind is part)

    @property
    def reasoning_tokens(self) -> int:
        """Tokens that went into thinking."""
        return sum(kind is Part.REASONING for kind, _ in self.pieces)


def natural_length(question: str) -> int:
    """Tokens of an answer to `question`: few to a short one, many to a long or hard one."""
    hard = len(_HARD.findall(question[:20_000]))
    return min(LONGEST, SHORT + tokens.count(question) // 4 + LONG * min(hard, 3))


def prose(opening: str, question: str, length: int, choice: int = 0) -> list[str]:
    """`length` pieces of text, one token each, that begin with `opening`."""
    seed = zlib.crc32(f"{question}#{choice}".encode("utf-8", "surrogatepass"))
    stride = seed % 89 + 1
    first = tokens.pieces(opening)[:length]
    return first + [
        f" {_WORDS[(seed + number * stride) % len(_WORDS)]}"
        for number in range(length - len(first))
    ]


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes the drafts of one model; `answer` gives the text instead where it is set."""

    model: str
    answer: Callable[[Body], str] | None = None
    multimodal: bool = False
    """Takes images and sound, of which it sees nothing."""
    parses_thoughts: bool = True
    """Tells thoughts from the answer; else they are a part of it, in `<think>`."""

    def chat(self, body: Body, room: int, choice: int = 0) -> Draft:
        """The answer to a chat in at most `room` tokens."""
        question = _question(body)
        call = structured.tool_call(body, question)
        thought = self._thought(body, question)
        if call is not None:
            name, arguments = call
            said = [(Part.CALL, name), *((Part.ARGUMENTS, x) for x in tokens.pieces(arguments))]
            return _fit(body, thought + said, room, "tool_calls")
        return self._text(body, question, thought, room, choice)

    def completion(self, body: Body, prompt: str, room: int, choice: int = 0) -> Draft:
        """The continuation of `prompt` in at most `room` tokens."""
        return self._text(body, prompt, [], room, choice)

    def _thought(self, body: Body, question: str) -> list[tuple[Part, str]]:
        if not thinks(body):
            return []
        thought = prose(f"{self.model} thinks:", question, 2 * natural_length(question))
        if self.parses_thoughts:
            return [(Part.REASONING, piece) for piece in thought]
        return [(Part.CONTENT, piece) for piece in ("<think>", *thought, "</think>")]

    def _text(
        self,
        body: Body,
        question: str,
        thought: list[tuple[Part, str]],
        room: int,
        choice: int,
    ) -> Draft:
        fixed = (
            self.answer(body) if self.answer is not None else structured.prescribed(body, question)
        )
        if fixed is not None:
            written = tokens.pieces(fixed)
        else:
            least = _whole(body.get("min_tokens"))
            length = room if body.get("ignore_eos") else max(natural_length(question), least)
            written = prose(f"{self.model} answers:", question, length, choice)
        text, stop = _stopped("".join(written), body.get("stop"))
        if stop is not None:
            written = tokens.pieces(text)
        said = [(Part.CONTENT, piece) for piece in written]
        return _fit(body, thought + said, room, "stop", stop)


def thinks(body: Body) -> bool:
    """True where the request asks for reasoning."""
    kwargs = body.get("chat_template_kwargs")
    if isinstance(kwargs, Mapping) and isinstance(kwargs.get("enable_thinking"), bool):
        return bool(kwargs["enable_thinking"])
    return body.get("reasoning_effort") not in (None, "none")


def _fit(
    body: Body,
    pieces: Sequence[tuple[Part, str]],
    room: int,
    finish: str,
    stop: str | None = None,
) -> Draft:
    """A draft of at most `room` tokens, and at least one."""
    if not pieces:
        pieces = [(Part.CONTENT, "")]
    if len(pieces) > room or (body.get("ignore_eos") and len(pieces) == room):
        return Draft(tuple(pieces[:room]), "length")
    return Draft(tuple(pieces), finish, stop)


def _question(body: Body) -> str:
    """The last message of the user."""
    for message in reversed(body.get("messages") or ()):
        if isinstance(message, Mapping) and message.get("role") == "user":
            return tokens.text_of(message.get("content"))
    return ""


def _stopped(text: str, stops: Any) -> tuple[str, str | None]:
    """`text` up to the first stop string, and that string."""
    wanted = [stops] if isinstance(stops, str) else stops if isinstance(stops, list) else []
    found = [(text.find(stop), stop) for stop in wanted if isinstance(stop, str) and stop in text]
    if not found:
        return text, None
    at, stop = min(found)
    return text[:at], stop


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0
