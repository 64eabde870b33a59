"""An OpenTelemetry collector on loopback."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """Takes OTLP over HTTP, and keeps the spans and the log records."""

    def __init__(self) -> None:
        self.url = ""
        self.statuses: list[int] = []
        """What the next requests get in place of a 200; what they carry is not kept."""
        self.paths: list[str] = []
        self.fields: list[dict[str, str]] = []
        self.services: set[str] = set()
        self.spans: list[Any] = []
        self.logs: list[Any] = []
        self.raw = b""
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.writers.append(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode().strip().split("\r\n")
                fields = dict(line.lower().split(": ", 1) for line in lines)
                body = await reader.readexactly(int(fields["content-length"]))
                if fields.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                self.paths.append(first.split()[1])
                self.fields.append(fields)
                status = self.statuses.pop(0) if self.statuses else 200
                if status == 200:
                    self._keep(self.paths[-1], body)
                writer.write(b"HTTP/1.1 %d Told\r\ncontent-length: 0\r\n\r\n" % status)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _keep(self, path: str, body: bytes) -> None:
        self.raw += body
        if path == "/v1/logs":
            for told in ExportLogsServiceRequest.FromString(body).resource_logs:
                self._served(told.resource)
                for scope in told.scope_logs:
                    self.logs += scope.log_records
        else:
            for traced in ExportTraceServiceRequest.FromString(body).resource_spans:
                self._served(traced.resource)
                for spans in traced.scope_spans:
                    self.spans += spans.spans

    def _served(self, resource: Any) -> None:
        told = {each.key: each.value.string_value for each in resource.attributes}
        self.services |= {told["service.name"]} if "service.name" in told else set()


def said(told: Any) -> dict[str, Any]:
    """The attributes of a span or of a log record."""
    return {
        each.key: getattr(each.value, each.value.WhichOneof("value")) for each in told.attributes
    }


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    """A collector that takes what comes."""
    found = Collector()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield found
    server.close()
    for writer in found.writers:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
