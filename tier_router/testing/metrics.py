"""`/metrics` as vLLM 0.32 spells it: names, labels and buckets; the values are the engine's."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from tier_router.testing.engine import Engine
from tier_router.testing.job import Job, State

FIRST_TOKEN = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
GAP = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
)  # fmt: skip
REQUEST = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
TOKENS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0)

CONTENT_TYPE = "text/plain; version=1.0.0; charset=utf-8"

BLOCK = 16
"""Tokens of a KV block: vLLM's default on GPUs."""

_HISTOGRAMS: tuple[tuple[str, str, Sequence[float]], ...] = (
    ("request_prompt_tokens", "Number of prefill tokens processed.", TOKENS),
    ("request_generation_tokens", "Number of generation tokens processed.", TOKENS),
    (
        "time_to_first_token_seconds",
        "Histogram of time to first token in seconds.",
        FIRST_TOKEN,
    ),
    ("inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", GAP),
    ("e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", REQUEST),
    (
        "request_queue_time_seconds",
        "Histogram of time spent in WAITING phase for request.",
        REQUEST,
    ),
)

_ENDS = ("stop", "length", "abort", "error", "repetition")


class Histogram:
    """Counts of values up to each bound."""

    def __init__(self, name: str, says: str, bounds: Sequence[float]) -> None:
        self.name, self.says, self._bounds = name, says, bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, labels: Mapping[str, str]) -> list[str]:
        """The histogram in the text format."""
        out = _header(self.name, self.says, "histogram")
        seen = 0
        for bound, count in zip((*self._bounds, None), self._counts, strict=True):
            seen += count
            le = "+Inf" if bound is None else repr(bound)
            out.append(_line(f"{self.name}_bucket", {**labels, "le": le}, seen))
        out.append(_line(f"{self.name}_count", labels, seen))
        out.append(_line(f"{self.name}_sum", labels, self._sum))
        return out


class Metrics:
    """What one server tells a scraper."""

    def __init__(self) -> None:
        self.born: float | None = None
        """When the server was started, in seconds since 1970."""
        self._ends = dict.fromkeys(_ENDS, 0)
        self._histograms = {
            name: Histogram(f"vllm:{name}", says, bounds) for name, says, bounds in _HISTOGRAMS
        }

    def observe(self, job: Job, finish: str) -> None:
        """Count a job that is done; one that its client left is never counted, as in vLLM."""
        if job.started_at is None or job.first_at is None or job.last_at is None:
            return
        if job.state is not State.DONE:
            return
        self._ends[finish if finish in self._ends else "stop"] += 1
        values: dict[str, Sequence[float]] = {
            "request_prompt_tokens": [job.prompt_tokens],
            "request_generation_tokens": [job.tokens],
            "time_to_first_token_seconds": [job.first_at - job.submitted_at],
            "inter_token_latency_seconds": job.gaps,
            "e2e_request_latency_seconds": [job.last_at - job.submitted_at],
            "request_queue_time_seconds": [job.started_at - job.submitted_at],
        }
        for name, seen in values.items():
            for value in seen:
                self._histograms[name].observe(value)

    def text(self, model: str, engine: Engine) -> bytes:
        """The whole answer.  The gauges are those of the last step's end, stale as vLLM's are."""
        labels = {"engine": "0", "model_name": model}
        out: list[str] = []
        if self.born is not None:
            name = "process_start_time_seconds"
            out += _header(name, "Start time of the process since unix epoch in seconds.", "gauge")
            out.append(f"{name} {self.born}")
        for name, says, kind, samples in _singles(engine, self._ends):
            out += _header(f"vllm:{name}", says, kind)
            for more, value in samples:
                # the one family that comes from the API server, which knows no engine
                base = {"model_name": model} if name.startswith("admission") else labels
                out.append(_line(f"vllm:{name}", {**base, **more}, value))
        for histogram in self._histograms.values():
            out += histogram.lines(labels)
        return ("\n".join(out) + "\n").encode()


Samples = list[tuple[dict[str, str], float]]


def _singles(engine: Engine, ends: Mapping[str, int]) -> Iterator[tuple[str, str, str, Samples]]:
    """Gauges and counters: name, help, type and samples."""
    now = engine.gauges
    yield (
        "num_requests_running",
        "Number of requests in model execution batches.",
        "gauge",
        [({}, now.running)],
    )
    yield (
        "num_requests_waiting",
        "Number of requests waiting to be processed.",
        "gauge",
        [({}, now.waiting)],
    )
    yield (
        "num_requests_waiting_by_reason",
        "Number of waiting requests by reason.",
        "gauge",
        [({"reason": "capacity"}, now.waiting), ({"reason": "deferred"}, 0)],
    )
    yield (
        "engine_sleep_state",
        "Engine sleep state.",
        "gauge",
        [
            ({"sleep_state": state}, state == "awake")
            for state in ("awake", "weights_offloaded", "discard_all")
        ],
    )
    yield (
        "kv_cache_usage_perc",
        "KV-cache usage. 1 means 100 percent usage.",
        "gauge",
        [({}, now.kv_usage)],
    )
    prefix = "Prefix cache {}, in terms of number of {} tokens."
    queried = engine.prompt_tokens_total
    yield (
        "prefix_cache_queries_total",
        prefix.format("queries", "queried"),
        "counter",
        [({}, queried)],
    )
    yield "prefix_cache_hits_total", prefix.format("hits", "cached"), "counter", [({}, 0)]
    yield (
        "num_preemptions_total",
        "Cumulative number of preemption from the engine.",
        "counter",
        [({}, 0)],
    )
    yield "prompt_tokens_total", "Number of prefill tokens processed.", "counter", [({}, queried)]
    yield (
        "generation_tokens_total",
        "Number of generation tokens processed.",
        "counter",
        [({}, engine.generated_total)],
    )
    yield (
        "request_success_total",
        "Count of successfully processed requests.",
        "counter",
        [({"finished_reason": end}, count) for end, count in ends.items()],
    )
    yield (
        "admission_rejections_total",
        "Number of admission attempts rejected by a queue limit, by reason.",
        "counter",
        [
            ({"reason": "max_num_queued_reqs"}, engine.rejected_total),
            ({"reason": "max_num_queued_tokens"}, 0),
        ],
    )
    yield (
        "cache_config_info",
        "Information of the LLMEngine CacheConfig",
        "gauge",
        [({"block_size": str(BLOCK), "num_gpu_blocks": str(engine.kv_tokens // BLOCK)}, 1)],
    )


def _header(name: str, says: str, kind: str) -> list[str]:
    return [f"# HELP {name} {says}", f"# TYPE {name} {kind}"]


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    inside = ",".join(f'{key}="{_escaped(labels[key])}"' for key in sorted(labels))
    return f"{name}{{{inside}}} {float(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
