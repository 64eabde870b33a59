"""`tier-router serve`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import typer

from tier_router.config import Config, load
from tier_router.errors import ConfigError
from tier_router.exchange.table import Table
from tier_router_proxy.logs import configure
from tier_router_proxy.serve import run as serve
from tier_router_proxy.sidecar import Sidecar
from tier_router_proxy.workers import Supervisor

LEVELS = ("debug", "info", "warning", "error")


def run(
    path: Path,
    host: str | None,
    port: int | None,
    workers: int | None,
    level: str,
    table: str | None,
) -> None:
    """Serves the configuration at `path` until a signal; exit code 1 if answers had to be cut.

    `table` is what a supervisor gives its workers: `FD,ROW`.
    """
    if level not in LEVELS:
        raise typer.BadParameter(f"one of {', '.join(LEVELS)}", param_hint="--log-level")
    given = {"host": host, "port": port, "workers": workers}
    own = {name: value for name, value in given.items() if value is not None}

    def read() -> Config:
        config = load(path)
        server = config.server.model_copy(update=own)
        if server.exposed:
            raise ConfigError(
                f"`{server.host}` is open to other hosts and there are no `server.api_keys`: give "
                "some, or say `server.open: true`",
                key="server.host",
            )
        return config.model_copy(update={"server": server})

    server = read().server
    configure(server.log_format, level)
    if table is not None:
        fd, row = map(int, table.split(","))
        ended = serve(read, _started, Table.of(fd).row(row))
    elif server.workers > 1:
        command = [sys.executable, "-m", "tier_router", "serve", "--config", str(path)]
        command += ["--host", server.host, "--log-level", level]
        supervisor = Supervisor(command, server.workers, server.host, server.port, _say)
        ended = asyncio.run(supervisor.run())
    else:
        ended = serve(read, _started)
    if not ended:
        raise typer.Exit(1)


def _say(line: str) -> None:
    print(line, flush=True)


def _started(sidecar: Sidecar) -> None:
    config = sidecar.router.config
    tiers = ", ".join(f"{tier.name} ({len(tier.replicas)})" for tier in config.tiers)
    _say(f"tier-router: {sidecar.url}/v1 serves {tiers}")
