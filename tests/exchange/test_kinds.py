"""Every kind of Redis that `state` may name: with a password, over TLS, a Sentinel's master, a
cluster.  All are real servers on loopback."""

import asyncio
import contextlib
import socket
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tier_router.exchange import ExchangeError, exchange_of
from tier_router.ledger import Report

pytest.importorskip("redis", reason="the extra `redis` is not installed")


def free_port() -> int:
    """A port that nobody has, with one 10,000 above it for a cluster's own talk."""
    while True:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = int(taken.getsockname()[1])
        if port < 55_000:
            return port


@contextlib.contextmanager
def server(binary: str, folder: Path, *options: str, sentinel: str = "") -> Iterator[int]:
    """A server process on a port of its own."""
    port = free_port()
    command = [binary]
    if sentinel:
        file = folder / "sentinel.conf"
        file.write_text(sentinel)
        command += [str(file), "--sentinel"]
    command += ["--port", str(port), "--bind", "127.0.0.1", *options]
    if not sentinel:
        command += ["--save", ""]
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until_open(process, port)
        yield port
    finally:
        process.kill()
        process.wait()


def until_open(process: subprocess.Popen[bytes], port: int) -> None:
    for _ in range(500):
        assert process.poll() is None, "the server did not start"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.1):
            return
        time.sleep(0.01)
    raise AssertionError("the server does not listen")


async def two_hear_each_other(url: str) -> None:
    one, two = exchange_of(url), exchange_of(url)
    mine = Report({"a": 1}, {"a": 5.0}, {})
    try:
        await one.swap(mine)
        assert list(await two.swap(Report({}, {}, {}))) == [mine]
        await one.close()
        assert list(await two.swap(Report({}, {}, {}))) == []
    finally:
        await one.close()
        await two.close()


async def test_a_password(redis_binary: str, tmp_path: Path) -> None:
    with server(redis_binary, tmp_path, "--requirepass", "s3cret/x") as port:
        await two_hear_each_other(f"redis://:s3cret%2Fx@127.0.0.1:{port}/0")
        wrong = exchange_of(f"redis://:guess@127.0.0.1:{port}/0")
        with pytest.raises(ExchangeError, match=r"(?i)password|auth"):
            await wrong.swap(Report({}, {}, {}))
        assert "guess" not in repr(wrong)
        await wrong.close()


async def test_a_cluster(redis_binary: str, tmp_path: Path) -> None:
    import redis.asyncio

    with server(redis_binary, tmp_path, "--cluster-enabled", "yes") as port:
        admin = redis.asyncio.Redis(port=port)
        await admin.execute_command("CLUSTER", "ADDSLOTS", *range(16_384))
        for _ in range(300):
            if b"cluster_state:ok" in await admin.execute_command("CLUSTER", "INFO"):
                break
            await asyncio.sleep(0.05)
        await admin.aclose()
        await two_hear_each_other(f"redis+cluster://127.0.0.1:{port}")


async def test_a_sentinels_master(redis_binary: str, tmp_path: Path) -> None:
    with server(redis_binary, tmp_path) as master:
        told = f"sentinel monitor main 127.0.0.1 {master} 1\n"
        with server(redis_binary, tmp_path, sentinel=told) as port:
            away = free_port()
            await two_hear_each_other(f"redis+sentinel://127.0.0.1:{away},127.0.0.1:{port}/main/0")
            lost = exchange_of(f"redis+sentinel://127.0.0.1:{port}/other/0")
            with pytest.raises(ExchangeError, match="other"):
                await lost.swap(Report({}, {}, {}))
            await lost.close()


@contextlib.asynccontextmanager
async def tls_before(port: int, context: ssl.SSLContext) -> AsyncIterator[int]:
    """Ends TLS in front of a server that speaks none."""

    async def carry(reader: Any, writer: Any) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(
            carry(reader, inner_writer), carry(inner_reader, writer), return_exceptions=True
        )

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as listening:
        yield listening.sockets[0].getsockname()[1]


async def test_tls(redis_binary: str, tmp_path: Path, certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with server(redis_binary, tmp_path) as plain:
        async with tls_before(plain, context) as port:
            await two_hear_each_other(f"rediss://localhost:{port}/0?ssl_ca_certs={certificate}")
            doubting = exchange_of(f"rediss://localhost:{port}/0")
            with pytest.raises(ExchangeError, match=r"(?i)certificate"):
                await doubting.swap(Report({}, {}, {}))
            await doubting.close()
