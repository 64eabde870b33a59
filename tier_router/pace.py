"""How fast each tier answers, and how many tokens its texts really have: learned from its answers.

Told facts, asked questions; no clock.  All times are in seconds.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from tier_router.ledger import Lease
from tier_router.request import Need, View

MEMORY = 64
"""Answers over which an average forgets: each new one weighs 1/64 once there have been as many."""

WINDOW = 256
"""Times to first token that the 95th percentile is taken over; it is told from 32 on."""

ENOUGH = 32

PREFILL_TOKENS = 512
"""Uncached prompt tokens from which a lone request's time to first token is mostly prefill."""

SCALES = (0.25, 4.0)
"""How far a learned token count may be from our estimate; beyond it something else is counted."""


class Script(StrEnum):
    """What most of a prompt is written in; tokenizers differ most on what is not ASCII."""

    ASCII = "ascii"
    OTHER = "other"

    @classmethod
    def of(cls, view: View) -> Script:
        """The script of most of the prompt's tokens."""
        return cls.OTHER if view.wide * 2 > view.tokens else cls.ASCII


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one answer, as its replica counted them."""

    prompt: int
    completion: int
    cached: int = 0


_USAGE = re.compile(rb'"usage":\s*\{')
_COUNTS = {
    # what follows a number is looked at: the framing of a body may cut it in two
    "prompt": re.compile(rb'"(?:prompt|input)_tokens":\s*(\d+)\s*[,}]'),
    "completion": re.compile(rb'"(?:completion|output)_tokens":\s*(\d+)\s*[,}]'),
    "cached": re.compile(rb'"cached_tokens":\s*(\d+)\s*[,}]'),
}


def usage_at_end(answer: bytes) -> Usage | None:
    """The usage that the last kilobytes of an answer tell, streamed or not; None where they do not.

    Nothing is parsed: in the model's own words every quote is escaped, so they cannot be taken
    for it.
    """
    starts = [found.end() for found in _USAGE.finditer(answer)]
    if not starts:
        return None
    told = {name: field.search(answer, starts[-1]) for name, field in _COUNTS.items()}
    counts = {name: int(found[1]) for name, found in told.items() if found is not None}
    return Usage(**counts) if counts.keys() >= {"prompt", "completion"} else None


class _Average:
    """A running mean of the newest values."""

    __slots__ = ("count", "value")

    def __init__(self) -> None:
        self.count, self.value = 0, 0.0

    def add(self, value: float) -> None:
        self.count = min(self.count + 1, MEMORY)
        self.value += (value - self.value) / self.count

    def told(self, least: int = 1) -> float | None:
        return self.value if self.count >= least else None


class Pace:
    """What one tier's answers have taught.  None where there were too few of them."""

    def __init__(self) -> None:
        self._ttft, self._gap, self._prefill, self._whole = (_Average() for _ in range(4))
        self._scales = {script: _Average() for script in Script}
        self._recent: deque[float] = deque(maxlen=WINDOW)
        self._seen = 0
        self._late: float | None = None

    @property
    def ttft(self) -> float | None:
        """Mean seconds to the first token of a stream."""
        return self._ttft.told()

    @property
    def late(self) -> float | None:
        """95th percentile of the seconds to the first token."""
        return self._late

    @property
    def gap(self) -> float | None:
        """Mean inter-token latency, seconds."""
        return self._gap.told()

    @property
    def prefill(self) -> float | None:
        """Uncached prompt tokens a second of a replica with nothing else to do."""
        return self._prefill.told()

    @property
    def whole(self) -> float | None:
        """Mean seconds of a whole answer."""
        return self._whole.told()

    def scale(self, script: Script) -> float:
        """Real prompt tokens for each one that we estimated."""
        return self._scales[script].told(least=8) or 1.0

    def answered(self, view: View, lease: Lease, usage: Usage | None, now: float) -> None:
        """Learns from an answer to `view` that ended well at `now`."""
        ttft = lease.ttft
        if ttft is None and usage is None:
            return
        self._whole.add(now - lease.opened_at)
        if ttft is not None:
            self._first(ttft)
        if usage is None or view.n != 1:
            return
        if ttft is not None and usage.completion > 1:
            self._gap.add((now - lease.opened_at - ttft) / (usage.completion - 1))
        fresh = usage.prompt - usage.cached
        if ttft and lease.alone and fresh >= PREFILL_TOKENS:
            self._prefill.add(fresh / ttft)
        if view.tokens and not view.needs & {Need.VISION, Need.AUDIO}:
            least, most = SCALES
            scale = min(max(usage.prompt / view.tokens, least), most)
            self._scales[Script.of(view)].add(scale)

    def _first(self, ttft: float) -> None:
        self._ttft.add(ttft)
        self._recent.append(ttft)
        self._seen += 1
        count = len(self._recent)
        if count >= ENOUGH and self._seen % 16 == 0:
            self._late = sorted(self._recent)[int(0.95 * (count - 1))]


class Paces:
    """The pace of every tier, by name; made when first asked for."""

    def __init__(self) -> None:
        self._tiers: dict[str, Pace] = {}

    def of(self, tier: str) -> Pace:
        """The pace of `tier`."""
        pace = self._tiers.get(tier)
        if pace is None:
            pace = self._tiers[tier] = Pace()
        return pace

    def scales(self, view: View) -> Mapping[str, float]:
        """By tier: real prompt tokens for each one that was estimated of a prompt like this."""
        script = Script.of(view)
        return {name: pace.scale(script) for name, pace in self._tiers.items()}
