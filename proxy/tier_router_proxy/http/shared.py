"""What all connections of a server have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from tier_router_proxy.http.exchange import Handler
from tier_router_proxy.http.hangups import HangUps
from tier_router_proxy.http.messages import Headers
from tier_router_proxy.http.requests import Limits, Refusal
from tier_router_proxy.http.timers import Wheel

if TYPE_CHECKING:
    from tier_router_proxy.http.connection import Connection

Refuse = Callable[[Refusal], tuple[Headers, bytes]]


class Shared:
    """One server's handler, limits and open connections."""

    def __init__(
        self,
        handler: Handler,
        limits: Limits,
        refuse: Refuse,
        wheel: Wheel,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.handler = handler
        self.limits = limits
        self.refuse = refuse
        self.wheel = wheel
        self.loop = loop
        self.hangups = HangUps(loop)
        self.open: set[Connection] = set()
        # Exchanges that are not finished.
        self.active = 0
        self.draining = False
        # Set whenever the last open connection is gone.
        self.emptied = asyncio.Event()
