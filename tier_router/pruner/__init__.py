"""Pruning at work: what is sent, what answers prove, and what is kept of both.

`tier_router.prune` is the pure part; here are its memory, its file and its thread.  Every door asks
the same `Pruner`, by way of a `Trimming` for each request.
"""

from __future__ import annotations

from tier_router.pruner.pruner import Pruner
from tier_router.pruner.trimming import Pruned, Trimming

__all__ = ["Pruned", "Pruner", "Trimming"]
