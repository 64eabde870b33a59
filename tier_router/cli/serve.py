"""`tier-router serve`."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import typer

from tier_router.config import Config, load
from tier_router_proxy.serve import run as serve
from tier_router_proxy.sidecar import Sidecar

LEVELS = ("debug", "info", "warning", "error")


def run(path: Path, host: str | None, port: int | None, level: str) -> None:
    """Serves the configuration at `path` until a signal; exit code 1 if answers had to be cut."""
    if level not in LEVELS:
        raise typer.BadParameter(f"one of {', '.join(LEVELS)}", param_hint="--log-level")
    logging.basicConfig(
        format="%(asctime)s %(levelname)s %(message)s", level=level.upper(), stream=sys.stderr
    )
    given = {"host": host, "port": port}
    own = {name: value for name, value in given.items() if value is not None}

    def read() -> Config:
        config = load(path)
        return config.model_copy(update={"server": config.server.model_copy(update=own)})

    if not serve(read, _started):
        raise typer.Exit(1)


def _started(sidecar: Sidecar) -> None:
    config = sidecar.router.config
    tiers = ", ".join(f"{tier.name} ({len(tier.replicas)})" for tier in config.tiers)
    print(f"tier-router: {sidecar.url}/v1 serves {tiers}", flush=True)
