"""Reads a log through an engine into tables on disk, over which figures are taken as they stream
by."""

from __future__ import annotations

import gzip
import io
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tier_router.config import Config
from tier_router.errors import RequestError
from tier_router.evidence.engines import Engine, run
from tier_router.evidence.formats import Format, sniff
from tier_router.evidence.library import polars as pl
from tier_router.evidence.rows import SHOWN, Chunk, Job

CHUNK = 4 * 1024 * 1024
"""Bytes of a log that one process takes at a time."""

SNIFFED = 200
"""Lines that the format and the length of a line are told from."""


@dataclass(frozen=True, slots=True)
class Source:
    """A log on disk, whose format is known."""

    name: str
    path: Path
    format: Format
    size: int
    line_bytes: float

    def chunks(self) -> list[Chunk]:
        """The pieces that processes take."""
        starts = range(0, self.size, CHUNK)
        return [Chunk(i, self.path, at, min(at + CHUNK, self.size)) for i, at in enumerate(starts)]


@dataclass(frozen=True, slots=True)
class Collected:
    """The requests of a log: `rows` is a table of one row each, to be read lazily.

    `share` is the share of lines that were judged, `problems` the first unreadable ones by line.
    """

    source: Source
    rows: pl.LazyFrame
    lines: int
    judged: int
    failed: int
    others: int
    share: float
    problems: tuple[tuple[int, str], ...]
    pruned: Counter[str]
    """Sums of `tier_router.evidence.pruned`; empty unless asked for."""


@contextmanager
def opened(log: Path, format: Format | None = None) -> Iterator[Source]:
    """The log at `log`; `-` is standard input, `.gz` is unpacked, both to a temporary file.

    Raises RequestError for an empty one, OSError for one that cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="tier-router-") as folder:
        path = log
        if str(log) == "-" or log.suffix == ".gz":
            path = Path(folder, "log")
            with path.open("wb") as out:
                if str(log) == "-":
                    shutil.copyfileobj(sys.stdin.buffer, out)
                else:
                    _unpack(log, out)
        with path.open("rb") as file:
            first = list(islice(file, SNIFFED))
        if not any(line.strip() for line in first):
            raise RequestError(f"{log}: nothing to read in this file")
        length = sum(map(len, first)) / len(first)
        size = path.stat().st_size
        yield Source(str(log), path.resolve(), format or sniff(first), size, length)


def _unpack(log: Path, out: io.BufferedWriter) -> None:
    try:
        with gzip.open(log, "rb") as packed:
            shutil.copyfileobj(packed, out)
    except (EOFError, gzip.BadGzipFile) as error:
        raise RequestError(f"{log}: not a whole gzip file: {error}") from None


@contextmanager
def collected(
    source: Source,
    configs: Sequence[Config],
    *,
    engine: Engine = Engine.POLARS,
    processes: int | None = None,
    judge: int = 0,
    first: int | None = None,
    all_texts: bool = False,
    pruning: bool = False,
) -> Iterator[Collected]:
    """The requests of `source`, decided by each of `configs`.

    Of texts, about `judge` are drawn at random and judged, 0 for all of them; records of decisions
    are all read.  `first` stops after the chunk that brings so many.  Raises RequestError where no
    line could be read.
    """
    share = 1.0
    if judge and source.format is not Format.DECISIONS:
        share = min(1.0, judge / max(source.size / source.line_bytes, 1.0))
    job = Job(source.format, tuple(configs), share, all_texts, pruning)
    chunks = source.chunks()
    if first is not None:
        lines = -(-first * source.line_bytes // CHUNK)
        chunks = chunks[: max(1, int(lines) * 2)]
    lines = judged = failed = others = 0
    problems: list[tuple[int, str]] = []
    pruned: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="tier-router-") as folder:
        tables = []
        for part in run(job, chunks, engine, processes):
            table = Path(folder, f"{part.index:08}.parquet")
            rows = pl.read_ipc(io.BytesIO(part.table))
            rows.with_columns(pl.col("line") + lines).write_parquet(table, compression="lz4")
            tables.append(table)
            problems += [(lines + number, said) for number, said in part.problems]
            lines, judged = lines + part.lines, judged + part.judged
            pruned += part.pruned
            failed, others = failed + part.failed, others + part.others
            if first is not None and judged >= first:
                break
        if not judged:
            told = f": line {problems[0][0]}: {problems[0][1]}" if problems else ""
            raise RequestError(f"{source.name}: no request could be read{told}")
        frame = pl.scan_parquet(tables)
        yield Collected(source, frame, lines, judged, failed, others, share,
                        tuple(problems[:SHOWN]), pruned)  # fmt: skip
