"""Continuous batching as vLLM does it, as a discrete-event model without any I/O.

Time passes in steps.  A step has a budget of tokens: sequences that run take theirs first (one
token where they decode, a chunk of the prompt where they prefill), then waiting ones are let in
while there is a slot and budget left.  The step lasts

    step + per_seq * (sequences - 1) + prompt tokens of the step / prefill

and every sequence in it that has its whole prompt then has one more token.  So a long prompt
makes every step long for everybody, and keeps those behind it out: head-of-line blocking.
Not modelled: prefix caching, preemption, a KV cache that is too small.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, fields

from tier_router.testing.job import Job, State

KV_TOKENS = 131_072
"""Tokens that the KV cache holds: 16 GiB at 128 KiB a token (Llama 3 8B, 16 bit)."""

SCHEDULING = ("fcfs", "priority")
"""vLLM's `--scheduling-policy`."""


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a replica is, and how much it takes on."""

    slots: int = 64
    """Sequences that run at once (`--max-num-seqs`); others wait."""
    prefill: float = 8000.0
    """Prompt tokens per second."""
    step: float = 0.02
    """Seconds of one decode step at batch 1."""
    per_seq: float = 0.0
    """Seconds that each further running sequence adds to a step."""
    batched_tokens: int = 2048
    """Tokens of one step (`--max-num-batched-tokens`; 2048 is vLLM's default for a server)."""
    queue: int | None = None
    """Sequences, waiting and running, over which new ones are refused
    (`--max-num-queued-reqs`)."""
    scheduling: str = "fcfs"
    """`fcfs`, or `priority`: the lowest number first."""

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            if entry.name in ("slots", "prefill", "batched_tokens", "queue"):
                if value is not None and not value > 0:
                    raise ValueError(f"{entry.name} must be above 0, not {value}")
            elif entry.name in ("step", "per_seq") and not value >= 0:
                raise ValueError(f"{entry.name} must not be below 0: {value}")
        if self.scheduling not in SCHEDULING:
            raise ValueError(f"scheduling is one of {', '.join(SCHEDULING)}, not {self.scheduling}")
        if self.batched_tokens < self.slots:  # vLLM refuses to start with that
            raise ValueError(
                f"batched_tokens ({self.batched_tokens}) must not be below slots ({self.slots})"
            )


FAST = Speed(prefill=1_000_000.0, step=0.0005)
"""For tests: a short answer takes a few milliseconds, and still comes token by token."""


class QueueFull(Exception):
    """The engine takes nothing new: `Speed.queue` is reached."""


@dataclass(frozen=True, slots=True)
class Gauges:
    """What the engine said of itself when its last step ended.

    That is what vLLM's `/metrics` shows: stale by up to a step."""

    running: int = 0
    waiting: int = 0
    kv_usage: float = 0.0


class Engine:
    """The sequences of one replica.  Knows no clock: `advance` moves its time.

    `woken` is called before a job is taken or dropped; whoever drives the engine in real time
    brings `now` up to date there.
    """

    def __init__(self, speed: Speed = FAST, *, kv_tokens: int = KV_TOKENS) -> None:
        self.speed = speed
        self.kv_tokens = kv_tokens
        self.now = 0.0
        self.woken: Callable[[], None] | None = None
        self.gauges = Gauges()
        self.steps = 0
        self.prompt_tokens_total = 0
        self.generated_total = 0
        self.rejected_total = 0
        self._numbers = itertools.count()
        self._queue: list[tuple[int, int, Job]] = []
        self._waiting = 0
        self._running: list[Job] = []
        self._batch: list[tuple[Job, int]] = []
        self._step_ends: float | None = None
        self._advancing = False

    @property
    def running(self) -> int:
        """Sequences that hold a slot."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Sequences that wait for a slot."""
        return self._waiting

    @property
    def kv_used(self) -> int:
        """Tokens in the KV cache."""
        return sum(job.held for job in self._running)

    @property
    def kv_usage(self) -> float:
        """Share of the KV cache in use, 0..1."""
        return min(1.0, self.kv_used / self.kv_tokens)

    @property
    def stepping(self) -> bool:
        """True while a step is under way."""
        return self._step_ends is not None

    @property
    def next_at(self) -> float | None:
        """When something happens next without further submissions; None while idle."""
        if self._step_ends is not None:
            return self._step_ends
        return self.now if self._waiting or self._running else None

    def admits(self, sequences: int = 1) -> bool:
        """True while that many more would be taken."""
        limit = self.speed.queue
        return limit is None or self._waiting + self.running + sequences <= limit

    def submit(
        self,
        prompt_tokens: int,
        output_tokens: int,
        priority: int = 0,
        *,
        on_token: Callable[[Job], None] | None = None,
    ) -> Job:
        """A job that waits for its turn; `QueueFull` over `Speed.queue`."""
        self._wake()
        if not self.admits():
            self.rejected_total += 1
            raise QueueFull(f"{self._waiting + self.running} of {self.speed.queue} taken")
        job = Job(max(1, prompt_tokens), max(1, output_tokens), priority, self.now, on_token)
        rank = priority if self.speed.scheduling == "priority" else 0
        heapq.heappush(self._queue, (rank, next(self._numbers), job))
        self._waiting += 1
        return job

    def cancel(self, job: Job) -> None:
        """Drop `job`: its slot is free at the next step.  Nothing where it is over already."""
        if job.over:
            return
        self._wake()
        if job.over:  # waking caught up with the clock, and that was the job's last token
            return
        self._waiting -= job.state is State.WAITING
        job.state = State.CANCELLED
        if job.on_token is not None:
            job.on_token(job)

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass."""
        self.advance_to(self.now + seconds)

    def advance_to(self, then: float) -> None:
        """Let time pass until `then`.  A call from inside a token's callback changes nothing."""
        if self._advancing:
            return
        self._advancing = True
        try:
            while self._step_ends is not None or self._begin():
                assert self._step_ends is not None
                if self._step_ends > then:
                    break
                self.now = self._step_ends
                self._end()
            self.now = max(self.now, then)
        finally:
            self._advancing = False

    def _wake(self) -> None:
        if self.woken is not None:
            self.woken()

    def _begin(self) -> bool:
        """True if a step began: there was something to compute."""
        self._drop_over()
        budget = self.speed.batched_tokens
        prompt = 0
        batch: list[tuple[Job, int]] = []
        while budget:
            job = self._running[len(batch)] if len(batch) < self.running else self._admit()
            if job is None:
                break
            left = job.prompt_tokens - job.prefilled
            share = min(left, budget) if left else 1
            prompt += share if left else 0
            budget -= share
            batch.append((job, share))
        if not batch:
            return False
        speed = self.speed
        lasts = speed.step + speed.per_seq * (len(batch) - 1) + prompt / speed.prefill
        self._batch, self._step_ends = batch, self.now + lasts
        return True

    def _admit(self) -> Job | None:
        """The next waiting job, now running; None if there is none or no slot for it."""
        if self.running >= self.speed.slots:
            return None
        while self._queue:
            job = heapq.heappop(self._queue)[2]
            if job.state is State.WAITING:
                job.state, job.started_at = State.RUNNING, self.now
                self._waiting -= 1
                self._running.append(job)
                return job
        return None

    def _end(self) -> None:
        """Ends the step: its tokens come out, finished and cancelled jobs leave."""
        batch, self._batch, self._step_ends = self._batch, [], None
        self.steps += 1
        grown = [job for job, share in batch if not job.over and self._grow(job, share)]
        self._drop_over()
        self.gauges = Gauges(self.running, self.waiting, self.kv_usage)
        for job in grown:
            if job.on_token is not None and job.state is not State.CANCELLED:
                job.on_token(job)

    def _grow(self, job: Job, share: int) -> bool:
        """True if the job has one more token."""
        left = job.prompt_tokens - job.prefilled
        if left:
            job.prefilled += share
            self.prompt_tokens_total += share
            if share < left:
                return False
        job.tokens += 1
        self.generated_total += 1
        if job.last_at is None:
            job.first_at = self.now
        else:
            job.gaps.append(self.now - job.last_at)
        job.last_at = self.now
        if job.tokens == job.output_tokens:
            job.state = State.DONE
        return True

    def _drop_over(self) -> None:
        if any(job.over for job in self._running):
            self._running = [job for job in self._running if not job.over]

    def __repr__(self) -> str:
        return f"<Engine {self.running} running, {self.waiting} waiting, {self.now:.3f}s>"
