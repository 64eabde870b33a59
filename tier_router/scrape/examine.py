"""Everything that can be learned of one replica from outside, asked for once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tier_router.request import Need
from tier_router.scrape import Fetch
from tier_router.scrape.gauges import Gauges, gauges_of
from tier_router.scrape.pages import Card, load_of, models_of, version_of
from tier_router.scrape.probes import CHAT, PROBED, Answer, answer_of, chat, probe, verdict
from tier_router.scrape.target import Target

ROUNDS = 3
"""Round trips that are timed; the shortest counts, since the first one connects."""

LONG = 256
"""Tokens of the chat that runs while `/load` is looked at; it is cut off when that is known."""

ZEROS, ZERO_GAP = 6, 0.005
"""Times that `/load` must say 0 under an open request, and seconds between: 30 ms together, and
vLLM was seen to count a request within 10."""

FOLLOW = 2.0
"""Seconds that `/metrics` has to show a request which has ended."""

SENTENCE = "Name the days of the week, the months of the year and the seasons, and then stop. " * 4
"""Longer than a block of the prefix cache (16 tokens), so that a second time may be a hit."""


@dataclass(slots=True)
class Examination:
    """What was found of one replica; None where it could not be told."""

    replica: str
    url: str
    problem: str | None = None
    """Why nothing else could be asked."""
    round_trip: float | None = None
    """Seconds."""
    version: str | None = None
    models: Mapping[str, Card] | None = None
    models_status: int = 0
    gauges: Gauges | None = None
    follows: float | None = None
    """Seconds until `/metrics` showed a request that had ended; infinity for never."""
    skew: float | None = None
    """Seconds that its clock is ahead of ours, as far as whole seconds tell."""
    uptime: float | None = None
    can: dict[Need, bool] = field(default_factory=dict)
    tracks: bool | None = None
    """Whether `/load` counts."""
    prompt_details: bool | None = None
    """Whether `usage` says what came from the prefix cache."""
    thinks_aloud: bool = False
    """Whether thoughts are a part of the answer's text."""
    chat_problem: str | None = None
    """What a plain chat of one token was answered, where that is no answer."""


async def examine(fetch: Fetch, target: Target, seconds: float) -> Examination:
    """The examination of one replica; each answer may take so many `seconds`.  Never raises
    for what the replica does."""
    return await _Examiner(fetch, target, seconds).run()


class _Examiner:
    def __init__(self, fetch: Fetch, target: Target, seconds: float) -> None:
        self._fetch, self._target, self._seconds = fetch, target, seconds
        self._found = Examination(target.name, target.url)
        key = target.api_key
        self._headers = {} if key is None else {"authorization": f"Bearer {key}"}
        # what other hosts answer costs money, and says nothing that a flag would change
        self._chattable = target.vllm and target.chats

    async def run(self) -> Examination:
        found = self._found
        try:
            await self._pages()
            served = found.models is None or self._target.model in found.models
            if found.models_status not in (401, 403) and served and self._chattable:
                await self._chats()
        except OSError as error:
            told = str(error) or f"no answer within {self._seconds:g} s"
            if found.round_trip is None:
                found.problem = told
            else:
                found.chat_problem = told
        return found

    async def _pages(self) -> None:
        found = self._found
        trips = []
        for _ in range(ROUNDS):
            begun = time.monotonic()
            status, content = await self._get("/version" if self._target.vllm else "/v1/models")
            trips.append(time.monotonic() - begun)
        found.round_trip = min(trips)
        if self._target.vllm and status == 200:
            found.version = version_of(content)
        found.models_status, content = await self._get("/v1/models")
        found.models = models_of(content) if found.models_status == 200 else None
        found.gauges = await self._gauges() if self._target.vllm else None
        if found.gauges is not None and found.gauges.born is not None:
            found.uptime = time.time() - found.gauges.born

    async def _chats(self) -> None:
        found, model = self._found, self._target.model
        asked = time.time()
        answer = await self._post(chat(model, SENTENCE))
        if answer.status != 200 or not answer.message:
            told = answer.problem or "no chat completion"
            found.chat_problem = f"status {answer.status}, {told[:200]}"
            return
        found.skew = _skew(answer.whole.get("created"), asked, time.time())
        await self._see_it_followed()
        again = await self._post(chat(model, SENTENCE))
        found.prompt_details = _prompt_details(answer) or _prompt_details(again)
        await self._see_load()
        for need in sorted(PROBED):
            status, content = await self._get(CHAT, probe(need, model))
            answer = answer_of(status, content)
            able = verdict(need, answer)
            if able is not None:
                found.can[need] = able
            if need is Need.REASONING:
                found.thinks_aloud = "<think>" in str(answer.message.get("content"))

    async def _see_it_followed(self) -> None:
        """Looks at `/metrics` until it shows the chat that has just ended."""
        found = self._found
        if found.gauges is None or found.gauges.done is None:
            return
        ended = time.monotonic()
        while time.monotonic() < ended + FOLLOW:
            gauges = await self._gauges()
            if gauges is not None and (gauges.done or 0.0) > found.gauges.done:
                found.follows = time.monotonic() - ended
                return
            await asyncio.sleep(0.05)
        found.follows = float("inf")

    async def _see_load(self) -> None:
        """Looks at `/load` while a chat is open."""
        card = (self._found.models or {}).get(self._target.model)
        tokens = min(LONG, card.context // 2) if card and card.context else LONG
        body = chat(self._target.model, SENTENCE, tokens, ignore_eos=True)
        running = asyncio.create_task(self._get(CHAT, msgspec.json.encode(body)))
        try:
            for _ in range(ZEROS):
                await asyncio.sleep(ZERO_GAP)
                status, content = await self._get("/load")
                load = load_of(content) if status == 200 else None
                if load is None or load > 0:
                    self._found.tracks = None if load is None else True
                    return
                if running.done():  # too short to tell
                    return
            self._found.tracks = False
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def _gauges(self) -> Gauges | None:
        status, content = await self._get("/metrics")
        gauges = gauges_of(content if status == 200 else b"")
        return None if gauges.waiting is None and gauges.kv is None else gauges

    async def _post(self, body: Mapping[str, Any]) -> Answer:
        return answer_of(*await self._get(CHAT, msgspec.json.encode(body)))

    async def _get(self, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        more = {} if body is None else {"content-type": "application/json"}
        async with asyncio.timeout(self._seconds):
            return await self._fetch(self._target.page(path), {**self._headers, **more}, body)


def _prompt_details(answer: Answer) -> bool | None:
    usage = answer.whole.get("usage")
    if not isinstance(usage, Mapping) or "prompt_tokens_details" not in usage:
        return None
    return usage["prompt_tokens_details"] is not None


def _skew(created: Any, asked: float, answered: float) -> float | None:
    """How far `created`, in whole seconds, lies outside of when it can have been."""
    if not isinstance(created, int | float):
        return None
    if created < asked - 1:
        return created - asked
    return max(0.0, created - answered)
