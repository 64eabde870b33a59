"""What one worker asks the others of its host: over Unix sockets in the folder that they share.

A question and its answer are bytes behind their length; an empty answer says "not I".
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The variable that names the folder: the client library of Prometheus keeps the workers' counters
there too, for whichever of them is scraped."""

ASKED_SECONDS = 2.0
"""How long a worker may take to answer another."""

LONGEST = 1024 * 1024
"""Bytes of a question or an answer."""

_LENGTH = struct.Struct("!I")

Answer = Callable[[bytes], Awaitable[bytes]]


class Siblings:
    """The other workers whose sockets lie in `folder`, which only their owner may enter."""

    def __init__(self, folder: Path, answer: Answer) -> None:
        self._folder, self._answer = folder, answer
        self._own = folder / f"{os.getpid()}.sock"
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Answers from now on."""
        self._server = await asyncio.start_unix_server(self._serve, self._own)

    async def stop(self) -> None:
        """Answers no more."""
        if self._server is not None:
            self._server.close()
            self._own.unlink(missing_ok=True)

    async def ask(self, question: bytes) -> bytes:
        """The first answer of another worker that is not empty, else an empty one."""
        for path in sorted(self._folder.glob("*.sock")):
            if path == self._own:
                continue
            with contextlib.suppress(OSError, EOFError, TimeoutError):  # it has ended, or is slow
                async with asyncio.timeout(ASKED_SECONDS):
                    answer = await _asked(path, question)
                if answer:
                    return answer
        return b""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError, EOFError):
            writer.write(_framed(await self._answer(await _read(reader))))
            await writer.drain()


async def _asked(path: Path, question: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    with contextlib.closing(writer):
        writer.write(_framed(question))
        return await _read(reader)


def _framed(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


async def _read(reader: asyncio.StreamReader) -> bytes:
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if length > LONGEST:
        raise EOFError
    return await reader.readexactly(length)
