"""Who may ask, and how much: API keys, with their limits on rate and on requests at once.

The counts are this process's own: with several, each lets a key have its share of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from tier_router.config import ApiKey
from tier_router.errors import RateLimited, Unauthorized
from tier_router_proxy.http.messages import Request


class Holder:
    """What one key has under way."""

    def __init__(self, key: ApiKey) -> None:
        self.key = key
        self.open = 0
        self._ready = 0.0  # when the bucket is full again

    @property
    def name(self) -> str:
        """What metrics and logs call it."""
        return self.key.name or ""

    @property
    def tiers(self) -> frozenset[str] | None:
        """The tiers that it opens; None for all."""
        return frozenset(self.key.tiers) or None

    def enter(self, now: float) -> None:
        """Counts a request that begins; raises RateLimited, and then counts nothing."""
        limit, rate = self.key.concurrency, self.key.rate
        if limit is not None and self.open >= limit:
            raise RateLimited(
                f"the API key `{self.name}` has {limit} requests open, as many as it may"
            )
        if rate is not None:
            # the generic cell rate algorithm (ITU-T I.371): one float is the whole bucket
            ready = max(self._ready, now) + 1 / rate
            over = ready - now - max(1.0, 1 / rate)
            if over > 1e-9:
                raise RateLimited(
                    f"the API key `{self.name}` may send {rate:g} requests a second",
                    retry_after=over,
                )
            self._ready = ready
        self.open += 1

    def leave(self) -> None:
        """Counts a request that has ended."""
        self.open -= 1


class Keys:
    """The keys of a configuration; none is an open door."""

    def __init__(self, keys: Sequence[ApiKey] = ()) -> None:
        self._holders: dict[bytes, Holder] = {}
        self.adopt(keys)

    def __repr__(self) -> str:
        return f"<Keys {', '.join(holder.name for holder in self._holders.values())}>"

    def adopt(self, keys: Sequence[ApiKey]) -> None:
        """Takes over the keys of a new configuration; what those that stay have open is kept."""
        holders: dict[bytes, Holder] = {}
        for key in keys:
            holder = self._holders.get(key.digest) or Holder(key)
            holder.key = key
            holders[key.digest] = holder
        self._holders = holders

    def holder(self, request: Request) -> Holder | None:
        """Whose request it is; None where the door is open.  Raises Unauthorized.

        Keys are compared as digests, so that the time it takes tells nothing about them.
        """
        if not self._holders:
            return None
        given = _given(request)
        if given is None:
            raise Unauthorized("send an API key as `Authorization: Bearer KEY`")
        holder = self._holders.get(hashlib.sha256(given).digest())
        if holder is None:
            raise Unauthorized("wrong API key")
        return holder


def _given(request: Request) -> bytes | None:
    """The key that a request carries: as OpenAI's clients send it, or as Anthropic's do."""
    scheme, _, given = (request.header(b"authorization") or b"").partition(b" ")
    if not given.strip():
        return request.header(b"x-api-key")
    return given.strip() if scheme.lower() == b"bearer" else b""
