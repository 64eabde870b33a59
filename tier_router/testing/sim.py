"""Simulated replicas behind `sim://` URLs: `sim://light?slots=8&step=20ms`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tier_router.errors import ConfigError
from tier_router.testing.engine import Speed
from tier_router.testing.fake_vllm import FakeVllm

GRACE = 30.0
"""Seconds that answers of a replica which is gone from the configuration may still take."""

CONTEXT = 1 << 20
"""Tokens that a simulated replica takes: what fits is the configuration's `context` to say."""

_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(us|ms|s|)")
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0}


def _seconds(text: str) -> float:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError("a duration is written `8ms`, `0.5s` or in seconds")
    return float(match[1]) * _UNITS[match[2]]


def _number(text: str) -> float:
    if re.fullmatch(r"\d+(?:\.\d*)?(?:e\d+)?", text) is None:
        raise ValueError("a number is wanted")
    return float(text)


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError("a whole number is wanted")
    return int(text)


_KEYS: dict[str, Callable[[str], Any]] = {
    "slots": _whole,
    "prefill": _number,
    "step": _seconds,
    "per_seq": _seconds,
    "batched_tokens": _whole,
    "queue": _whole,
    "scheduling": str,
}


def speed_of(url: str) -> Speed:
    """The speed that a `sim://NAME?key=value&...` URL asks for; what it leaves out is default."""
    parts = urlsplit(url)
    if parts.scheme != "sim" or not parts.netloc:
        raise ConfigError(f"a simulated replica is written sim://NAME?slots=8&step=20ms, not {url}")
    if parts.path.strip("/") or parts.fragment:
        raise ConfigError(f"{url}: nothing but `?key=value` may follow the name")
    given: dict[str, Any] = {}
    for key, text in parse_qsl(parts.query, keep_blank_values=True):
        if key not in _KEYS:
            raise ConfigError(f"{url}: no key `{key}`; known are {', '.join(_KEYS)}", key=key)
        if key in given:
            raise ConfigError(f"{url}: `{key}` is given twice", key=key)
        try:
            given[key] = _KEYS[key](text)
        except ValueError as error:
            raise ConfigError(f"{url}: `{key}={text}`: {error}", key=key) from None
    try:
        return Speed(**given)
    except ValueError as error:
        raise ConfigError(f"{url}: {error}") from None


class SimHost:
    """Runs the simulated replicas of one process."""

    def __init__(self) -> None:
        self._running: dict[str, FakeVllm] = {}
        self._ending: dict[asyncio.Task[None], FakeVllm] = {}
        self._lock = asyncio.Lock()

    @property
    def replicas(self) -> Mapping[str, FakeVllm]:
        """What runs, by URL."""
        return self._running

    async def resolve(self, replicas: Mapping[str, str]) -> dict[str, str]:
        """Where each replica listens: `sim://` URL and model in, `sim://` URL and `http://` out.

        Those that are new are started, those that are gone listen no more and end when their
        answers have, an equal URL keeps its replica.  A bad URL is a `ConfigError`, and then
        nothing has changed.
        """
        speeds = {url: speed_of(url) for url in replicas}
        async with self._lock:
            for url, model in replicas.items():
                if url in self._running:
                    self._running[url].model = model
                else:
                    fake = FakeVllm(model, speed=speeds[url], max_model_len=CONTEXT, record=False)
                    await fake.start()
                    self._running[url] = fake
            for url in self._running.keys() - replicas.keys():
                self._end(self._running.pop(url))
            return {url: self._running[url].url for url in replicas}

    async def aclose(self) -> None:
        """Stop all of them; answers under way are cut off."""
        async with self._lock:
            ending = dict(self._ending)
            for task in ending:
                task.cancel()
            await asyncio.gather(*ending, return_exceptions=True)
            for fake in (*ending.values(), *self._running.values()):
                await fake.stop()
            self._running.clear()

    def _end(self, fake: FakeVllm) -> None:
        task = asyncio.get_running_loop().create_task(fake.stop(GRACE))
        self._ending[task] = fake
        task.add_done_callback(self._ending.pop)
