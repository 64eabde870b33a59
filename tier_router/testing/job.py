"""One sequence in the engine, and its tokens as they come."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class State(StrEnum):
    """Where a job is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"


@dataclass(slots=True, eq=False)
class Job:
    """One sequence; times are the engine's seconds.

    `on_token` is called after each token and once more when the job is cancelled.  Instead of it,
    `async for number in job` gives the numbers of the tokens, from 0.
    """

    prompt_tokens: int
    output_tokens: int
    priority: int
    submitted_at: float
    on_token: Callable[[Job], None] | None = None
    state: State = State.WAITING
    prefilled: int = 0
    tokens: int = 0
    started_at: float | None = None
    first_at: float | None = None
    last_at: float | None = None
    gaps: list[float] = field(default_factory=list)
    """Seconds between each two tokens."""

    @property
    def over(self) -> bool:
        """True once no further token will come."""
        return self.state is State.DONE or self.state is State.CANCELLED

    @property
    def held(self) -> int:
        """Tokens that the job holds in the KV cache."""
        return self.prefilled + self.tokens

    def __aiter__(self) -> Feed:
        return Feed((self,))


class Feed:
    """The tokens of one or more jobs in the order they come: an async iterator of token numbers.

    With several jobs, `choice` is the place of the job whose token came last.
    """

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = jobs
        self._came: deque[tuple[int, int]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self.choice = 0
        for choice, job in enumerate(jobs):
            self._came.extend((choice, number) for number in range(job.tokens))
            job.on_token = self._listener(choice)

    def _listener(self, choice: int) -> Callable[[Job], None]:
        def came(job: Job) -> None:
            if job.state is not State.CANCELLED:
                self._came.append((choice, job.tokens - 1))
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)

        return came

    def __aiter__(self) -> Feed:
        return self

    async def __anext__(self) -> int:
        while not self._came:
            if all(job.over for job in self._jobs):
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        self.choice, number = self._came.popleft()
        return number
