"""What goes wrong on demand.

`fake.faults.add(Reset(after_chunks=2))` lets the next answer end so.  A fault answers in the
server's place, or acts on the answer under way; `Fault` names the three places.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from tier_router.testing import problems
from tier_router.testing.bodies import DONE, encode
from tier_router.testing.exchange import JSON, Exchange, Headers
from tier_router.testing.plan import Fault
from tier_router.testing.plan import Faults as Faults

ERROR_EVENT = b"data: " + json.dumps(problems.DEAD).encode() + b"\n\n"
"""What a stream says when the engine died; with blanks, unlike vLLM's other JSON."""


@dataclass(frozen=True, slots=True)
class Status(Fault):
    """An answer with this status; `body` is JSON, text or bytes, else an error of that code."""

    code: int
    body: Any = None
    headers: Headers = ()

    async def answer(self, exchange: Exchange, stream: bool) -> bool:
        body = self.body
        if body is None:
            body = problems.problem(self.code, "InternalServerError", f"status {self.code}")
        if isinstance(body, str | bytes):
            data = body.encode() if isinstance(body, str) else body
            kind = "text/html" if data.lstrip().startswith(b"<") else "text/plain"
            await exchange.respond(self.code, data, (("content-type", kind), *self.headers))
        else:
            await exchange.respond(self.code, encode(body), (*JSON, *self.headers))
        return True


BUSY = Status(503, problems.BUSY)
"""vLLM with `--max-num-queued-reqs` reached; it gives no Retry-After."""
TOO_MANY = Status(
    429,
    problems.problem(429, "rate_limit_error", "Rate limit reached. Please try again later."),
    (("retry-after", "1"),),
)
"""A gateway in front of vLLM; vLLM itself never says 429."""
DRAINING = Status(500, problems.DRAINING)
"""vLLM after SIGTERM with `--shutdown-timeout`; `/health` says 200 all the while."""
DEAD = Status(500, problems.DEAD)
"""vLLM whose engine process is gone."""
BAD_GATEWAY = Status(
    502,
    "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n"
    "<center><h1>502 Bad Gateway</h1></center>\r\n<hr><center>nginx</center>\r\n"
    "</body>\r\n</html>\r\n",
)
"""An ingress whose server is not there."""


@dataclass(frozen=True, slots=True)
class ErrorInStream(Fault):
    """A stream of status 200 whose first event is an error; 500 where nothing is streamed."""

    async def answer(self, exchange: Exchange, stream: bool) -> bool:
        if not stream:
            return await DEAD.answer(exchange, stream)
        await exchange.open(200)
        return await _error_and_done(exchange)


@dataclass(frozen=True, slots=True)
class ErrorMidStream(Fault):
    """An error after so many events; 500 where nothing is streamed."""

    after: int = 3

    async def before(self, exchange: Exchange, number: int) -> bool:
        return number >= self.after and await _error_and_done(exchange)

    async def whole(self, exchange: Exchange, content: bytes) -> bool:
        return await DEAD.answer(exchange, False)


async def _error_and_done(exchange: Exchange) -> bool:
    await exchange.send(ERROR_EVENT)
    await exchange.send(DONE)
    await exchange.end()
    return True


@dataclass(frozen=True, slots=True)
class Hang(Fault):
    """No answer ever: nothing at all, or the head of a stream and nothing after it."""

    head: bool = False

    async def answer(self, exchange: Exchange, stream: bool) -> bool:
        if self.head:
            await exchange.open(200)
        await asyncio.get_running_loop().create_future()
        return True


