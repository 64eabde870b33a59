"""A thread that audits answers and writes the proofs down, so that no request waits for either."""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping

from tier_router.config.pruning import Promote, Step
from tier_router.prune.audit import Audit
from tier_router.pruner.proofs import Proofs

log = logging.getLogger("tier_router")

WAITING = 64
"""Audits that may wait; further answers are not audited, whatever is in them.  An answer and its
prompt are kept for each."""

SAVE_SECONDS = 10.0
"""How long an audit may be in memory alone."""

EVERY = 16
"""Audits after which it is looked anew which steps are proven."""

Job = Callable[[], Audit | None]


class Auditor:
    """Runs audits one after another and counts them; safe to use after a fork.

    `needed` says which steps count as proven, in `proven`, by tier.
    """

    def __init__(self, proofs: Proofs, needed: Promote, tiers: tuple[str, ...]) -> None:
        self._proofs, self._needed, self._tiers = proofs, needed, tiers
        self._lock = threading.Lock()
        self._pid: int | None = None
        self._complained = False
        self._count = 0
        self.proven: Mapping[str, frozenset[Step]] = self._judged()

    def submit(self, job: Job) -> bool:
        """Runs `job` later; False where too many wait already, and then it is not run."""
        if self._pid != os.getpid():
            self._start()
        try:
            self._queue.put_nowait(job)
        except queue.Full:
            return False
        return True

    def close(self, timeout: float = 5.0) -> None:
        """Runs what waits and saves, for at most `timeout` seconds; later jobs begin anew."""
        with self._lock:
            if self._pid != os.getpid():
                return
            self._pid = None
        try:
            self._queue.put(None, timeout=timeout)
        except queue.Full:
            return
        self._thread.join(timeout)

    def _start(self) -> None:
        """Begins the thread, once in each process."""
        with self._lock:
            if self._pid == os.getpid():
                return
            self._queue: queue.Queue[Job | None] = queue.Queue(WAITING)
            self._thread = threading.Thread(
                target=self._run, args=(self._queue,), name="pruning-audits", daemon=True
            )
            self._pid = os.getpid()
            self._thread.start()

    # ---- the thread

    def _run(self, waiting: queue.Queue[Job | None]) -> None:
        saved_at = time.monotonic()
        while True:
            left = max(0.0, saved_at + SAVE_SECONDS - time.monotonic())
            try:
                job = waiting.get(timeout=left if self._proofs.changed else None)
            except queue.Empty:
                self._save()
                saved_at = time.monotonic()
                continue
            if job is None:
                break
            if not self._proofs.changed:
                saved_at = time.monotonic()
            self._done(job)
        self._save()

    def _done(self, job: Job) -> None:
        try:
            audit = job()
        except Exception:  # an audit that fails proves nothing, and stops no other
            log.exception("an answer could not be audited")
            return
        if audit is not None and (audit.findings or audit.rank is not None):
            self._proofs.add(audit)
            self._count += 1
            if self._count % EVERY == 0:
                self.proven = self._judged()

    def _judged(self) -> Mapping[str, frozenset[Step]]:
        audits = self._proofs.audits
        return {tier: audits.proven(tier, self._needed) for tier in self._tiers}

    def _save(self) -> None:
        """Saves; one line for the first time that it fails: the next times it is the same."""
        try:
            self._proofs.save()
        except OSError as error:
            if not self._complained:
                self._complained = True
                log.error("audits are not saved: %s", error)
