"""One connection pool for each replica's URL."""

from __future__ import annotations

from collections.abc import Mapping

from tier_router_proxy.http.timers import Wheel
from tier_router_proxy.http.upstream import Pool


class Pools:
    """The pools of all replicas, by the URL that the configuration gives them.

    That URL and the one that is dialled differ for simulated replicas only.
    """

    def __init__(self, wheel: Wheel) -> None:
        self._wheel = wheel
        self._pools: dict[str, tuple[str, Pool]] = {}

    def __repr__(self) -> str:
        return f"<Pools {', '.join(repr(pool) for _, pool in self._pools.values())}>"

    def adopt(self, dialled: Mapping[str, str], connect_timeout: float) -> list[Pool]:
        """Takes over {URL: URL to dial}; returns the pools that are gone, for closing."""
        old, self._pools = self._pools, {}
        for url, real in dialled.items():
            known = old.get(url)
            if known is not None and known[0] == real:
                self._pools[url] = old.pop(url)
                known[1].connect_timeout = connect_timeout
            else:
                pool = Pool(real, self._wheel, connect_timeout=connect_timeout)
                self._pools[url] = (real, pool)
        return [pool for _, pool in old.values()]

    def of(self, url: str) -> Pool:
        """The pool of the replica at `url`."""
        return self._pools[url][1]

    async def close(self) -> None:
        """Closes every idle connection."""
        for pool in self.adopt({}, 1.0):
            await pool.close()
