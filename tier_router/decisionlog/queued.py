"""Hands records to a sink from a thread of its own, so that no request waits for it."""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
import time
from collections.abc import Callable

from tier_router.decisionlog.record import Record
from tier_router.decisionlog.sink import Lost, Sink

log = logging.getLogger("tier_router")

WAITING = 8_192
"""Records that may wait for a sink; further ones are dropped and counted.  About 8 MB."""

BATCH = 512
"""Records of one write."""

PAUSE = 1.0
"""Seconds between two tries of a batch that may succeed later."""

REMIND = 600.0
"""Seconds between two complaints about a sink that goes on losing records."""

AT_EXIT = 5.0
"""Seconds for which the end of the process waits."""

Dropped = Callable[[str, int], None]
"""Is told a sink's name and how many records more it has lost, from whatever thread."""


class Queued:
    """One sink with its queue and its thread; safe to call from any thread, and after a fork."""

    def __init__(self, sink: Sink, dropped: Dropped | None = None) -> None:
        self.dropped = 0
        """Records that came too fast for the sink, or that it refused."""
        self._sink, self._tell = sink, dropped
        self._lock = threading.Lock()
        self._pid: int | None = None
        self._began: int | None = None
        self._start()

    def __repr__(self) -> str:
        return f"<Queued {self._sink.name}: {self._queue.qsize()} wait, {self.dropped} dropped>"

    def write(self, record: Record) -> None:
        """Takes `record` over; returns at once."""
        if self._pid != os.getpid():
            self._start()
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            self._drop(1)

    def end(self) -> None:
        """Lets the thread write what waits and end; later records begin anew."""
        with self._lock:
            if self._pid != os.getpid():
                return
            self._pid = None
        self._over.set()
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            pass  # the thread ends with what is in it

    @property
    def busy(self) -> bool:
        """Whether its thread has not ended."""
        return self._thread.is_alive()

    def join(self, timeout: float) -> None:
        """Waits for the end for at most `timeout` seconds."""
        self._thread.join(timeout)
        atexit.unregister(self._at_exit)

    def _at_exit(self) -> None:
        self.end()
        self.join(AT_EXIT)

    def _start(self) -> None:
        """Begins the thread, once in each process."""
        with self._lock:
            if self._pid == os.getpid():
                return
            self._queue: queue.Queue[Record | None] = queue.Queue(WAITING)
            self._over = threading.Event()
            if self._began != os.getpid():  # what a fork finds locked stays so
                self._began, self._writing = os.getpid(), threading.Lock()
            self._thread = threading.Thread(
                target=self._run,
                args=(self._queue, self._over, self._writing),
                name=f"decision-log-{self._sink.name}",
                daemon=True,
            )
            self._pid = os.getpid()
            self._thread.start()
            atexit.register(self._at_exit)  # a script may end right after its last answer

    def _drop(self, count: int) -> None:
        self.dropped += count
        if self._tell is not None:
            self._tell(self._sink.name, count)

    # ---- the thread

    def _run(
        self, waiting: queue.Queue[Record | None], over: threading.Event, writing: threading.Lock
    ) -> None:
        """Writes until it is over; `writing` keeps it apart from a thread that follows it."""
        trouble = _Trouble(self._sink.name)
        while batch := self._batch(waiting, over):
            self._deliver(batch, over, writing, trouble)
        with writing:
            self._sink.close()

    def _batch(self, waiting: queue.Queue[Record | None], over: threading.Event) -> list[Record]:
        """The next records; none once it is over and nothing waits."""
        first = None if over.is_set() and waiting.empty() else waiting.get()
        if first is None:
            return []
        if self._sink.linger and waiting.qsize() < BATCH:
            over.wait(self._sink.linger)
        batch = [first]
        while len(batch) < BATCH:
            try:
                record = waiting.get_nowait()
            except queue.Empty:
                break
            if record is not None:
                batch.append(record)
        return batch

    def _deliver(
        self,
        batch: list[Record],
        over: threading.Event,
        writing: threading.Lock,
        trouble: _Trouble,
    ) -> None:
        """Writes a batch, or tries until that is of no use."""
        while True:
            last = over.is_set()
            try:
                with writing:
                    self._sink.write(batch)
            except Lost as error:
                trouble.met(error, self.dropped)
                if error.again and not last:
                    over.wait(PAUSE)
                    continue
                self._drop(len(batch))
                return
            trouble.over(self.dropped)
            return


class _Trouble:
    """Says once that a sink does not take records, and once that it does again."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._told: float | None = None

    def met(self, error: Lost, dropped: int) -> None:
        now = time.monotonic()
        if self._told is None or now - self._told >= REMIND:
            self._told = now
            log.error(
                "the decision log (%s) cannot be written, %d records are lost so far: %s",
                self._name, dropped, error,
            )  # fmt: skip

    def over(self, dropped: int) -> None:
        if self._told is not None:
            self._told = None
            log.warning(
                "the decision log (%s) is written again, %d records were lost", self._name, dropped
            )
