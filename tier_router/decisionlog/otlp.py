"""An OpenTelemetry collector: one log record for each decision, as OTLP over HTTP.

The protocol and its messages are stable; the SDK's own logs API is not (its modules still begin
with an underscore, and its classes were renamed between 1.27 and 1.45), so it is not used.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence

import msgspec
import requests
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs, SeverityNumber
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.util.re import parse_env_headers

from tier_router.config.log import LogCollector
from tier_router.decisionlog.record import Record
from tier_router.decisionlog.sink import Lost

EVENT = "tier_router.decision"
TIMEOUT = 5.0
"""Seconds for one batch."""
LATER = frozenset({429, 502, 503, 504})
"""Statuses after which OTLP's clients try again (OTLP 1.0, "Retryable Response Codes")."""
GOOD = frozenset({"done", "abandoned", ""})
"""Outcomes that are no failure."""


class Otlp:
    """Sends each batch as one request."""

    name = "otel"
    linger = 1.0

    def __init__(self, settings: LogCollector) -> None:
        self._url = f"{settings.endpoint.rstrip('/')}/v1/logs"
        self._resource = resource_pb2.Resource(attributes=_attributes(resource().attributes))
        self._encoder = msgspec.json.Encoder()
        self._session: requests.Session | None = None
        self._pid: int | None = None

    def write(self, records: Sequence[Record]) -> None:
        """Sends them; raises Lost."""
        scope = ScopeLogs(
            scope=InstrumentationScope(name="tier_router"),
            log_records=[self._of(record) for record in records],
        )
        message = ExportLogsServiceRequest(
            resource_logs=[ResourceLogs(resource=self._resource, scope_logs=[scope])]
        )
        try:
            answer = self._connected().post(
                self._url, data=message.SerializeToString(), timeout=TIMEOUT, allow_redirects=False
            )
        except requests.RequestException as error:
            raise Lost(str(error), again=True) from None
        if answer.status_code >= 300:
            told = f"{answer.status_code} {answer.reason}"
            raise Lost(told, again=answer.status_code in LATER)

    def close(self) -> None:
        """Closes its connection."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _connected(self) -> requests.Session:
        if self._session is None or self._pid != os.getpid():
            self._pid = os.getpid()
            self._session = requests.Session()
            given = parse_env_headers(os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", ""), True)
            self._session.headers.update(given)
            self._session.headers["content-type"] = "application/x-protobuf"
        return self._session

    def _of(self, record: Record) -> LogRecord:
        """The line is the body; what one filters by are attributes, named as in the spans."""
        failed = record.outcome not in GOOD
        told: dict[str, object] = {
            "tier_router.request_id": record.id,
            "tier_router.door": record.door,
            "tier_router.tier": record.tier,
            "tier_router.replica": record.replica,
            "tier_router.reasons": ",".join(record.reasons),
            "tier_router.outcome": record.outcome,
            "tier_router.difficulty": record.difficulty,
            "tier_router.intent": record.intent,
            "tier_router.time_to_first_token": record.ttft,
            "gen_ai.request.model": record.asked,
            "gen_ai.response.model": record.model,
            "http.response.status_code": record.status,
        }
        return LogRecord(
            time_unix_nano=int(record.at * 1e9),
            observed_time_unix_nano=time.time_ns(),
            severity_number=_WARN if failed else _INFO,
            severity_text="WARN" if failed else "INFO",
            event_name=EVENT,
            body=AnyValue(string_value=self._encoder.encode(record).decode()),
            attributes=_attributes(told),
        )


_INFO = SeverityNumber.SEVERITY_NUMBER_INFO
_WARN = SeverityNumber.SEVERITY_NUMBER_WARN


def resource() -> Resource:
    """What this process is to a collector: what OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES
    say, by name `tier-router`."""
    found = Resource.create()
    if str(found.attributes[SERVICE_NAME]).startswith("unknown_service"):
        found = found.merge(Resource({SERVICE_NAME: "tier-router"}))
    return found


def _attributes(told: Mapping[str, object]) -> list[KeyValue]:
    """Those that say something."""
    return [
        KeyValue(key=key, value=_value(value))
        for key, value in told.items()
        if value not in ("", None)
    ]


def _value(value: object) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    return AnyValue(string_value=str(value))
