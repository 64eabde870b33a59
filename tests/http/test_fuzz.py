"""Bytes that nobody should send, to a server over a real socket: it lives on and answers."""

from __future__ import annotations

import asyncio
import random

from tests.http.tools import both_loops, chunk, client, echo, get, post, serving, until
from tier_router_proxy.http import Limits

GOOD = [
    get(),
    post(b"hello"),
    post(b"hello", "Expect: 100-continue\r\n"),
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    + chunk(b"x")
    + b"0\r\n\r\n",
    get(more="Connection: upgrade\r\nUpgrade: h2c\r\n"),
    b"HEAD / HTTP/1.0\r\n\r\n",
    get() * 3,
]
SPICE = [b"\r\n", b"\n", b"\r", b"\0", b" ", b":", b"\xff", b"0", b"-1", b"HTTP/1.1", b"x" * 3000]
ROUNDS = 300


def mutated(random_: random.Random) -> bytes:
    data = bytearray(random_.choice(GOOD))
    for _ in range(random_.randint(1, 4)):
        at = random_.randint(0, len(data))
        match random_.randint(0, 3):
            case 0:
                data[at:at] = random_.choice(SPICE)
            case 1:
                del data[at : at + random_.randint(1, 20)]
            case 2:
                data[at:at] = random_.randbytes(random_.randint(1, 30))
            case _:
                data += random_.choice(GOOD)
    return bytes(data)


@both_loops
async def test_a_server_survives_anything() -> None:
    random_ = random.Random(1)
    limits = Limits(head=2048, body=2048, head_timeout=0.05, body_timeout=0.05, linger=0.05)

    async def one(data: bytes, cut: int, leave: int) -> None:
        async with client(site.address) as c:
            try:
                await c.send(data[:cut])
                await asyncio.sleep(0)
                await c.send(data[cut:])
                if leave == 0:
                    return
                if leave == 1:
                    c.reset()
                    return
                async with asyncio.timeout(0.2):
                    while await c.recv():
                        pass
            except (ConnectionError, TimeoutError):
                pass

    async with serving(echo, limits=limits) as site:
        for _ in range(ROUNDS // 30):
            batch = []
            for _ in range(30):
                data = mutated(random_)
                cut, leave = random_.randint(0, len(data)), random_.randint(0, 3)
                batch.append(one(data, cut, leave))
            await asyncio.gather(*batch)
        async with client(site.address) as c:
            await c.send(post(b"still there?"))
            assert (await c.answer()).body == b"POST still there?"
        await until(lambda: site.server.connections == 0)
        assert site.server.active == 0
