"""Requests as they come: read from a trace, or made up."""

from __future__ import annotations

import csv
import gzip
import heapq
import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path

from tier_router.errors import ConfigError

BLOCK_TOKENS = 512
"""Tokens of one block id in Mooncake's traces."""

COMMON = 0.5
"""A block that more than this share of a trace begins with is a system prompt: it tells no
conversations apart."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request; `at` is in seconds from the start.

    `difficulty` is what a classifier would say, `earlier` what it would say of the human turns
    before.  `conversation` names the conversation, and `prefix` says how many prompt tokens its
    earlier requests may have left in a cache.  `priority` is what the client asked of vLLM: the
    lowest goes first.
    """

    at: float
    prompt: int
    output: int
    kind: str = ""
    difficulty: float = 0.0
    conversation: int | None = None
    prefix: int = 0
    earlier: tuple[float, ...] = ()
    priority: int | None = None
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lognormal numbers of tokens: half lie below the median, `spread` is the log's deviation."""

    prompt: int
    output: int
    spread: float = 0.8
    longest: int = 16_384

    def draw(self, pick: random.Random) -> tuple[int, int]:
        """Prompt and output tokens of one request."""
        return self._near(self.prompt, pick), self._near(self.output, pick)

    def _near(self, median: int, pick: random.Random) -> int:
        return max(1, min(self.longest, round(pick.lognormvariate(math.log(median), self.spread))))


def read_trace(path: str | Path, kind: str = "", difficulty: float = 0.0) -> list[Arrival]:
    """The rows of a CSV file (or .csv.gz), oldest first.

    Columns: `t_s`, `in_tokens`, `out_tokens`; where there are, `kind`, `difficulty`,
    `conversation` (any text), and `prefix_block_ids` (Mooncake's: equal ids are equal prefixes).
    Raises ConfigError that names file, line and column.
    """
    path = Path(path)
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path}: not a readable CSV file: {error}") from None
    arrivals = [
        _arrival(row, f"{path}:{line}", kind, difficulty) for line, row in enumerate(rows, 2)
    ]
    if rows and rows[0].get("prefix_block_ids") is not None:
        blocks = [(row.get("prefix_block_ids") or "").split() for row in rows]
        arrivals = _by_blocks(arrivals, blocks)
    return sorted(arrivals, key=attrgetter("at"))


def _arrival(row: Mapping[str, str], where: str, kind: str, difficulty: float) -> Arrival:
    conversation = row.get("conversation")
    given = row.get("difficulty")
    return Arrival(
        at=_number(row, "t_s", where),
        prompt=max(1, round(_number(row, "in_tokens", where))),
        output=max(1, round(_number(row, "out_tokens", where))),
        kind=row.get("kind") or kind,
        difficulty=_number(row, "difficulty", where) if given else difficulty,
        conversation=_key(conversation) if conversation else None,
    )


def _number(row: Mapping[str, str], column: str, where: str) -> float:
    text = row.get(column)
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        said = "is missing" if text is None else f"is no number from 0 up: {text[:40]!r}"
        raise ConfigError(f"{where} {column} {said}")
    return value


def _key(text: str) -> int:
    """64 bits that are equal for equal texts, in every process."""
    return random.Random(text).getrandbits(64)


def _by_blocks(arrivals: Sequence[Arrival], blocks: Sequence[Sequence[str]]) -> list[Arrival]:
    """Conversations and prefixes by block ids: the first id that is not common is the key."""
    heads: dict[str, int] = {}
    for ids in blocks:
        for block in ids[:1]:
            heads[block] = heads.get(block, 0) + 1
    common = {block for block, count in heads.items() if count > COMMON * len(blocks)}
    seen: set[str] = set()
    found = []
    for arrival, ids in zip(arrivals, blocks, strict=True):
        own = next((block for block in ids if block not in common), None)
        known = next((place for place, block in enumerate(ids) if block not in seen), len(ids))
        seen.update(ids)
        key = None if own is None else _key(own)
        found.append(replace(arrival, conversation=key, prefix=known * BLOCK_TOKENS))
    return found


# ---- made up


def poisson(
    rate: float,
    seconds: float,
    lengths: Lengths,
    seed: int,
    *,
    kind: str = "",
    difficulty: float | tuple[float, float] = 0.0,
) -> Iterator[Arrival]:
    """Requests that know nothing of each other, `rate` a second.

    `difficulty` is a number, or the two parameters of a beta distribution.
    """
    pick = random.Random(seed)
    at = pick.expovariate(rate)
    while at < seconds:
        prompt, output = lengths.draw(pick)
        level = difficulty if isinstance(difficulty, float) else pick.betavariate(*difficulty)
        yield Arrival(at, prompt, output, kind, level, pick.getrandbits(64))
        at += pick.expovariate(rate)


def bursts(
    arrivals: Iterable[Arrival], every: float, lasting: float, factor: float
) -> Iterator[Arrival]:
    """The same requests with the clock running unevenly: for `lasting` of each `every` seconds
    they come `factor` times as fast, and slower in between, so that the mean rate stays."""
    if not 0 < lasting * factor < every:
        raise ValueError(f"lasting * factor must lie between 0 and {every}")
    dense = lasting * factor
    slack = (every - lasting) / (every - dense)
    for arrival in arrivals:
        cycle, place = divmod(arrival.at, every)
        moved = place / factor if place < dense else lasting + (place - dense) * slack
        yield replace(arrival, at=cycle * every + moved)


def conversations(
    rate: float,
    seconds: float,
    first: Lengths,
    seed: int,
    *,
    turns: float = 5.0,
    pause: float = 20.0,
    kind: str = "",
    difficulty: tuple[float, float] = (1.0, 3.0),
) -> list[Arrival]:
    """Conversations that begin `rate` times a second; `turns` is the mean of a geometric number.

    Each turn brings the whole history, as chat clients do.  `pause` is the mean time from one
    request to the next, at least a tenth of it.  A turn is as hard as a draw from the beta
    distribution `difficulty`.
    """
    pick = random.Random(seed)
    found = []
    begin = pick.expovariate(rate)
    while begin < seconds:
        key, at = pick.getrandbits(64), begin
        history = 0
        earlier: tuple[float, ...] = ()
        while at < seconds:
            new, output = first.draw(pick)
            level = pick.betavariate(*difficulty)
            arrival = Arrival(at, history + new, output, kind, level, key, history, earlier)
            found.append(arrival)
            history += new + output
            earlier = (*earlier, level)[-8:]
            if pick.random() * turns < 1:
                break
            at += pause * 0.1 + pick.expovariate(1 / (pause * 0.9))
        begin += pick.expovariate(rate)
    return sorted(found, key=attrgetter("at"))


def merge(*streams: Iterable[Arrival]) -> list[Arrival]:
    """All of them, in the order they come."""
    return list(heapq.merge(*streams, key=attrgetter("at")))


def faster(arrivals: Iterable[Arrival], factor: float) -> list[Arrival]:
    """The same requests in a `factor`-th of the time."""
    return [replace(arrival, at=arrival.at / factor) for arrival in arrivals]
