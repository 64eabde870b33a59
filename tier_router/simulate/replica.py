"""A vLLM replica with continuous batching, as a SimPy process.

The step is that of `tier_router.testing.engine`: running sequences take their tokens first, then
waiting ones are let in while there is a slot, budget and KV cache, and the step lasts

    (step + per_seq * (sequences - 1) + prompt tokens of the step / prefill) * slowdown

Where nothing but decoding goes on, all steps up to the next change of the batch are one event.
Besides that engine it has the prefix cache, KV memory, and preemption by recomputation: the
sequence that came last goes back to the queue when memory runs out.  A prompt's memory is taken as
a whole when it is let in (vLLM takes it chunk by chunk), and only prompts are found in the cache
while a sequence of their conversation still runs.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Protocol

from tier_router.dispatch import Failure
from tier_router.ledger import Outcome
from tier_router.simulate.library import simpy
from tier_router.simulate.machine import BLOCK, Machine
from tier_router.simulate.prefix import PrefixCache

WATERMARK = 0.01
"""Share of the KV cache that letting in leaves free, so that what was preempted does not come back
at once (vLLM's block manager had the same share)."""

_END = object()


class Listener(Protocol):
    """Who is told how a job fares."""

    def first_token(self, now: float) -> None:
        """The first token came."""

    def finished(self, now: float) -> None:
        """The last token came."""

    def lost(self, now: float) -> None:
        """The replica died under the job."""


@dataclass(slots=True, eq=False)
class Job:
    """One sequence.  `prefix` are the tokens that an earlier turn of the conversation may have left
    in the cache, `cached` those that were found there."""

    prompt: int
    output: int
    listener: Listener
    conversation: int | None = None
    prefix: int = 0
    priority: int = 0
    cached: int = 0
    number: int = -1
    left: int = 0
    """Prompt tokens that are still to be computed."""
    made: int = 0
    """Tokens of the answer, as of the last time that the job joined or left the batch."""
    ends_at: int = 0
    """The step with the last token, while it decodes."""


class Replica:
    """One replica; `submit` gives it work, `fail`, `revive` and `slow` are its accidents."""

    def __init__(self, env: simpy.Environment, name: str, machine: Machine) -> None:
        self._env, self.name, self.machine = env, name, machine
        self.up = True
        self.preempted = 0
        self.largest_batch = 0
        self.most_step_tokens = 0
        self.most_kv = 0
        self._numbers = itertools.count()
        self._slowdown = 1.0
        self._watermark = int(machine.kv_tokens * WATERMARK)
        self._begin()

    def _begin(self) -> None:
        self._queue: list[tuple[int, int, Job]] = []
        self._running: dict[int, Job] = {}
        self._prefilling: list[Job] = []
        self._ends: list[tuple[int, int, Job]] = []
        self._decoding = 0
        self._used = 0
        self._steps = 0
        self._leaping = False
        self._idle: simpy.Event | None = None
        self._cache = PrefixCache()
        self._process = self._env.process(self._live())

    @property
    def waiting(self) -> int:
        """Jobs that have no slot."""
        return len(self._queue)

    @property
    def running(self) -> int:
        """Jobs that have one."""
        return len(self._running)

    def submit(self, job: Job) -> Failure | None:
        """Takes the job, or says why not."""
        speed = self.machine.speed
        if not self.up:
            return Failure(Outcome.FAILED, f"{self.name}: connection refused")
        if speed.queue is not None and self.waiting + self.running >= speed.queue:
            return Failure(Outcome.BUSY, f"{self.name}: queue full")
        job.number = next(self._numbers)
        self._enqueue(job)
        if self._idle is not None:
            self._idle.succeed()
            self._idle = None
        elif self._leaping and self.running < speed.slots and self._fits():
            self._wake()
        return None

    def fail(self) -> None:
        """Dies: every job is lost, and so is the cache."""
        if not self.up:
            return
        self.up = False
        self._process.interrupt(_END)
        jobs = [*self._running.values(), *(job for _, _, job in sorted(self._queue))]
        self._running, self._queue, self._prefilling, self._ends = {}, [], [], []
        self._decoding, self._leaping, self._idle = 0, False, None
        for job in jobs:
            job.listener.lost(self._env.now)

    def revive(self) -> None:
        """Comes back empty."""
        if not self.up:
            self.up = True
            self._begin()

    def slow(self, factor: float) -> None:
        """Every step that begins from now on lasts `factor` times as long."""
        self._slowdown = factor
        if self._leaping:
            self._wake()

    # ---- the process

    def _live(self) -> Generator[simpy.Event, Any, None]:
        try:
            yield from self._serve()
        except simpy.Interrupt:
            return  # it died

    def _serve(self) -> Generator[simpy.Event, Any, None]:
        env = self._env
        while True:
            if not self._running and not self._queue:
                self._idle = env.event()
                yield self._idle
            self._make_room()
            chunks = self._plan()
            size = self._decoding + len(chunks)
            prompt = sum(share for _, share in chunks)
            speed = self.machine.speed
            lasts = speed.step + speed.per_seq * (size - 1) + prompt / speed.prefill
            lasts *= self._slowdown
            self.largest_batch = max(self.largest_batch, size)
            self.most_step_tokens = max(self.most_step_tokens, self._decoding + prompt)
            if chunks:
                yield env.timeout(lasts)
                self._advance(1)
                self._prefilled(chunks)
            else:
                steps = yield from self._leap(lasts)
                self._advance(steps)
            self._finish()

    def _leap(self, lasts: float) -> Generator[simpy.Event, Any, int]:
        """Decodes until the batch changes, or a job comes that may join it: the steps taken."""
        env = self._env
        steps = self._ends[0][0] - self._steps
        room = (self.machine.kv_tokens - self._used) // self._decoding
        steps = max(1, min(steps, room))
        began = env.now
        self._leaping = True
        try:
            yield env.timeout(steps * lasts)
        except simpy.Interrupt as interrupt:
            if interrupt.cause is _END:
                raise
            # the step under way is ended first; one that begins this instant is planned anew
            steps = min(steps, math.ceil((env.now - began) / lasts - 1e-9))
            rest = began + steps * lasts - env.now
            if rest > 0:
                yield env.timeout(rest)
        self._leaping = False
        return steps

    def _wake(self) -> None:
        self._leaping = False
        self._process.interrupt()

    def _enqueue(self, job: Job) -> None:
        rank = job.priority if self.machine.speed.scheduling == "priority" else 0
        heapq.heappush(self._queue, (rank, job.number, job))

    def _make_room(self) -> None:
        """Preempts until each decoding job has room for one more token."""
        while self.running > 1 and self._used + self._decoding > self.machine.kv_tokens:
            job = next(reversed(self._running.values()))
            if job.left:
                self._prefilling.remove(job)
            else:
                self._decoding -= 1
                job.made = job.output - (job.ends_at - self._steps)
                self._ends = [end for end in self._ends if end[2] is not job]
                heapq.heapify(self._ends)
            self._leave(job, 0)
            self._enqueue(job)
            self.preempted += 1

    def _plan(self) -> list[tuple[Job, int]]:
        """The prompt tokens of the next step, by job."""
        speed = self.machine.speed
        budget = speed.batched_tokens - self._decoding
        chunks = []
        for job in self._prefilling:
            share = min(job.left, budget)
            if share:
                chunks.append((job, share))
                budget -= share
        while budget and self._queue and self.running < speed.slots and self._fits():
            job = heapq.heappop(self._queue)[2]
            self._let_in(job)
            share = min(job.left, budget)
            chunks.append((job, share))
            budget -= share
        return chunks

    def _fits(self) -> bool:
        """Whether the KV cache has room for the next job; a job alone is always let in."""
        if not self._running:
            return True
        job = self._queue[0][2]
        needed = self._used + self._decoding + job.prompt + job.made + self._watermark
        return needed <= self.machine.kv_tokens

    def _let_in(self, job: Job) -> None:
        whole = job.prompt + job.made
        found = min(self._cache.match(job.conversation), job.prefix, whole - 1)
        cached = found // BLOCK * BLOCK if self.machine.prefix_cache else 0
        if not job.made:
            job.cached = cached
        job.left = whole - cached
        self._cache.hold(job.conversation)
        self._running[job.number] = job
        self._prefilling.append(job)
        self._used += whole
        self._cache.fit(self.machine.kv_tokens - self._used)

    def _advance(self, steps: int) -> None:
        self._steps += steps
        self._used += steps * self._decoding
        self._cache.fit(self.machine.kv_tokens - self._used)
        self.most_kv = max(self.most_kv, self._used + self._cache.idle)

    def _prefilled(self, chunks: list[tuple[Job, int]]) -> None:
        """Ends a step's prefills: a whole prompt gives the next token of the answer."""
        for job, share in chunks:
            job.left -= share
            if job.left:
                continue
            self._prefilling.remove(job)
            self._cache.computed(job.conversation, job.prompt)
            job.made += 1
            self._used += 1
            self._decoding += 1
            job.ends_at = self._steps + job.output - job.made
            heapq.heappush(self._ends, (job.ends_at, job.number, job))
            if job.made == 1:
                job.listener.first_token(self._env.now)

    def _finish(self) -> None:
        while self._ends and self._ends[0][0] <= self._steps:
            job = heapq.heappop(self._ends)[2]
            self._decoding -= 1
            job.made = job.output
            self._leave(job, job.prompt + job.output)
            job.listener.finished(self._env.now)

    def _leave(self, job: Job, tokens: int) -> None:
        """Gives the job's slot and memory back; `tokens` of it stay in the prefix cache."""
        del self._running[job.number]
        self._used -= job.prompt + job.made
        self._cache.release(job.conversation, tokens)
        self._cache.fit(self.machine.kv_tokens - self._used)

    def __repr__(self) -> str:
        return f"<Replica {self.name}: {self.running} running, {self.waiting} waiting>"
