"""Several workers behind one port: started, told, replaced, and ended by a supervisor.

Each is a process of its own with its own event loop; the kernel spreads connections over them
(SO_REUSEPORT), and a table in shared memory tells each what the others have in flight.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from prometheus_client.multiprocess import mark_process_dead

from tier_router.exchange.table import Table
from tier_router_proxy.siblings import METRICS_FOLDER

log = logging.getLogger("tier_router_proxy")

START_SECONDS = 60.0
"""How long a worker may take until it serves: it reads its classifier first."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds before a worker that died is started again, doubled each time that the new one dies
before it has served for the longer of the two."""


@dataclass(eq=False)
class _Run:
    """One process of a worker; `row` is its place in the table."""

    process: asyncio.subprocess.Process
    row: int
    leaving: bool = False
    """Whether it is meant to end."""


@dataclass(eq=False)
class _Worker:
    """One worker's number, and the process that is it now."""

    number: int
    run: _Run | None = None
    pause: float = FIRST_PAUSE


class Supervisor:
    """Runs `command` so many times on one port until a signal ends it.

    `command` gets `--port PORT --table FD,ROW` added.  `started` is told the line that
    the first worker prints when it serves.
    """

    def __init__(
        self,
        command: Sequence[str],
        workers: int,
        host: str,
        port: int,
        started: Callable[[str], None],
    ) -> None:
        self._command, self._host, self._port = list(command), host, port
        self._started = started
        self._table = Table(2 * workers)  # while a worker is replaced there are two of it
        self._workers = [_Worker(number) for number in range(workers)]
        self._watches: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()
        self._failed = False
        self._rolling: asyncio.Task[None] | None = None

    async def run(self) -> bool:
        """Serves until SIGTERM or SIGINT; True if every worker's answers came to their end.

        SIGHUP reloads the configuration in all of them, SIGUSR2 replaces them one by one, so that
        new code is taken over without dropping a request.  Raises OSError where the port is taken.
        """
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tier-router-"))
            os.environ[METRICS_FOLDER] = folder
            held = stack.enter_context(_held(self._host, self._port))
            self._port = held.getsockname()[1]
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._end)
            loop.add_signal_handler(signal.SIGHUP, self._tell, signal.SIGHUP)
            loop.add_signal_handler(signal.SIGUSR2, self._roll)
            line = await self._start(self._workers[0])
            if line is None:
                return False
            await asyncio.gather(*(self._start(worker) for worker in self._workers[1:]))
            self._started(line)
            await self._over.wait()
            await self._ended()
            return not self._failed

    # ---- one worker

    async def _start(self, worker: _Worker) -> str | None:
        """Starts a worker's process; the line that it prints when it serves, None where it does
        not."""
        free = worker.number + len(self._workers)
        row = free if worker.run is not None and worker.run.row != free else worker.number
        process = await asyncio.create_subprocess_exec(
            *self._command, "--port", str(self._port), "--table", f"{self._table.fd},{row}",
            stdin=asyncio.subprocess.PIPE,  # its end tells a worker that it is left alone
            stdout=asyncio.subprocess.PIPE, pass_fds=(self._table.fd,),
        )  # fmt: skip
        run = _Run(process, row)
        assert process.stdout is not None
        try:
            async with asyncio.timeout(START_SECONDS):
                line = (await process.stdout.readline()).decode().rstrip("\n")
        except TimeoutError:
            process.kill()
            line = ""
        if line or worker.run is None:
            worker.run = run
        else:
            run.leaving = True  # the one that is there goes on
        if self._over.is_set() and process.returncode is None:
            process.terminate()  # it came too late to be told
        watch = asyncio.create_task(self._watch(worker, run))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)
        return line or None

    async def _watch(self, worker: _Worker, run: _Run) -> None:
        """Notices how a process ends, and starts a new one where nobody wanted that."""
        began = asyncio.get_running_loop().time()
        status = await run.process.wait()
        self._table.clear(run.row)
        mark_process_dead(run.process.pid)  # type: ignore[no-untyped-call]
        if run.leaving or self._over.is_set():
            self._failed |= status != 0
            return
        if asyncio.get_running_loop().time() - began > LONGEST_PAUSE:
            worker.pause = FIRST_PAUSE
        log.error("worker %d ended (%d); a new one follows", worker.number, status)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), worker.pause)
        worker.pause = min(2 * worker.pause, LONGEST_PAUSE)
        if not self._over.is_set():
            await self._start(worker)

    # ---- all of them

    def _tell(self, number: signal.Signals) -> None:
        for worker in self._workers:
            if worker.run is not None and worker.run.process.returncode is None:
                worker.run.process.send_signal(number)

    def _end(self) -> None:
        """Lets answers that are under way end; told again, cuts them."""
        self._over.set()
        self._tell(signal.SIGTERM)

    def _roll(self) -> None:
        if self._rolling is None or self._rolling.done():
            self._rolling = asyncio.create_task(self._replaced())

    async def _replaced(self) -> None:
        """Replaces each worker by a new process, which serves before the old one leaves."""
        for worker in self._workers:
            old = worker.run
            if self._over.is_set():
                return
            if await self._start(worker) is None:
                log.error("worker %d: the new one does not serve, the old one stays", worker.number)
                return
            if old is not None:
                old.leaving = True
                if old.process.returncode is None:
                    old.process.terminate()
        log.info("all workers were replaced")

    async def _ended(self) -> None:
        if self._rolling is not None:
            await self._rolling
        await asyncio.gather(*self._watches)


def _held(host: str, port: int) -> socket.socket:
    """A socket that keeps the port for the workers and takes no connections itself."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    held = socket.socket(family, socket.SOCK_STREAM)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind((host, port))
    except OSError as error:
        held.close()
        raise OSError(error.errno, error.strerror, f"{host}:{port}") from None
    return held
