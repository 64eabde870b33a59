"""Recognises what texts are: a block of retrieved passages, or code.

Only blocks of four or more segments of one written style count as retrieved passages; anything
else is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

FEWEST = 4
"""Segments that make a block; fewer are worth no look."""

LONGEST = 200_000
"""Characters of a text that is looked at; a longer one is no retrieved context."""

LEAST_CHARS = 40
"""Mean characters of a block's segments: a list of short items is no block of passages."""

LEFT_OUT = "[Left out here as unrelated to the question: "
"""How a note on missing passages begins; a text with one has been pruned before."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One passage: its place in the text, what it is called there, its title and its words."""

    start: int
    end: int
    label: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Block:
    """A run of passages; `style` says how they are written."""

    style: str
    segments: tuple[Segment, ...]

    @property
    def start(self) -> int:
        """Where the first passage begins."""
        return self.segments[0].start

    @property
    def end(self) -> int:
        """Where the last passage ends."""
        return self.segments[-1].end


# A segment begins at a head at the start of a line and ends before the next one, or at a line that
# starts the question or the instructions.
_HEADS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("document", re.compile(
        r"^(?:Document|Doc|Passage|Context|Chunk|Source|Result|Excerpt|Snippet|Reference)"
        r"\s*(?:\[(?P<a>\d{1,3})\]|\#?(?P<b>\d{1,3})(?=\s*[:.(\n-]))"
        r"(?:\s*\((?:Title:\s*)?(?P<title>(?:[^()\n]|\([^()\n]*\))*)\))?[ \t]*[:.-]?[ \t]*", re.M)),
    ("number", re.compile(r"^\[(?P<a>\d{1,3})\](?P<b>)[ \t]*[:.-]?[ \t]*(?P<title>)", re.M)),
    ("source", re.compile(
        r"^(?:Source|URL|Title|File|Filename|Url):[ \t]*(?P<title>[^\n]{1,200})\n"
        r"(?P<a>)(?P<b>)", re.M)),
)  # fmt: skip

_TAGGED = re.compile(
    r"<(?P<tag>document|doc|source|passage|context|chunk|result|search_result|snippet)\b"
    r"(?P<attributes>[^<>]{0,200})>(?P<inner>.*?)</(?P=tag)>",
    re.S | re.I,
)
_TITLE = re.compile(
    r"<(?:title|source)>(?P<a>[^<]{1,200})</|\b(?:title|name|source)=\"(?P<b>[^\"]{1,200})\"", re.I
)
_INDEX = re.compile(r"\b(?:index|id|n)=\"(\d{1,4})\"", re.I)

_STOPPER = re.compile(
    r"(?<=\n)(?:question|query|answer|user question|instructions?|task|given the context|based on"
    r"|using the|use the|please|helpful answer|final answer|-{5,}|={5,}|#{1,4} )",
    re.I,
)
_ASKING = re.compile(r"(?<=\n)(?:question|query|user question|final answer)[ \t]*:", re.I)
_LINE_RULE = re.compile(r"^(?:---+|===+|\*\*\*+)[ \t]*$", re.M)
_CONTEXT = re.compile(
    r"^(?:context(?: information)?(?: is)?(?: below)?|search results"
    r"|retrieved (?:documents|passages|context)|documents|passages)"
    r"[ \t]*[:.]?[ \t]*\n(?:-{3,}[ \t]*\n)?",
    re.I | re.M,
)

_CODE_LINE = re.compile(
    r"^\s*(?:def |class |import |from \w+ import|return\b|if \(|for \(|#include|@@ |[+-]{3} [ab]/"
    r"|diff --git|public |private |const |let |var |function |\}|\{$|.*[;{}]$)"
)


@lru_cache(1_024)
def block_of(text: str) -> Block | None:
    """The retrieved passages of `text`; None where there are none, or where it is unclear."""
    if len(text) > LONGEST or LEFT_OUT in text or len(text) < FEWEST * LEAST_CHARS:
        return None
    found = [block for block in _blocks(text) if _whole(block)]
    return max(found, key=lambda block: block.end - block.start, default=None)


