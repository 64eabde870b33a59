"""Bytes that a client sends ahead of their turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tier_router_proxy.http.hangups import HangUps


class Held:
    """What came behind a request whose answer is not finished; not parsed yet.

    Beyond a limit nothing more is read, and then the client's hang-up is watched for separately.
    """

    __slots__ = ("_fd", "_hangups", "_pieces", "_transport", "size")

    def __init__(self, transport: asyncio.Transport, hangups: HangUps) -> None:
        self.size = 0
        self._transport = transport
        self._hangups = hangups
        self._pieces: list[bytes] = []
        # The socket while it is not read from, else -1.
        self._fd = -1

    def add(self, data: bytes, limit: int, hung_up: Callable[[], None]) -> None:
        """Keep these bytes, too; above `limit`, stop reading."""
        self._pieces.append(data)
        self.size += len(data)
        if self._fd < 0 and self.size > limit:
            self._transport.pause_reading()
            self._fd = self._transport.get_extra_info("socket").fileno()
            self._hangups.watch(self._fd, hung_up)

    def take(self) -> bytes:
        """Everything that was held; reading goes on."""
        data = b"".join(self._pieces)
        self._pieces.clear()
        self.size = 0
        if self._fd >= 0:
            self.forget()
            if not self._transport.is_closing():
                self._transport.resume_reading()
        return data

    def forget(self) -> None:
        """Watch for nothing any more."""
        if self._fd >= 0:
            self._hangups.forget(self._fd)
            self._fd = -1
