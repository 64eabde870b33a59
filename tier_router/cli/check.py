"""`tier-router check`."""

from __future__ import annotations

import json
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from tier_router.config import Config, Cost, Tier, load
from tier_router.exchange import exchange_of
from tier_router.router import TierRouter


def run(path: Path) -> None:
    """Reads the configuration, compiles it, and prints the ladder that comes of it."""
    config = load(path)
    router = TierRouter(config)
    exchange_of(config.state)
    console = Console()
    console.print(_ladder(config, router.thresholds))
    labelled = sum(intent.tier is None for intent in config.intents.values())
    console.print(
        f"intents: {len(config.intents)} ({labelled} without a tier), rules: {len(config.rules)}, "
        f"aliases: {len(config.aliases)}"
    )
    for warning in _warnings(config):
        console.print(f"warning: {warning}", style="yellow")
    console.print(f"{path}: ok", style="green", highlight=False)


def show_schema() -> None:
    """Prints the JSON schema of the configuration."""
    print(json.dumps(Config.model_json_schema(), indent=2))


def _ladder(config: Config, thresholds: tuple[float, ...]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("tier", "model", "replicas", "context", "from difficulty", "cost"):
        table.add_column(column, overflow="fold")
    for place, tier in enumerate(config.tiers):
        table.add_row(
            tier.name,
            tier.model,
            "\n".join(replica.url for replica in tier.replicas),
            f"{tier.context:,}" if tier.context else _open(config),
            "embeddings" if tier.pools else f"{thresholds[place - 1]:.3f}" if place else "0",
            _cost(tier.cost),
        )
    return table


def _open(config: Config) -> str:
    """What is said of a context that is not configured."""
    return "what replicas say" if config.load.poll.models else "unchecked"


def _cost(cost: Cost | None) -> str:
    if cost is None:
        return ""
    if cost.gpu_hour is not None:
        return f"{cost.gpus:g} x {cost.gpu_hour:g}/h"
    return f"{cost.input or 0:g} / {cost.output or 0:g} per M"


def _warnings(config: Config) -> list[str]:
    """What is allowed and yet may not be meant."""
    found = []
    if config.rungs == 1:
        found.append("one tier: there is nothing to choose")
    if config.server.exposed:
        found.append(
            f"`server.host` is {config.server.host} and there are no `api_keys`: `serve` refuses "
            "that without `server.open: true`"
        )
    found += [
        f"tier `{tier.name}` has no `context` and its replicas are not asked (`load.poll`): "
        "prompts too long for it are not moved up"
        for tier in config.tiers
        if tier.context is None and not config.load.poll.models and not _simulated(tier)
    ]
    found += [
        f"intent `{name}` has no tier: it only labels"
        for name, intent in config.intents.items()
        if intent.tier is None and config.rungs > 1
    ]
    return found[:10]


def _simulated(tier: Tier) -> bool:
    return all(replica.url.startswith("sim://") for replica in tier.replicas)
