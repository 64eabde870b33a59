"""How fast a tier reads and writes, learned from its answers, and what a plan is worth with that.

saved = (uncached before - after) / prefill  +  output tokens avoided x ITL  -  time spent
        + answer tokens x tokens removed x KV bytes / memory bandwidth
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from statistics import median

PREFILL_TPS, ITL = 9_700.0, 0.008
"""Until something is learned: an 8B model in bf16 on one A100 (312 TFLOP/s at half use; weights
over 2.0 TB/s), tokens a second and seconds."""

KV_BYTES, BANDWIDTH = 131_072.0, 2.0e12
"""KV bytes of a token of an 8B model in fp16 (32 layers, 8 heads of 128, keys and values), and
memory bytes a second of an A100."""

SAMPLES, FEWEST = 256, 20
"""Answers that speeds are learned from, and how many are needed."""

APART = 64
"""Uncached tokens by which two answers differ at least where a slope is taken between them."""


@dataclass(frozen=True, slots=True)
class Speeds:
    """Prompt tokens a second, seconds an output token, KV bytes a token."""

    prefill_tps: float = PREFILL_TPS
    itl: float = ITL
    kv_bytes: float = KV_BYTES

    def saved(self, uncached: float, removed: float, written: float, output: float = 0.0) -> float:
        """Seconds saved by `uncached` fewer prompt tokens to prefill, `removed` fewer to attend to
        while `written` tokens are written, and `output` fewer output tokens."""
        attention = written * max(removed, 0.0) * self.kv_bytes / BANDWIDTH
        return uncached / self.prefill_tps + attention + output * self.itl


class Learned:
    """Speeds of one tier, by a robust slope of first-token time over uncached tokens."""

    def __init__(self) -> None:
        self._first: deque[tuple[float, float]] = deque(maxlen=SAMPLES)
        self._itl: deque[float] = deque(maxlen=SAMPLES)

    def answered(self, uncached: float, ttft: float, written: int, seconds: float) -> None:
        """One answer: prompt tokens that were not cached, seconds to the first token, tokens
        written, and seconds from the first token to the last."""
        if uncached > 0 and ttft > 0:
            self._first.append((uncached, ttft))
        if written > 8 and seconds > 0:
            self._itl.append(seconds / (written - 1))

    def speeds(
        self,
        prefill_tps: float | None = None,
        itl_ms: float | None = None,
        kv_bytes: float | None = None,
    ) -> Speeds:
        """What was learned; what is given comes first, what is neither is the default."""
        return Speeds(
            prefill_tps or self._prefill() or PREFILL_TPS,
            itl_ms / 1000 if itl_ms else self._between() or ITL,
            kv_bytes or KV_BYTES,
        )

    def _between(self) -> float | None:
        return median(self._itl) if len(self._itl) >= FEWEST else None

    def _prefill(self) -> float | None:
        """One over the median slope (Theil and Sen), over pairs half a sample apart in size."""
        points = sorted(self._first)
        half = len(points) // 2
        if len(points) < FEWEST:
            return None
        slopes = [
            (t2 - t1) / (n2 - n1)
            for (n1, t1), (n2, t2) in zip(points[:half], points[-half:], strict=True)
            if n2 - n1 >= APART
        ]
        slope = median(slopes) if len(slopes) >= FEWEST // 2 else 0.0
        return 1 / slope if slope > 0 else None
