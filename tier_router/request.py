"""What routing may know of a request.  Values only; `tier_router.view` reads them from a body."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

TURN_CHARS = 2_000
"""Longest text of a turn that is judged: its first and last 1,000 characters.

The text is cut before anything reads it, which makes the cost of a verdict flat."""


class Need(StrEnum):
    """An ability that a request needs and a tier may lack."""

    TOOLS = "tools"
    VISION = "vision"
    AUDIO = "audio"
    JSON = "json"
    LOGPROBS = "logprobs"
    REASONING = "reasoning"
    EMBEDDINGS = "embeddings"
    """Vectors and scores instead of text; what has it (vLLM's pooling runner) has nothing else."""


class Kind(StrEnum):
    """Who is speaking in the last message."""

    HUMAN = "human"
    """A person asks; the turn is judged."""
    TOOL = "tool"
    """A tool's result comes back; the request stays where its human turn went."""
    HOUSEKEEPING = "housekeeping"
    """The client asks on its own behalf (a title, tags, a follow-up suggestion)."""
    NONE = "none"
    """Nobody: no human text was found (system only, image only, token arrays)."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One human turn as the classifier sees it.

    `text` is at most `TURN_CHARS` long; harness noise (`<system-reminder>`), fenced code and
    pasted logs are taken out of it and only counted, in characters, in `code` and `pasted`.
    `chars` is the length of the turn as it was sent; `media` counts images and audio clips.
    """

    text: str
    code: int = 0
    pasted: int = 0
    chars: int = 0
    media: int = 0


@dataclass(frozen=True, slots=True)
class View:
    """All that routing knows of a request.

    `turn` is what is judged, `earlier` are the human turns before it (the newest last, bounded),
    `tokens` estimates the prompt, `max_tokens` is the output limit the client set.  `model` and
    `header` are what the client named (a pin, once the ladder has resolved it).  `key` is 64 bits
    that are equal for all requests of one conversation.  `headers` are the request's, with
    lower-case names, for the rules.  `wide` is how many of the prompt's tokens are of text that is
    not ASCII.  `priority` is vLLM's: lower goes first, None where the client set none.
    `allowed` are the tiers that the client may use, None for all.
    `keeper` is the one replica that can answer, by name: it keeps what the request goes on from.
    """

    kind: Kind
    turn: Turn
    earlier: tuple[Turn, ...]
    tokens: int
    max_tokens: int | None
    needs: frozenset[Need]
    model: str | None
    key: int
    stream: bool = False
    n: int = 1
    header: str | None = None
    wide: int = 0
    priority: int | None = None
    keeper: str | None = None
    allowed: frozenset[str] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
