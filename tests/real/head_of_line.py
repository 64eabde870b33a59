"""Head-of-line blocking on real vLLM, with the same hardware before and after.

    python -m tests.real.head_of_line --out FOLDER [--seconds 90] [--simple 8] [--hard 0.3]

Two CPU cores, one vLLM server on each.  First both serve the large model: clients take turns
(round robin), then the sidecar picks the replica, then it also tells vLLM which requests are easy
(priority scheduling).  After that one core serves the small model and the other the large one, and
the sidecar decides by its classifier.  The same arrivals go to each (Poisson, each prompt new);
the clients, the sidecar and the API servers share the two cores with the engines.

Then `tier-router simulate` learns the speeds from a quieter run's decision log and plays the
arrivals of the tiers' log through both; and `vllm bench serve` sends simple questions through the
sidecar beside the hard ones, as a witness from outside.  Writes FOLDER/results.json and prints the
tables that are kept in RESULTS.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.real.servers import HERE, MODELS, PYTHON, serving
from tier_router.cli.demo import HARD, SIMPLE
from tier_router.cli.load import Ask, Sample, poisson, send
from tier_router.config import Config, parse
from tier_router.evidence import collected, opened
from tier_router.evidence.learn import taught
from tier_router.evidence.replay import after, arrivals_of, before, played
from tier_router.router import TierRouter
from tier_router_proxy.sidecar import Sidecar

SLOTS, STEP_TOKENS, CONTEXT = 8, 2_048, 4_096
FLAGS = (
    "--scheduling-policy", "priority", "--enable-server-load-tracking",
    "--enable-prompt-tokens-details", "--max-num-batched-tokens", str(STEP_TOKENS),
)  # fmt: skip
SPEED = f"speed: {{slots: {SLOTS}, batched_tokens: {STEP_TOKENS}, scheduling: priority}}"
INTENTS = """
intents:
  account:
    tier: light
    utterances: [how much money do I have, I forgot my password, where do I find my bill,
                 when is my bill due, what are your opening hours, can I talk to somebody]
  everyday:
    tier: light
    utterances: [translate this sentence into Spanish, correct the spelling of this sentence,
                 what is the capital of Spain, remind me of my appointment tomorrow]
  small_code:
    tier: light
    utterances: [rename this variable, what does this status code mean, what does error 500 mean,
                 change the name of a variable in one line]
