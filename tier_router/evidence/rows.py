"""From a piece of a log to a table: one row a request."""

from __future__ import annotations

import io
import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any

from tier_router.config import Config
from tier_router.decide import Reason
from tier_router.decisionlog import Record
from tier_router.errors import RequestError, TierRouterError
from tier_router.evidence.formats import Asked, Format, reader_of
from tier_router.evidence.judge import KEPT, Judge, Known, known_of_record, output_of
from tier_router.evidence.library import polars as pl
from tier_router.evidence.pruned import REQUESTS, prune

SHOWN = 5
"""Unreadable lines that are shown."""

TEXT_CHARS = 160
"""Characters of a prompt that a table keeps."""

NEAR, FEW = 0.7, 1_000
"""A request's text is kept, as one that might be shown, up to so many log-odds from the line; and
of as many first lines of a chunk in any case."""

PRUNED = 200
"""Bodies of a chunk that pruning is tried on, a millisecond or so each."""

ONE = {
    "tier": pl.String, "place": pl.Int16, "reason": pl.String, "intent": pl.String,
    "difficulty": pl.Float64, "margin": pl.Float64, "refused": pl.String,
}  # fmt: skip
"""Columns of one configuration's decision.  `margin` is in log-odds from the nearest line, where a
difficulty decided; `refused` is an error's code."""

SHARED = {
    "line": pl.Int64, "id": pl.String, "at": pl.Float64, "prompt": pl.Int64, "cached": pl.Int64,
    "output": pl.Int64, "counted": pl.Boolean, "ttft": pl.Float64, "latency": pl.Float64,
    "key": pl.UInt64, "turn": pl.UInt64, "text": pl.String,
    "went": pl.String, "replica": pl.String,
}  # fmt: skip
"""`went` and `replica` are where a request was sent, as far as the log says so."""


@dataclass(frozen=True, slots=True)
class Job:
    """What to do with each chunk: decide its requests by one configuration, or by two."""

    format: Format
    configs: tuple[Config, ...]
    share: float = 1.0
    """Share of the lines that are judged, chosen at random."""
    all_texts: bool = False
    pruning: bool = False
    """Whether to say what pruning would take out of the first bodies of each chunk."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """The lines of a file that begin at bytes `start` to `end`."""

    index: int
    path: Path
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Part:
    """What came of one chunk; `table` is Arrow's IPC format, problems are by line of the chunk."""

    index: int
    lines: int
    judged: int
    table: bytes
    failed: int
    problems: tuple[tuple[int, str], ...]
    others: int
    """Lines that are no requests."""
    pruned: Counter[str]


class Worker:
    """A job, compiled."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._read = reader_of(job.format)
        self.judges = [Judge(config) for config in job.configs]
        self._kept: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self.schema: dict[str, Any] = dict(SHARED)
        for suffix in ("", "_new")[: len(self.judges)]:
            self.schema |= {f"{name}{suffix}": kind for name, kind in ONE.items()}

    def part(self, chunk: Chunk) -> Part:
        """The requests of `chunk`, decided."""
        pick, share = random.Random(chunk.index), self._job.share
        rows: list[tuple[Any, ...]] = []
        problems: list[tuple[int, str]] = []
        failed = others = number = 0
        self._pruned: Counter[str] = Counter()
        for number, line in enumerate(lines_of(chunk), 1):
            if not line.strip():
                others += 1
                continue
            if share < 1 and pick.random() >= share:
                continue
            try:
                asked = self._read(line)
                if asked is None:
                    others += 1
                    continue
                rows.append(self._row(number, asked))
            except TierRouterError as error:
                failed += 1
                if len(problems) < SHOWN:
                    problems.append((number, str(error)))
        table = pl.DataFrame(rows, schema=self.schema, orient="row")
        buffer = io.BytesIO()
        table.write_ipc(buffer, compression="lz4")
        return Part(chunk.index, number, len(rows), buffer.getvalue(), failed, tuple(problems),
                    others, self._pruned)  # fmt: skip

    def _row(self, number: int, asked: Asked) -> tuple[Any, ...]:
        record = asked.record
        if record is not None:
            key = _hash((record.conversation or record.id).encode("utf-8", "replace"))
            found = [self._remembered(judge, record, key) for judge in self.judges]
            text = record.text
            prompt, output = record.tokens, output_of(record.max_tokens)
        elif asked.body is not None:
            view = self.judges[0].view(asked.body)
            key, text = view.key & 0xFFFF_FFFF_FFFF_FFFF, view.turn.text
            found = [_decided(judge, Known(view)) for judge in self.judges]
            prompt, output = round(view.tokens), output_of(view.max_tokens, view.n)
            tier, _, _, intent, *_ = found[0]
            if self._job.pruning and tier and self._pruned[REQUESTS] < PRUNED:
                self._pruned += prune(asked.body, view, tier, intent, self.judges[0].config)
        else:
            raise RequestError("no request in this line")
        prompt = prompt if asked.prompt is None else asked.prompt
        counted = asked.completion is not None
        return (
            number, asked.id, asked.at, prompt, min(asked.cached, prompt),
            asked.completion if counted else output, counted, asked.ttft, asked.latency, key,
            _hash((text or asked.id or "").encode("utf-8", "surrogatepass")),
            self._shown(number, text, found),
            None if record is None else record.tier, None if record is None else record.replica,
            *chain.from_iterable(found),
        )  # fmt: skip

    def _shown(self, number: int, text: str | None, found: list[tuple[Any, ...]]) -> str | None:
        """The start of a text that may be shown."""
        near = any(margin is not None and abs(margin) < NEAR for *_, margin, _ in found)
        if text is None or not (near or number <= FEW or self._job.all_texts):
            return None
        return text[:TEXT_CHARS].encode("utf-8", "replace").decode()

    def _remembered(self, judge: Judge, record: Record, key: int) -> tuple[Any, ...]:
        """As `_decided`, at once where a record like it was decided before."""
        like = id(judge), judge.likeness(record)
        found = self._kept.get(like)
        if found is None:
            if len(self._kept) >= KEPT:
                self._kept.clear()
            found = self._kept[like] = _decided(judge, known_of_record(record, key))
        *where, level, margin, refused = found
        level = record.difficulty if level is not None else None
        if margin is not None and level is not None:
            margin = _margin(level, judge.thresholds)
        return (*where, level, margin, refused)


def _decided(judge: Judge, known: Known) -> tuple[Any, ...]:
    """The columns of `ONE`."""
    try:
        decision = judge.decide(known)
    except TierRouterError as error:
        return ("", None, "", None, None, None, error.code)
    place = judge.config.ladder[decision.tier]
    level = decision.difficulty
    margin = None
    if level is not None and decision.threshold is not None and Reason.HELD not in decision.reasons:
        margin = _margin(level, judge.thresholds)
    return (
        decision.tier, place, ",".join(decision.reasons), decision.intent, level, margin, None,
    )  # fmt: skip


def _margin(level: float, thresholds: tuple[float, ...]) -> float | None:
    """Log-odds from the nearest line."""
    return min((_odds(level) - _odds(line) for line in thresholds), key=abs, default=None)


def _odds(chance: float) -> float:
    chance = min(max(chance, 1e-6), 1 - 1e-6)
    return math.log(chance / (1 - chance))


def _hash(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")


def lines_of(chunk: Chunk) -> Iterator[bytes]:
    """The lines that begin in a chunk."""
    with chunk.path.open("rb") as file:
        at = chunk.start
        if at:
            file.seek(at - 1)
            at += len(file.readline()) - 1
        while at < chunk.end and (line := file.readline()):
            at += len(line)
            yield line
