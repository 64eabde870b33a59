"""One replica, watched: asked for its load, its gauges and its models, each at its own pace."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tier_router.ledger import Ledger
from tier_router.pressure import Reading
from tier_router.request import Need
from tier_router.scrape import Fetch
from tier_router.scrape.findings import Found, serves_another
from tier_router.scrape.gauges import gauges_of
from tier_router.scrape.pages import load_of, models_of, version_of
from tier_router.scrape.probes import CHAT, PROBED, answer_of, probe, verdict
from tier_router.scrape.target import Said, Target

log = logging.getLogger("tier_router.scrape")

LOAD_LASTS = 1.0
"""Seconds for which `/load` is believed: four polls, since one may be lost; and who was there a
second ago has, at some 20 ms a token, mostly gone."""

METRICS_LASTS = 20.0
"""Seconds for which `/metrics` and the load header are believed.  vLLM's gauges may themselves be
18 s old (measured on GPUs), so a reading of that age says no less than a new one may."""

LOAD_SECONDS, PAGE_SECONDS, PROBE_SECONDS = 1.0, 5.0, 30.0
"""How long an answer may take.  A load that comes later is not believed anyway; a page takes vLLM
46 ms under load; a probe queues with the requests, and the first of a kind may compile for 10 s."""

LONGEST_PAUSE = 5.0
"""Seconds between two questions to a replica that does not answer: doubled up to here, so that
one which comes back is seen within that time."""

CONTRADICTIONS = 8
"""Times in a row that `/load` says 0 while requests of ours are open there, after which it is taken
not to count: two seconds, more than a request needs to arrive."""

GONE = 2
"""Failures in a row, of any page, after which a replica counts as gone: one may be chance."""


@dataclass(frozen=True, slots=True)
class Office:
    """Who asks, and who is told."""

    fetch: Fetch
    ledger: Ledger
    found: Callable[[str, Found], None]
    clock: Callable[[], float]
    gate: asyncio.Semaphore
    """Bounds the questions that are open at once."""


class Watch:
    """Asks one replica; nothing that it answers, or fails to, raises."""

    def __init__(self, target: Target, office: Office) -> None:
        self.target, self._office = target, office
        self.said = Said()
        self._headers = {"accept": "*/*"}
        if target.api_key is not None:
            self._headers["authorization"] = f"Bearer {target.api_key}"
        self._tracks: bool | None = None  # whether `/load` counts; None: not known
        self._contradictions = 0
        self._failures = 0
        self._born: float | None = None
        self._version: str | None = None
        self._can: dict[Need, bool] = {}
        self._problem: str | None = None
        self._again = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Watch {self.target.name}: {'gone' if self.gone else 'answers'}>"

    @property
    def gone(self) -> bool:
        """Whether the replica has stopped answering."""
        return self._failures >= GONE

    async def run(self) -> None:
        """Asks until cancelled."""
        poll = self.target.poll
        async with asyncio.TaskGroup() as group:
            if poll.models:
                group.create_task(self._beat(poll.models, self.look_at_models, self._again))
            if poll.load:
                group.create_task(self._beat(poll.load, self.look_at_load))
            if poll.metrics:
                group.create_task(self._beat(poll.metrics, self.look_at_metrics))

    async def tried(self, look: Callable[[], Awaitable[bool]]) -> bool:
        """Whether a look had an answer; notes who goes and who comes back."""
        try:
            told = await look()
        except OSError as error:
            self._failures += 1
            if self._failures == GONE:
                log.warning("%s does not answer: %s", self.target.name, _short(error))
            return False
        if self.gone:
            log.info("%s answers again", self.target.name)
            self._restarted(known=False)
        self._failures = 0
        return told

    async def look_at_load(self) -> bool:
        """Tells the ledger how many requests are open; False where the page is not there."""
        name, ledger = self.target.name, self._office.ledger
        before = ledger.in_flight(name)
        status, content = await self._get("/load", LOAD_SECONDS)
        requests = load_of(content) if status == 200 else None
        if requests is None:
            return False
        self._weigh(requests, min(before, ledger.in_flight(name)))
        if self._tracks:
            now = self._office.clock()
            lasts = max(LOAD_LASTS, 3 * self.target.poll.load)
            ledger.read(name, Reading(requests=requests), now, lasts)
            self.said.requests, self.said.load_at = requests, now
        else:
            self.said.requests = None
        return True

    async def look_at_metrics(self) -> bool:
        """Tells the ledger queue and KV use; False where the page does not have them."""
        status, content = await self._get("/metrics", PAGE_SECONDS)
        gauges = gauges_of(content if status == 200 else b"")
        if gauges.born is not None and gauges.born != self._born:
            if self._born is not None:
                self._restarted(known=True)
            self._born = gauges.born
        reading = gauges.reading
        if reading.waiting is None and reading.kv is None:
            return False
        now = self._office.clock()
        lasts = max(METRICS_LASTS, 3 * self.target.poll.metrics)
        self._office.ledger.read(self.target.name, reading, now, lasts)
        self.said.waiting, self.said.kv, self.said.metrics_at = reading.waiting, reading.kv, now
        return True

    async def look_at_models(self) -> bool:
        """Tells the router what the replica is; False where it does not say what it serves."""
        status, content = await self._get("/v1/models", PAGE_SECONDS)
        models = models_of(content) if status == 200 else None
        version = await self._version_now() if self.target.vllm else None
        found = Found(models, version)
        if status in (401, 403):
            self._complain(f"refuses the tier's API key ({status} on /v1/models)")
            return False
        problem = serves_another(found, self.target.model)
        self._complain(problem)
        if self.target.asks and problem is None:
            can = await self._abilities(version) if self.target.vllm else _told(found, self.target)
            found = Found(models, version, can)
        self._office.found(self.target.name, found)
        return models is not None

    # ---- what the looks share

    async def _version_now(self) -> str | None:
        code, page = await self._get("/version", PAGE_SECONDS)
        return version_of(page) if code == 200 else None

    def _weigh(self, requests: float, own: int) -> None:
        """Judges whether `/load` counts.

        It is 0 for ever without the flag, and also when nobody is there.  More than 0 proves that
        it counts, whoever is there; 0 while `own` requests were open there all the while speaks
        against it, and is believed when it comes often.
        """
        if requests:
            self._tracks, self._contradictions = True, 0
        elif not own:
            self._contradictions = 0
        else:
            self._contradictions += 1
            if self._contradictions == CONTRADICTIONS:
                self._tracks = False
                log.info(
                    "%s does not count its requests: vLLM does with --enable-server-load-tracking",
                    self.target.name,
                )

    async def _abilities(self, version: str | None) -> dict[Need, bool]:
        """What the probes say, asked once as long as it is the same server."""
        if version != self._version:
            self._version, self._can = version, {}
        for need in sorted(PROBED - self._can.keys()):
            body = probe(need, self.target.model)
            try:
                status, content = await self._get(CHAT, PROBE_SECONDS, body)
            except OSError as error:  # asked again with the next look at the models
                log.info(
                    "%s: whether it can do %s stays open: %s",
                    self.target.name,
                    need,
                    _short(error),
                )
                break
            told = verdict(need, answer_of(status, content))
            if told is not None:
                self._can[need] = told
        return dict(self._can)

    def _restarted(self, *, known: bool) -> None:
        """It is another server now, or may be: nothing of what it could do is believed."""
        self._tracks, self._contradictions = None, 0
        if known or self._born is None:
            self._can = {}
        self._again.set()

    def _complain(self, problem: str | None) -> None:
        """Says once, and loudly, what is wrong with the configuration or the replica."""
        if problem == self._problem:
            return
        self._problem = problem
        if problem is None:
            log.info("%s is right again", self.target.name)
        else:
            log.error("%s (%s) %s", self.target.name, self.target.url, problem)

    async def _get(self, path: str, seconds: float, body: bytes | None = None) -> tuple[int, bytes]:
        """Status and content; raises OSError where none came in time, and for a server's failure
        on a page."""
        headers = self._headers
        if body is not None:
            headers = {**headers, "content-type": "application/json"}
        async with self._office.gate, asyncio.timeout(seconds):
            status, content = await self._office.fetch(self.target.page(path), headers, body)
        if status >= 500 and body is None:
            raise ConnectionError(f"status {status} on {path}")
        return status, content

    async def _beat(
        self,
        period: float,
        look: Callable[[], Awaitable[bool]],
        again: asyncio.Event | None = None,
    ) -> None:
        """Looks every `period` seconds, give or take a tenth; less often while that is in vain."""
        if again is None:
            await asyncio.sleep(random.uniform(0, period))
        vain = 0
        while True:
            vain = 0 if await self.tried(look) else min(vain + 1, 10)
            pause = min(period * 2**vain, max(period, LONGEST_PAUSE)) * random.uniform(0.9, 1.1)
            if again is None:
                await asyncio.sleep(pause)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await again.wait()
            again.clear()


def _told(found: Found, target: Target) -> dict[Need, bool]:
    """The abilities that a host's list of models tells of the target's."""
    card = (found.models or {}).get(target.model)
    return {} if card is None else dict(card.can)


def _short(error: OSError) -> str:
    return str(error) or ("no answer in time" if isinstance(error, TimeoutError) else "no answer")