"""
"""As an operator would write them: none of the questions that are asked is among them."""

SIMPLE_TOKENS, HARD_TOKENS = 40, 120
"""Tokens of the answers."""
SEED, OTHER_SEED = 7, 11


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs everything; a quarter of an hour at the default length."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--simple", type=float, default=8.0, help="simple requests a second")
    parser.add_argument("--hard", type=float, default=0.3, help="hard requests a second")
    given = parser.parse_args(arguments)
    if not (PYTHON and MODELS):
        sys.exit("TIER_ROUTER_VLLM and TIER_ROUTER_VLLM_MODELS are not set: see README.md")
    given.out.mkdir(parents=True, exist_ok=True)
    asks = arrivals(given.simple, given.hard, given.seconds, SEED)
    quiet = arrivals(given.simple / 3, given.hard / 3, given.seconds, OTHER_SEED)
    told: dict[str, Any] = {"arguments": {k: str(v) for k, v in vars(given).items()}, "modes": {}}
    with large_twice(given.out) as urls:
        warm(urls)
        through(one_tier(urls, given.out / "quiet-large.jsonl"), quiet)
        say = told["modes"].__setitem__
        say("one model, round robin", figures(asyncio.run(round_robin(urls, asks))))
        one = one_tier(urls, given.out / "one.jsonl")
        say("one model, Tier Router", figures(through(one, asks)))
        stamped = one_tier(urls, given.out / "stamped.jsonl", "load: {stamp: -1}")
        say("one model, Tier Router and priorities", figures(through(stamped, asks)))
        told["witness"] = {"one model": witness(one, given)}
    with small_and_large(given.out) as urls:
        warm(urls)
        through(two_tiers(urls, given.out / "quiet.jsonl"), quiet)
        tiers = two_tiers(urls, given.out / "tiers.jsonl")
        say("light and heavy, Tier Router", figures(through(tiers, asks)))
        told["witness"]["light and heavy"] = witness(two_tiers(urls, given.out / "w.jsonl"), given)
    told["simulated"] = simulated(tiers, given.out)
    (given.out / "results.json").write_text(json.dumps(told, indent=2) + "\n")
    print(json.dumps(told, indent=2))


def arrivals(simple: float, hard: float, seconds: float, seed: int) -> list[Ask]:
    """Poisson arrivals of questions and tasks; each task has a number of its own in front, so that
    no prefix cache knows more than the template."""
    rates: dict[str, tuple[float, Sequence[str], int]] = {
        "simple": (simple, SIMPLE, SIMPLE_TOKENS),
        "hard": (hard, HARD, HARD_TOKENS),
    }
    asks = poisson(rates, seconds, seed)
    return [
        replace(ask, prompt=f"Case {seed}-{n}. {ask.prompt}") if ask.kind == "hard" else ask
        for n, ask in enumerate(asks)
    ]


# ---- hardware


@contextmanager
def large_twice(folder: Path) -> Iterator[list[str]]:
    """The URLs of two servers of the large model, a core each."""
    with _server(folder, "heavy", 0) as first, _server(folder, "heavy", 1) as second:
        yield [first.url, second.url]


@contextmanager
def small_and_large(folder: Path) -> Iterator[list[str]]:
    """The URLs of a server of the small model and one of the large, a core each."""
    with _server(folder, "light", 0) as light, _server(folder, "heavy", 1) as heavy:
        yield [light.url, heavy.url]


def _server(folder: Path, name: str, core: int) -> Any:
    return serving(
        folder, name, *FLAGS, model=f"tiny-{name}", core=core, context=CONTEXT, slots=SLOTS
    )


def one_tier(urls: Sequence[str], log: Path, more: str = "") -> Config:
    """The large model alone."""
    return parse(
        f"tiers: [{{name: heavy, model: heavy, replicas: {json.dumps(list(urls))}, "
        f"limits: {{requests: {SLOTS}}}}}]\n"
        f"server: {{port: 0}}\nlog: {log}\n{more}{INTENTS.replace('light', 'heavy')}"
    )


def two_tiers(urls: Sequence[str], log: Path) -> Config:
    """The small and the large model."""
    tiers = "".join(
        f"  - {{name: {name}, model: {name}, replicas: [{url}], limits: {{requests: {SLOTS}}}, "
        f"{SPEED}, cost: {{gpus: 1}}}}\n"
        for name, url in zip(("light", "heavy"), urls, strict=True)
    )
    return parse(f"tiers:\n{tiers}server: {{port: 0}}\nlog: {log}\n{INTENTS}")


# ---- load


async def round_robin(urls: Sequence[str], asks: Sequence[Ask]) -> list[Sample]:
    """Each request to the next server, whatever it is."""
    shares = [asks[place :: len(urls)] for place in range(len(urls))]
    answered = await asyncio.gather(*(send(*pair) for pair in zip(urls, shares, strict=True)))
    return [sample for each in answered for sample in each]


def warm(urls: Sequence[str]) -> None:
    """A few seconds of both kinds: a server's first answers are slow."""
    asyncio.run(round_robin(urls, arrivals(4.0, 0.5, 8.0, seed=3)))


def through(config: Config, asks: Sequence[Ask]) -> list[Sample]:
    """Each request through a sidecar of its own process's."""

    async def run() -> list[Sample]:
        async with Sidecar(config) as sidecar:
            return await send(sidecar.url, asks)

    return asyncio.run(run())


