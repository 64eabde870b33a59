"""The HTTP/1.1 server: it listens, counts, drains and closes.

A handler is called once per complete request, synchronously on the loop; it answers through the
exchange, at once or later. There is no task per connection or request.
"""

from __future__ import annotations

import asyncio
import socket
import ssl

from tier_router_proxy.http.answers import plain_refusal
from tier_router_proxy.http.connection import Connection, log
from tier_router_proxy.http.exchange import Exchange, Handler
from tier_router_proxy.http.requests import Limits
from tier_router_proxy.http.shared import Refuse, Shared
from tier_router_proxy.http.timers import Wheel

__all__ = ["Exchange", "Handler", "Server"]

_DEFAULT_LIMITS = Limits()
# Turns of the loop in which whatever is readable now has been read: one to poll, one to spare.
_TURNS = 3


class Server:
    """Serves requests on any number of listening sockets."""

    def __init__(
        self,
        handler: Handler,
        limits: Limits = _DEFAULT_LIMITS,
        wheel: Wheel | None = None,
        refuse: Refuse | None = None,
    ) -> None:
        self._handler = handler
        self._limits = limits
        self._wheel = wheel
        self._refuse = refuse or plain_refusal
        self._shared: Shared | None = None
        self._listeners: list[
            tuple[asyncio.AbstractServer, socket.socket, ssl.SSLContext | None]
        ] = []

    def __repr__(self) -> str:
        return f"<Server {self.connections} connections, {self.active} active>"

    @property
    def limits(self) -> Limits:
        """What one client may ask for."""
        return self._limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        """Use other limits, on open connections from their next request."""
        self._limits = limits
        if self._shared is not None:
            self._shared.limits = limits

    @property
    def connections(self) -> int:
        """Open client connections."""
        return len(self._shared.open) if self._shared is not None else 0

    @property
    def active(self) -> int:
        """Exchanges that are not finished."""
        return self._shared.active if self._shared is not None else 0

    async def listen(
        self,
        host: str,
        port: int,
        *,
        backlog: int = 4096,
        reuse_port: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> tuple[str, int]:
        """Serve on this address too; gives the bound one (of several addresses, the first)."""
        loop = asyncio.get_running_loop()
        if self._shared is None:
            wheel = self._wheel or Wheel(loop)
            self._shared = Shared(self._handler, self._limits, self._refuse, wheel, loop)
        shared = self._shared
        sockets = await _bind(loop, host, port, reuse_port)
        name = sockets[0].getsockname()
        while sockets:
            # The loop listens again with its own default of 100 unless told otherwise; a burst of
            # connections then waits a second for a SYN to be sent anew.
            try:
                listener = await loop.create_server(
                    lambda: Connection(shared), sock=sockets[0], backlog=backlog, ssl=tls
                )
            except OSError:
                for sock in sockets:
                    sock.close()
                raise
            self._listeners.append((listener, sockets.pop(0), tls))
        return str(name[0]), int(name[1])

    async def drain(self, seconds: float) -> bool:
        """Stop listening and let what runs end; whether all of it did within `seconds`.

        Connections in the backlog are still served. Further answers say `connection: close`,
        idle connections are closed, and what is not over in time is cut.
        """
        shared = self._shared
        if shared is None:
            return True
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        shared.draining = True
        await self._stop_listening(accept=True)
        for connection in list(shared.open):
            connection.wind_up()
        await _emptied(shared, until - loop.time())
        ended = not any(connection.unfinished for connection in shared.open)
        await self.close()
        return ended

    async def close(self) -> None:
        """Stop listening and cut every connection at once."""
        shared = self._shared
        if shared is None:
            return
        shared.draining = True
        await self._stop_listening(accept=False)
        for connection in list(shared.open):
            connection.cut()
        # A cut connection is gone within a few turns; the limit is for a loop that is stuck.
        await _emptied(shared, 1.0)
        shared.hangups.close()

    async def _stop_listening(self, *, accept: bool) -> None:
        listeners, self._listeners = self._listeners, []
        if not listeners:
            return
        loop = asyncio.get_running_loop()
        spares = [(sock.dup(), tls) for _, sock, tls in listeners] if accept else []
        for _, sock, _ in listeners:
            # Stock asyncio drops connections between their accept and their first turn if the
            # server closes in between, so accepting stops first (uvloop has no such gap).
            loop.remove_reader(sock.fileno())
        # Also, requests that are here already show which connections are not idle.
        await _turns()
        for listener, _, _ in listeners:
            listener.close()
        await asyncio.gather(*(self._adopt(_backlog(spare), tls) for spare, tls in spares))

    async def _adopt(self, clients: list[socket.socket], tls: ssl.SSLContext | None) -> None:
        """Serve connections that were accepted here instead of by the loop."""
        loop = asyncio.get_running_loop()
        shared = self._shared
        assert shared is not None
        for client in clients:
            client.setblocking(False)
            try:
                await loop.connect_accepted_socket(lambda: Connection(shared), client, ssl=tls)
            except OSError as error:  # a handshake that failed
                log.info("a waiting connection was not served: %s", error)


def _backlog(sock: socket.socket) -> list[socket.socket]:
    """The connections that wait in a listening socket, which then closes: it would reset them.

    In one go, without the loop: connections that keep coming would keep it open.
    """
    waiting: list[socket.socket] = []
    with sock:
        while True:
            try:
                waiting.append(sock.accept()[0])
            except BlockingIOError:
                return waiting
            except OSError as error:  # out of descriptors: the rest is lost
                log.warning("waiting connections were not accepted: %s", error)
                return waiting


async def _bind(
    loop: asyncio.AbstractEventLoop, host: str, port: int, reuse_port: bool
) -> list[socket.socket]:
    """Bound sockets, one for each address of the host."""
    found = await loop.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            sock = socket.socket(family, kind, protocol)
            sockets.append(sock)
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if reuse_port:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            # Inherited by accepted sockets, for loops that do not set it.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Port 0 means one port for all addresses: the first socket chooses.
            chosen = port or (sockets[0].getsockname()[1] if len(sockets) > 1 else 0)
            sock.bind((address[0], chosen, *address[2:]))
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return sockets


async def _turns() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)


async def _emptied(shared: Shared, seconds: float) -> None:
    """Wait until no connection is open, at most `seconds`."""
    if not shared.open:
        return
    shared.emptied.clear()
    try:
        async with asyncio.timeout(max(seconds, 0)):
            await shared.emptied.wait()
    except TimeoutError:
        pass  # the caller sees what is left
