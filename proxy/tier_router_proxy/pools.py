"""One connection pool for each replica's URL."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from types import MappingProxyType

from tier_router_proxy.http.timers import Wheel
from tier_router_proxy.http.upstream import Pool

_NO_TLS: Mapping[str, ssl.SSLContext] = MappingProxyType({})


class Pools:
    """The pools of all replicas, by the URL that the configuration gives them.

    That URL and the one that is dialled differ for simulated replicas only.
    """

    def __init__(self, wheel: Wheel) -> None:
        self._wheel = wheel
        self._pools: dict[str, tuple[str, Pool]] = {}

    def __repr__(self) -> str:
        return f"<Pools {', '.join(repr(pool) for _, pool in self._pools.values())}>"

    def adopt(
        self,
        dialled: Mapping[str, str],
        connect_timeout: float,
        tls: Mapping[str, ssl.SSLContext] = _NO_TLS,
    ) -> list[Pool]:
        """Takes over {URL: URL to dial} and {URL: TLS of one's own}; returns the pools that are
        gone, for closing."""
        old, self._pools = self._pools, {}
        for url, real in dialled.items():
            known = old.get(url)
            if known is not None and known[0] == real and url not in tls and not known[1].own_tls:
                self._pools[url] = old.pop(url)
                known[1].connect_timeout = connect_timeout
            else:
                pool = Pool(real, self._wheel, connect_timeout=connect_timeout, tls=tls.get(url))
                self._pools[url] = (real, pool)
        return [pool for _, pool in old.values()]

    def of(self, url: str) -> Pool:
        """The pool of the replica at `url`."""
        return self._pools[url][1]

    async def close(self) -> None:
        """Closes every idle connection."""
        for pool in self.adopt({}, 1.0):
            await pool.close()