def figures(samples: Sequence[Sample]) -> dict[str, Any]:
    """{class or "all": {requests, failed, light: share, ttft, latency: {p50, p95, mean}}}, times
    in seconds."""
    kinds: dict[str, Callable[[Sample], bool]] = {
        "all": lambda _: True,
        "simple": lambda sample: sample.kind == "simple",
        "hard": lambda sample: sample.kind == "hard",
    }
    return {name: _of([s for s in samples if wanted(s)]) for name, wanted in kinds.items()}


def _of(samples: Sequence[Sample]) -> dict[str, Any]:
    return {
        "requests": len(samples),
        "failed": sum(sample.error is not None for sample in samples),
        "light": sum(sample.tier == "light" for sample in samples) / len(samples),
        **{
            what: _spread([v for s in samples if (v := getattr(s, what)) is not None])
            for what in ("ttft", "latency")
        },
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    at = statistics.quantiles(values, n=100, method="inclusive")
    return {"p50": at[49], "p95": at[94], "mean": statistics.fmean(values)}


# ---- the simulation beside it


def simulated(config: Config, folder: Path) -> dict[str, Any]:
    """What `tier-router simulate` says of the same arrivals, with speeds from the quieter runs."""
    logs = [(folder / name).read_bytes() for name in ("quiet-large.jsonl", "quiet.jsonl")]
    (folder / "both.jsonl").write_bytes(b"".join(logs))
    with opened(folder / "both.jsonl") as source, collected(source, [config]) as found:
        config = taught(config, found.rows)
    thresholds = TierRouter(config).thresholds
    with opened(folder / "tiers.jsonl") as source, collected(source, [config]) as found:
        asked = arrivals_of(found, thresholds, None, 1_000_000)
    return {
        "speeds": {tier.name: tier.speed.model_dump() for tier in config.tiers},
        "before": played(before(config), asked)["classes"],
        "after": played(after(config, thresholds), asked)["classes"],
    }


# ---- the witness


def witness(config: Config, given: argparse.Namespace) -> dict[str, Any]:
    """`vllm bench serve` asks the simple questions while the hard ones come in: its own figures,
    times in milliseconds."""
    count = int(given.simple * given.seconds)
    questions = given.out / "questions.jsonl"
    questions.write_text(
        "".join(json.dumps({"prompt": SIMPLE[n % len(SIMPLE)]}) + "\n" for n in range(count))
    )
    hard = [ask for ask in arrivals(1e-9, given.hard, given.seconds, SEED) if ask.kind == "hard"]

    async def run() -> None:
        async with Sidecar(config) as sidecar:
            others = asyncio.create_task(send(sidecar.url, hard))
            command = _bench(sidecar.url, questions, count, given)
            bench = await asyncio.create_subprocess_exec(
                *command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
            _, errors = await bench.communicate()
            assert bench.returncode == 0, errors.decode("utf-8", "replace")[-2000:]
            await others

    asyncio.run(run())
    found = json.loads((given.out / "witness.json").read_text())
    kept = ("completed", "failed", "median_ttft_ms", "p95_ttft_ms", "mean_e2el_ms")
    return {name: found.get(name) for name in kept}


def _bench(url: str, questions: Path, count: int, given: argparse.Namespace) -> list[str]:
    assert PYTHON is not None
    assert MODELS is not None
    return [
        PYTHON, str(HERE / "vllm_cli.py"), "bench", "serve", "--backend", "openai-chat",
        "--base-url", url, "--endpoint", "/v1/chat/completions", "--model", "auto",
        "--tokenizer", str(Path(MODELS) / "tiny-heavy"), "--dataset-name", "custom",
        "--dataset-path", str(questions), "--custom-output-len", str(SIMPLE_TOKENS),
        "--num-prompts", str(count), "--request-rate", str(given.simple), "--ignore-eos",
        "--skip-chat-template", "--seed", str(SEED), "--percentile-metrics", "ttft,e2el",
        "--metric-percentiles", "50,95", "--save-result", "--result-dir", str(given.out),
        "--result-filename", "witness.json", "--disable-tqdm",
    ]  # fmt: skip


if __name__ == "__main__":
    main()
