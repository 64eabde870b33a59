"""Where a job runs: in this process, in several on this machine, or on a Ray cluster."""

from __future__ import annotations

import importlib
import logging
import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from enum import StrEnum
from typing import Any

from tier_router.evidence.rows import Chunk, Job, Part, Worker

AHEAD = 2
"""Chunks for each process that may be under way or wait to be read: they bound the memory."""


class Engine(StrEnum):
    """What runs a job."""

    POLARS = "polars"
    """This machine."""
    RAY = "ray"
    """A Ray cluster (the one `RAY_ADDRESS` names, else one on this machine), whose nodes all see
    the log under the same path."""


def run(
    job: Job, chunks: Sequence[Chunk], engine: Engine = Engine.POLARS, processes: int | None = None
) -> Iterator[Part]:
    """The part of each chunk, in order."""
    if engine is Engine.RAY:
        return _on_ray(job, chunks)
    count = min(processes or os.cpu_count() or 1, len(chunks))
    if count < 2:
        return map(Worker(job).part, chunks)
    return _in_processes(job, chunks, count)


_worker: Worker | None = None


def _begin(job: Job) -> None:
    global _worker
    _worker = Worker(job)


def _work(chunk: Chunk) -> Part:
    assert _worker is not None
    return _worker.part(chunk)


def _in_processes(job: Job, chunks: Sequence[Chunk], count: int) -> Iterator[Part]:
    spawn = multiprocessing.get_context("spawn")  # Polars has threads, which a fork would not
    with ProcessPoolExecutor(count, spawn, _begin, (job,)) as pool:

        def begun(chunk: Chunk) -> Callable[[], Part]:
            future: Future[Part] = pool.submit(_work, chunk)
            return future.result

        yield from _ordered(chunks, begun, count * AHEAD)


def _on_ray(job: Job, chunks: Sequence[Chunk]) -> Iterator[Part]:
    ray = _ray()
    if not ray.is_initialized():
        ray.init(log_to_driver=False, logging_level=logging.WARNING, include_dashboard=False)
    count = max(1, min(int(ray.cluster_resources().get("CPU", 1)), len(chunks)))
    actor = ray.remote(num_cpus=1)(Worker)
    workers = [actor.remote(job) for _ in range(count)]

    def begun(chunk: Chunk) -> Callable[[], Part]:
        reference = workers[chunk.index % count].part.remote(chunk)
        return lambda: ray.get(reference)

    try:
        yield from _ordered(chunks, begun, count * AHEAD)
    finally:
        for worker in workers:
            ray.kill(worker)


def _ray() -> Any:
    """The library; it may be missing, and takes seconds to import."""
    try:
        return importlib.import_module("ray")
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        message = "Ray is not installed: pip install 'tier-router[ray]'"
        raise ImportError(message, name="ray") from None


def _ordered(
    chunks: Sequence[Chunk], begin: Callable[[Chunk], Callable[[], Part]], most: int
) -> Iterator[Part]:
    """The parts in order, with at most `most` chunks under way."""
    waiting: deque[Callable[[], Part]] = deque()
    for chunk in chunks:
        if len(waiting) >= most:
            yield waiting.popleft()()
        waiting.append(begin(chunk))
    while waiting:
        yield waiting.popleft()()
