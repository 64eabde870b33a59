"""The poller: a watch for each replica of a configuration, replaced as that changes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping

from tier_router.config import Config
from tier_router.config.model import Poll
from tier_router.ledger import Ledger
from tier_router.scrape import Fetch
from tier_router.scrape.findings import Found
from tier_router.scrape.target import Said, Target
from tier_router.scrape.watch import Office, Watch

log = logging.getLogger("tier_router.scrape")

LOADS_A_SECOND = 100
"""How often a fleet is asked for its load by default: a question costs 0.4 ms of CPU, half of it
the kernel's, so this is 4 % of a core; more than 25 replicas are asked less than every 0.25 s."""

AT_ONCE = 32
"""Questions that are open at once: a fleet of hundreds is asked in turn, not in a burst."""


class Poller:
    """Keeps a ledger and a router informed of what replicas say; runs from `adopt` to `stop`.

    `found` is told what a replica is, by name, each time that it was looked at.
    """

    def __init__(
        self,
        fetch: Fetch,
        ledger: Ledger,
        found: Callable[[str, Found], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._office = Office(fetch, ledger, found, clock, asyncio.Semaphore(AT_ONCE))
        self._watches: dict[str, tuple[Watch, asyncio.Task[None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<Poller {', '.join(repr(watch) for watch, _ in self._watches.values())}>"

    def adopt(self, config: Config, dialled: Mapping[str, str]) -> None:
        """Watches the replicas of `config` from now on, those that stay the same without a break.

        `dialled` is {URL: URL to dial}; a simulated replica that is not in it is not watched.
        """
        wanted = {target.name: target for target in targets_of(config, dialled)}
        for name, (watch, task) in list(self._watches.items()):
            if wanted.get(name) != watch.target:
                task.cancel()
                del self._watches[name]
        for name, target in wanted.items():
            if name not in self._watches:
                self._watches[name] = self._start(target)

    async def stop(self) -> None:
        """Asks nobody any more."""
        self._watches.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def said(self) -> Mapping[str, Said]:
        """What each replica said last, by name."""
        return {name: watch.said for name, (watch, _) in self._watches.items()}

    def _start(self, target: Target) -> tuple[Watch, asyncio.Task[None]]:
        watch = Watch(target, self._office)
        task = asyncio.get_running_loop().create_task(watch.run(), name=f"watch {target.name}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return watch, task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s broke off", task.get_name(), exc_info=error)


def _paced(config: Config) -> Poll:
    """The periods; the one of `/load`, where it was not written, is stretched for large fleets."""
    poll = config.load.poll
    if not poll.load or "load" in poll.model_fields_set:
        return poll
    least = sum(len(tier.replicas) for tier in config.tiers) / LOADS_A_SECOND
    return poll.model_copy(update={"load": max(poll.load, least)})


def targets_of(config: Config, dialled: Mapping[str, str]) -> Iterator[Target]:
    """What there is to watch of a configuration."""
    poll = _paced(config)
    models = poll.model_copy(update={"load": 0.0, "metrics": 0.0})
    for tier in config.tiers:
        key = None if tier.api_key is None else tier.api_key.get_secret_value()
        for replica in tier.replicas:
            url = dialled.get(replica.url, replica.url)
            if not url.startswith("sim://"):
                name = replica.name or replica.url
                vllm = tier.kind == "vllm"
                asked, chats = poll if vllm else models, not tier.pools
                yield Target(name, tier.model, url, asked, key, tier.asks, vllm, chats)