@dataclass(frozen=True, slots=True)
class Reset(Fault):
    """RST: after so many bytes (head included), or events, of the answer; else at once.

    An answer that is not streamed counts as one event: with `after_chunks` above 0 the reset comes
    in the middle of its body."""

    after_bytes: int | None = None
    after_chunks: int | None = None

    async def answer(self, exchange: Exchange, stream: bool) -> bool:
        if self.after_bytes:
            exchange.limit(self.after_bytes)
        elif self.after_chunks is None:
            exchange.reset()
        return False

    async def before(self, exchange: Exchange, number: int) -> bool:
        if self.after_chunks is not None and number >= self.after_chunks:
            exchange.reset()
        return False

    async def whole(self, exchange: Exchange, content: bytes) -> bool:
        if self.after_chunks is None:
            return False
        await exchange.open(200, (("content-length", str(len(content))), *JSON))
        if self.after_chunks:
            await exchange.send(content[: len(content) // 2])
        return exchange.reset()


@dataclass(frozen=True, slots=True)
class CloseBeforeAnswer(Fault):
    """The connection is closed where the answer should begin."""

    async def answer(self, exchange: Exchange, stream: bool) -> bool:
        exchange.hang_up()


@dataclass(frozen=True, slots=True)
class SlowFirstToken(Fault):
    """The answer's first token comes so much later; a stream's head comes at once."""

    seconds: float

    async def before(self, exchange: Exchange, number: int) -> bool:
        await asyncio.sleep(self.seconds if number == 0 else 0)
        return False

    async def whole(self, exchange: Exchange, content: bytes) -> bool:
        await asyncio.sleep(self.seconds)
        return False


@dataclass(frozen=True, slots=True)
class SlowChunks(Fault):
    """So much time between each two events, or quarters of an answer that is not streamed."""

    seconds: float

    async def before(self, exchange: Exchange, number: int) -> bool:
        await asyncio.sleep(self.seconds if number else 0)
        return False

    async def whole(self, exchange: Exchange, content: bytes) -> bool:
        await exchange.open(200, (("content-length", str(len(content))), *JSON))
        quarter = -(-len(content) // 4)
        for number in range(4):
            await asyncio.sleep(self.seconds if number else 0)
            await exchange.send(content[number * quarter : (number + 1) * quarter])
        await exchange.end()
        return True


@dataclass(frozen=True, slots=True)
class Garbage(Fault):
    """Something that is not HTTP, and the end of the connection."""

    data: bytes = b"\x15\x03\x03\x00\x02\x02\x28 this is not HTTP\r\n\r\n"

    async def answer(self, exchange: Exchange, stream: bool) -> bool:
        exchange.raw(self.data)
        exchange.hang_up()


@dataclass(frozen=True, slots=True)
class CloseIdle(Fault):
    """A good answer, and `after` seconds later the end of the connection if it is idle."""

    after: float = 0.0
    rst: bool = False

    async def answer(self, exchange: Exchange, stream: bool) -> bool:
        exchange.close_when_idle(self.after, self.rst)
        return False


@dataclass(frozen=True, slots=True)
class BadChunks(Fault):
    """After so many events a chunk whose size is no number, and the end of the connection."""

    after: int = 1

    async def before(self, exchange: Exchange, number: int) -> bool:
        if number >= self.after:
            _bad_chunk(exchange)
        return False

    async def whole(self, exchange: Exchange, content: bytes) -> bool:
        await exchange.open(200, JSON)
        _bad_chunk(exchange)
        return True


def _bad_chunk(exchange: Exchange) -> None:
    exchange.raw(b"zz\r\nno chunk\r\n")
    exchange.hang_up()


@dataclass(frozen=True, slots=True)
class TruncatedBody(Fault):
    """A body that is `missing` bytes shorter than its content-length says; of a stream, the end
    of the connection after so many events, without the last chunk."""

    missing: int = 100
    after: int = 2

    async def before(self, exchange: Exchange, number: int) -> bool:
        if number >= self.after:
            exchange.hang_up()
        return False

    async def whole(self, exchange: Exchange, content: bytes) -> bool:
        size = len(content) + self.missing
        await exchange.open(200, (("content-length", str(size)), *JSON))
        await exchange.send(content)
        exchange.hang_up()
