"""Hang-ups of peers that nobody reads from."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys

import pytest

from tests.http.tools import both_loops
from tier_router_proxy.http.hangups import HangUps

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="epoll's hang-up event")


def pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    return near, far


@pytest.mark.parametrize("how", ["fin", "rst", "half"])
@both_loops
async def test_called_back_once(how: str) -> None:
    hangups = HangUps(asyncio.get_running_loop())
    near, far = pair()
    calls: list[str] = []
    hangups.watch(near.fileno(), lambda: calls.append("near"))
    far.sendall(b"data is no hang-up")
    await asyncio.sleep(0.02)
    assert calls == []
    if how == "rst":
        far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if how == "half":
        far.shutdown(socket.SHUT_WR)
    else:
        far.close()
    await asyncio.sleep(0.02)
    assert calls == ["near"]
    assert repr(hangups) == "<HangUps 0 watched>"
    hangups.close()
    near.close()
    far.close()


@both_loops
async def test_forgotten_and_closed_descriptors() -> None:
    hangups = HangUps(asyncio.get_running_loop())
    hangups.forget(0)
    near, far = pair()
    fd = near.fileno()
    hangups.watch(fd, lambda: pytest.fail("forgotten"))
    hangups.watch(fd, lambda: pytest.fail("forgotten, too"))
    hangups.forget(fd)
    far.close()
    await asyncio.sleep(0.01)
    near.close()
    near, far = pair()
    hangups.watch(near.fileno(), lambda: pytest.fail("closed before"))
    fd = near.fileno()
    near.close()
    hangups.forget(fd)
    far.close()
    await asyncio.sleep(0.01)
    hangups.close()
    hangups.close()