def _blocks(text: str) -> Iterator[Block]:
    yield from _tagged(text)
    for style, head in _HEADS:
        segments = _headed(text, head)
        if segments:
            yield Block(style, segments)
    context = _CONTEXT.search(text)
    if context:
        end = _stop(text, context.end(), len(text))
        for style, split in (("rule", _LINE_RULE), ("paragraph", re.compile(r"\n[ \t]*\n"))):
            segments = _split(text, context.end(), end, split)
            if len(segments) >= FEWEST:
                yield Block(style, segments)
                break


def _whole(block: Block) -> bool:
    mean = (block.end - block.start) / len(block.segments)
    return len(block.segments) >= FEWEST and mean >= LEAST_CHARS


def _tagged(text: str) -> Iterator[Block]:
    runs: list[list[re.Match[str]]] = []
    for match in _TAGGED.finditer(text):
        last = runs[-1][-1] if runs else None
        if last and last["tag"] == match["tag"] and not text[last.end() : match.start()].strip():
            runs[-1].append(match)
        else:
            runs.append([match])
    for run in runs:
        segments = []
        for at, match in enumerate(run):
            end = run[at + 1].start() if at + 1 < len(run) else match.end()
            inner = match["attributes"] + match["inner"]
            title = _TITLE.search(inner)
            index = _INDEX.search(match["attributes"])
            segments.append(
                Segment(match.start(), end, index[1] if index else str(at + 1),
                        (title["a"] or title["b"]).strip() if title else "", match["inner"])
            )  # fmt: skip
        yield Block("tag", tuple(segments))


def _headed(text: str, head: re.Pattern[str]) -> tuple[Segment, ...]:
    matches = list(head.finditer(text))
    if len(matches) < FEWEST:
        return ()
    segments = []
    for at, match in enumerate(matches):
        last = at + 1 == len(matches)
        end = _stop(text, match.end(), len(text)) if last else matches[at + 1].start()
        inner = text[match.end() : end]
        if not last and _ASKING.search(inner):
            return ()  # a question between the passages: not one block
        title = (match["title"] or "").strip() or _first_line(inner)
        segments.append(
            Segment(match.start(), end, match["a"] or match["b"] or str(at + 1), title, inner)
        )
    return tuple(segments)


def _first_line(inner: str) -> str:
    """A short first line before more text, which is how titles are written."""
    line, found, more = inner.strip().partition("\n")
    return line.strip(" :#*") if found and more.strip() and len(line) <= 100 else ""


def _stop(text: str, start: int, end: int) -> int:
    """Where a last passage ends: at the question or instructions, else where its paragraph does."""
    stop = _STOPPER.search(text, start)
    limit = stop.start() if stop else end
    gap = re.compile(r"\n[ \t]*\n").search(text, start, limit)
    return gap.start() + 1 if gap else limit


def _split(text: str, start: int, end: int, by: re.Pattern[str]) -> tuple[Segment, ...]:
    stop = _STOPPER.search(text, start)
    end = stop.start() if stop else len(text)
    bounds = [start]
    bounds += [match.end() for match in by.finditer(text, start, end)]
    bounds.append(end)
    segments = [
        Segment(one, two, str(at + 1), _first_line(text[one:two]), text[one:two])
        for at, (one, two) in enumerate(pairwise(bounds))
        if text[one:two].strip(" \n\t-=*")
    ]
    return tuple(segments)


@lru_cache(2_048)
def is_code(text: str) -> bool:
    """Whether a text is code, a diff or a listing with line numbers, by its first 200 lines."""
    lines = [line for line in text[:16_000].split("\n")[:200] if line.strip()]
    if not lines:
        return False
    return sum(bool(_CODE_LINE.match(line)) for line in lines) > len(lines) * 0.3
