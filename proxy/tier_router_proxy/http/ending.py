"""How a client's connection ends: at once, after its last bytes, or after a pause for reading."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import sys
import termios
from enum import Enum

from tier_router_proxy.http.requests import Limits
from tier_router_proxy.http.timers import Timer, Wheel

# Closing then sends a reset: after a cut, a plain end would look like the answer's proper one.
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Phase(Enum):
    """How far a connection has come."""

    SERVING = "serving"
    # Everything was said; what the client still sends is thrown away until it has read that.
    LINGERING = "lingering"
    # Closed as soon as the answer's last bytes are on their way.
    CLOSING = "closing"
    CLOSED = "closed"


class Ending(asyncio.Protocol):
    """The part of a connection that knows how to end it; one timer serves all its timeouts."""

    __slots__ = ("_limits", "_phase", "_timer", "_unsent", "transport")

    transport: asyncio.Transport

    def __init__(self, limits: Limits, wheel: Wheel) -> None:
        self._limits = limits
        self._phase = Phase.SERVING
        self._timer: Timer = wheel.timer(self._on_timer)
        # What the client had yet to take when the write timeout was set; 0 if it was not.
        self._unsent = 0

    def _on_timer(self) -> None:
        raise NotImplementedError

    def _close(self) -> None:
        """Close as soon as everything is sent, or the client takes nothing for too long."""
        self._phase = Phase.CLOSING
        self._wait_for_progress()
        self.transport.close()

    def _linger(self) -> None:
        """Send the end, then wait a little for the client's.

        Closing a socket with unread bytes resets it, and a reset can overtake the answer.
        """
        if self._limits.linger <= 0 or not self.transport.can_write_eof():
            self._close()
            return
        self._phase = Phase.LINGERING
        self._unsent = 0
        self._timer.set(self._limits.linger)
        if not self.transport.is_closing():
            self.transport.write_eof()

    def _reset(self) -> None:
        """Close with a reset instead of an end, and drop what the client has not taken."""
        sock = self.transport.get_extra_info("socket")
        if sock is not None and self._phase is not Phase.CLOSED:
            try:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            except OSError:
                pass  # closed already, by the loop
        self._abort()

    def _abort(self) -> None:
        """Close at once; on the wire, this looks like any end."""
        self._phase = Phase.CLOSED
        self.transport.abort()

    def _on_linger_timer(self) -> None:
        if self.transport.get_write_buffer_size():
            self._check_progress()
        elif self._unsent:  # only now has everything been sent
            self._unsent = 0
            self._timer.set(self._limits.linger)
        else:
            self._abort()

    def _wait_for_progress(self) -> None:
        """Set the write timeout if anything waits to be sent."""
        if self.transport.get_write_buffer_size():
            self._unsent = _outstanding(self.transport)
            self._timer.set(self._limits.write_timeout)
        else:
            self._unsent = 0

    def _check_progress(self) -> None:
        """Cut off a client that took nothing for the write timeout; a slow one may go on."""
        if self._unsent and _outstanding(self.transport) >= self._unsent:
            self._reset()
        else:
            self._wait_for_progress()


def _outstanding(transport: asyncio.Transport) -> int:
    """Bytes written that the client has not acknowledged, in the kernel's buffer and before it.

    The kernel's share can be megabytes, of which a slow client takes little in a minute; until a
    third of it is free, the transport's own buffer stands still.
    """
    sock = transport.get_extra_info("socket")
    try:
        queued = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4))
    except OSError:  # not Linux, or closed
        queued = bytes(4)
    return transport.get_write_buffer_size() + int.from_bytes(queued, sys.byteorder)
