"""Small requests of the sidecar's own, over the pools that it has for its clients' requests."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from tier_router_proxy.http.framing import FramingError, Walker
from tier_router_proxy.http.messages import Head, Headers
from tier_router_proxy.http.upstream import Pool, Reason, UpstreamFailure
from tier_router_proxy.pools import Pools

LONGEST = 4 * 1024 * 1024
"""Bytes of an answer that are read; vLLM's `/metrics` has 54 kB for each engine."""


async def ask(
    pool: Pool, method: bytes, target: bytes, headers: Headers, body: bytes | None = None
) -> tuple[int, bytes]:
    """Status and content of one answer; raises OSError where no whole one comes."""
    answer = _Answer(asyncio.get_running_loop().create_future())
    try:
        call = pool.send(method, target, headers, body, answer)
    except ValueError as error:
        raise OSError(str(error)) from None
    try:
        return await answer.whole
    finally:
        call.abort()


class PoolFetch:
    """A `Fetch` over the pools of a sidecar, for URLs that begin with what a pool dials."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._bases: dict[str, str] = {}

    def adopt(self, dialled: Mapping[str, str]) -> None:
        """Takes over {URL: URL to dial}, as the pools did."""
        self._bases = {real: url for url, real in dialled.items()}

    async def __call__(
        self, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> tuple[int, bytes]:
        """Status and content; raises OSError where no whole answer comes."""
        pool, target = self._pool_of(url)
        fields: Headers = [(name.encode(), value.encode()) for name, value in headers.items()]
        return await ask(pool, b"GET" if body is None else b"POST", target.encode(), fields, body)

    def _pool_of(self, url: str) -> tuple[Pool, str]:
        """The pool, and what is left of `url` for it to ask for."""
        base = url
        while base:
            known = self._bases.get(base)
            if known is not None:
                return self._pools.of(known), url[len(base) :] or "/"
            base = base.rpartition("/")[0]
        raise OSError(f"nothing is dialled at {url}")


class _Answer:
    """Collects one answer; a `Listener`."""

    def __init__(self, whole: asyncio.Future[tuple[int, bytes]]) -> None:
        self.whole = whole
        self._status = 0
        self._pieces: list[bytes] = []
        self._size = 0

    def on_head(self, head: Head) -> None:
        """The answer begins."""
        self._status = head.status
        self._walker = Walker(head.framing)

    def on_data(self, data: bytes) -> None:
        """More of it."""
        try:
            pieces = self._walker.payload(data)[0]
        except FramingError:
            return  # the pool has seen it too, and fails the call
        self._pieces += pieces
        self._size += sum(map(len, pieces))
        if self._size > LONGEST and not self.whole.done():
            self.whole.set_exception(OSError(f"an answer of more than {LONGEST} bytes"))

    def on_end(self) -> None:
        """It is complete."""
        if not self.whole.done():
            self.whole.set_result((self._status, b"".join(self._pieces)))

    def on_failure(self, failure: UpstreamFailure) -> None:
        """It will not be."""
        if not self.whole.done():
            late = failure.reason in (Reason.TIMEOUT, Reason.CONNECT_TIMEOUT)
            self.whole.set_exception((TimeoutError if late else OSError)(failure.message))
