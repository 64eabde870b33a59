"""Connections to one upstream: reused, opened, retried, given up.

No queue and no limit of running calls: how many requests an upstream gets is the router's business.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from math import inf
from urllib.parse import urlsplit

from tier_router_proxy.http.calls import Call, Listener, Reason, UpstreamFailure
from tier_router_proxy.http.links import Link
from tier_router_proxy.http.messages import Headers, origin_form, request_head
from tier_router_proxy.http.timers import Wheel

__all__ = ["Call", "Listener", "Pool", "Reason", "UpstreamFailure"]

# Up to here one copy is cheaper than a second buffer in the write.
JOIN_LIMIT = 16 * 1024


class Pool:
    """Connections to one upstream; the newest idle one is used first."""

    def __init__(
        self,
        url: str,
        wheel: Wheel,
        *,
        connect_timeout: float = 5.0,
        # Below the 5 s after which uvicorn, and so vLLM, closes an idle connection.
        idle_timeout: float = 4.0,
        max_idle: int = 1024,
        head_limit: int = 65536,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.url = url
        self.wheel = wheel
        self.connect_timeout = connect_timeout
        self.idle_timeout = idle_timeout
        self.max_idle = max_idle
        self.head_limit = head_limit
        self.loop = wheel.loop
        self.active = 0
        self._address, self.host, self._base, secure = _parse(url)
        self.own_tls = tls is not None
        self._tls = (tls or ssl.create_default_context()) if secure else None
        # Oldest first.
        self._idle: dict[Link, None] = {}
        self._connecting: set[asyncio.Task[None]] = set()
        self._sweeper = wheel.timer(self._sweep)
        self._closed = False

    def __repr__(self) -> str:
        return f"<Pool {self.url}: {self.active} active, {self.idle} idle>"

    @property
    def idle(self) -> int:
        """Open connections that wait for a call."""
        return len(self._idle)

    def send(
        self,
        method: bytes,
        target: bytes,
        headers: Headers,
        body: bytes | list[bytes] | None,
        listener: Listener,
    ) -> Call:
        """Start a request; `listener` hears of it later, never before this returns.

        `headers` are those that `upstream_headers` gives: host and length are added here. Raises
        ValueError for a target or a header with a line break in it.
        """
        call = Call(self._message(method, target, headers, body), method == b"HEAD", listener)
        link = self._take()
        self.active += 1
        if link is None:
            self.connect(call)
        else:
            call.work_on(link)
            link.begin(call, reused=True)
        return call

    async def close(self) -> None:
        """Close idle connections now, and the others when their calls are over."""
        self._closed = True
        self._sweeper.cancel()
        for link in list(self._idle):
            link.cut()
        self._idle.clear()
        # Transports close their sockets in the next turn or two.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    # What links call.

    def connect(self, call: Call) -> None:
        """Send the call's request on a fresh connection."""
        link = Link(self)
        call.work_on(link)
        task = self.loop.create_task(self._connect(link))
        call.connecting = task
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    def give_back(self, link: Link) -> bool:
        """Keep a connection for later calls, if there is room."""
        if self._closed or len(self._idle) >= self.max_idle:
            return False
        link.since = self.loop.time()
        self._idle[link] = None
        if self._sweeper.due == inf:
            self._sweeper.set(self.idle_timeout)
        return True

    def forget(self, link: Link) -> None:
        """This connection is no longer of use."""
        self._idle.pop(link, None)

    def _take(self) -> Link | None:
        if not self._idle:
            return None
        oldest = self.loop.time() - self.idle_timeout
        while self._idle:
            link, _ = self._idle.popitem()
            if link.since > oldest and link.usable:
                return link
            link.cut()
        return None

    def _sweep(self) -> None:
        now = self.loop.time()
        for link in list(self._idle):
            left = link.since + self.idle_timeout - now
            if left > 0:
                self._sweeper.set(left)
                return
            del self._idle[link]
            link.cut()

    async def _connect(self, link: Link) -> None:
        host, port = self._address
        limit = self.connect_timeout
        try:
            async with asyncio.timeout(limit if 0 < limit < inf else None):
                await self.loop.create_connection(
                    lambda: link,
                    host,
                    port,
                    ssl=self._tls,
                    server_hostname=host if self._tls is not None else None,
                )
        except TimeoutError:
            link.not_connected(Reason.CONNECT_TIMEOUT, "no connection within the time limit")
        except (OSError, ValueError) as error:  # ValueError: a name that IDNA refuses
            link.not_connected(Reason.CONNECT, f"no connection: {_short(error)}")

    def _message(
        self, method: bytes, target: bytes, headers: Headers, body: bytes | list[bytes] | None
    ) -> bytes | list[bytes]:
        if self._base or not target.startswith(b"/"):
            target = origin_form(target)
            if target.startswith(b"/"):
                target = self._base + target
        if isinstance(body, list):
            length = sum(map(len, body))
            return [request_head(method, target, self.host, headers, length), *body]
        if body is None:
            return request_head(method, target, self.host, headers, None)
        head = request_head(method, target, self.host, headers, len(body))
        return head + body if len(body) <= JOIN_LIMIT else [head, body]


def _parse(url: str) -> tuple[tuple[str, int], bytes, bytes, bool]:
    """The address to connect to, the Host header, the base path, and whether it is TLS."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"not an http:// or https:// URL with a host: {url!r}")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError(f"URL with more than scheme, host, port and path: {url!r}")
    secure = parts.scheme == "https"
    default = 443 if secure else 80
    name = parts.hostname
    port = parts.port or default
    shown = f"[{name}]" if ":" in name else name
    if port != default:
        shown += f":{port}"
    host = shown.encode("ascii" if shown.isascii() else "idna")
    return (name, port), host, parts.path.rstrip("/").encode("ascii"), secure


def _short(error: Exception) -> str:
    """What a person needs of a connect error, without addresses and error numbers."""
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, socket.gaierror):
        return "host name not found"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate refused ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        return "TLS failed"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return "failed"
