"""The process around a sidecar: signals, reload, and an end that drops nobody."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from tier_router.config import Config
from tier_router.errors import TierRouterError
from tier_router.ledger import Neighbours
from tier_router_proxy.sidecar import Sidecar

log = logging.getLogger("tier_router_proxy")

WATCH_SECONDS = 1.0
"""How often the configuration's files are looked at.  Their `stat` is enough, and unlike inotify it
also sees the swapped symbolic links of a Kubernetes ConfigMap and files on NFS."""


def run(
    read: Callable[[], Config],
    started: Callable[[Sidecar], None],
    neighbours: Neighbours | None = None,
) -> bool:
    """Serves until SIGTERM or SIGINT; True if every answer under way came to its end.

    `read` gives the configuration, now and at each reload; `started` is told when the port is
    open; `neighbours` are the other workers of this host.  Raises what `read` raises the first
    time, and OSError where the port is taken.
    """
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_serve(read, started, neighbours))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's where it is installed: a fifth more requests a second."""
    if importlib.util.find_spec("uvloop") is None:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module(
        "uvloop"
    ).new_event_loop
    return factory


async def _serve(
    read: Callable[[], Config],
    started: Callable[[Sidecar], None],
    neighbours: Neighbours | None,
) -> bool:
    config = read()
    sidecar = Sidecar(config, neighbours=neighbours)
    stop, again = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, again.set)
    if neighbours is not None:
        loop.add_reader(sys.stdin.fileno(), _orphaned, loop, stop)
    await sidecar.start()
    started(sidecar)
    watching = asyncio.create_task(_watch(sidecar, read, again))
    try:
        await stop.wait()
        stop.clear()
        log.info("draining for up to %g s", sidecar.router.config.server.drain)
        return await _drained(sidecar, stop)
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching


def _orphaned(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Ends a worker whose supervisor has died: its end of the pipe is closed."""
    if not os.read(sys.stdin.fileno(), 1):
        loop.remove_reader(sys.stdin.fileno())
        log.error("the supervisor is gone, this worker ends too")
        stop.set()


async def _drained(sidecar: Sidecar, at_once: asyncio.Event) -> bool:
    """Stops the sidecar; a second signal ends the wait."""
    draining = asyncio.create_task(sidecar.stop())
    hurry = asyncio.create_task(at_once.wait())
    await asyncio.wait({draining, hurry}, return_when=asyncio.FIRST_COMPLETED)
    hurry.cancel()
    if not draining.done():
        draining.cancel()
        await asyncio.wait({draining})
        await sidecar.stop(0.0)
        return False
    return draining.result()


async def _watch(sidecar: Sidecar, read: Callable[[], Config], again: asyncio.Event) -> None:
    """Reloads when a file of the configuration changes, and when told to."""
    seen = _stamps(sidecar.router.config.sources)
    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(again.wait(), WATCH_SECONDS)
        stamps = _stamps(sidecar.router.config.sources)
        if not again.is_set() and stamps == seen:
            continue
        again.clear()
        await reload(sidecar, read)
        after = _stamps(sidecar.router.config.sources)
        # as they were before they were read: a change since then is seen next time
        seen = after | {path: stamp for path, stamp in stamps.items() if path in after}


async def reload(sidecar: Sidecar, read: Callable[[], Config]) -> bool:
    """Serves what `read` gives; what is wrong with it is logged, and the old one stays."""
    try:
        await sidecar.reload(await asyncio.to_thread(read))
    except (TierRouterError, OSError) as error:
        log.error("the configuration is refused, the old one stays: %s", error)
        sidecar.metrics.reloaded(False)
        return False
    log.info("the configuration was reloaded")
    sidecar.metrics.reloaded(True)
    return True


def _stamps(files: Iterable[Path]) -> dict[Path, tuple[int, int, int] | None]:
    """What shows that a file has changed; None for one that is gone."""
    return {path: _stamp(path) for path in files}


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
