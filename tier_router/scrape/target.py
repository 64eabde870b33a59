"""Whom to ask, and what was said last."""

from __future__ import annotations

from dataclasses import dataclass, field

from tier_router.config.model import Poll


@dataclass(frozen=True, slots=True)
class Target:
    """A replica, and what is asked of it."""

    name: str
    model: str
    url: str
    """What is dialled."""
    poll: Poll
    api_key: str | None = field(default=None, repr=False)
    asks: bool = False
    """Whether its abilities are to be found out."""


@dataclass(slots=True)
class Said:
    """What a replica said last, and when, by the watch's clock; None for what it never said."""

    requests: float | None = None
    waiting: float | None = None
    kv: float | None = None
    load_at: float | None = None
    metrics_at: float | None = None
