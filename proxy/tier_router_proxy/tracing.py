"""OpenTelemetry spans: one a request, after the GenAI conventions; nothing of its text."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tier_router.config.server import Otel
from tier_router.decide import Decision
from tier_router.errors import ConfigError
from tier_router.pace import Usage
from tier_router_proxy.http.messages import Headers

if TYPE_CHECKING:
    from opentelemetry.trace import Span

CONTEXT = (b"traceparent", b"tracestate")
EXPORT_SECONDS = 5.0
"""How long one export may take, and so what a collector that is away costs at the end."""
_OPERATIONS = {b"/v1/completions": "text_completion", b"/v1/embeddings": "embeddings"}
"""What is not `chat` of the conventions' operations."""


class Tracing:
    """Sends the spans of one sidecar to a collector, from a thread of its own."""

    def __init__(self, otel: Otel) -> None:
        """Raises ConfigError where the extra `otel` is not installed."""
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor

            from tier_router.decisionlog.otlp import resource
        except ImportError:
            raise ConfigError(
                "spans need OpenTelemetry: pip install 'tier-router[otel]'", key="server.otel"
            ) from None
        self._provider = TracerProvider(resource=resource())
        exporter = OTLPSpanExporter(
            endpoint=f"{otel.endpoint.rstrip('/')}/v1/traces", timeout=EXPORT_SECONDS
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("tier_router")

    def begin(
        self, headers: Headers, path: bytes, model: str | None, stream: bool, ago: float
    ) -> Spanned:
        """The span of a request that came `ago` seconds ago; a child of its `traceparent`."""
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        given = {n.decode(): v.decode("latin-1") for n, v in headers if n in CONTEXT}
        operation = _OPERATIONS.get(path, "chat")
        span = self._tracer.start_span(
            f"{operation} {model or 'auto'}",
            context=TraceContextTextMapPropagator().extract(given),
            kind=SpanKind.SERVER,
            start_time=time.time_ns() - int(ago * 1e9),
            attributes={
                "gen_ai.operation.name": operation,
                "gen_ai.request.model": model or "auto",
                "gen_ai.request.stream": stream,
            },
        )
        return Spanned(span)

    def close(self) -> None:
        """Sends what waits; takes EXPORT_SECONDS at most or a little longer."""
        self._provider.shutdown()


class Spanned:
    """A request's span."""

    __slots__ = ("_span",)

    def __init__(self, span: Span) -> None:
        self._span = span

    def passed_on(self, headers: Headers) -> Headers:
        """Headers for a replica, whose own spans become children of this one."""
        from opentelemetry.trace import set_span_in_context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        context: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(context, set_span_in_context(self._span))
        kept = [field for field in headers if field[0] not in CONTEXT]
        return kept + [(name.encode(), value.encode()) for name, value in context.items()]

    def end(
        self,
        decision: Decision | None,
        outcome: str,
        status: int | None,
        usage: Usage | None,
        ttft: float | None,
        attempts: int,
    ) -> None:
        """Says what became of the request; called once."""
        from opentelemetry.trace import StatusCode

        span = self._span
        told: dict[str, str | int | float | None] = {
            "tier_router.outcome": outcome,
            "tier_router.attempts": attempts,
            "tier_router.time_to_first_token": ttft,
            "http.response.status_code": status,
        }
        if decision is not None:
            told |= {
                "gen_ai.response.model": decision.model,
                "tier_router.tier": decision.tier,
                "tier_router.replica": decision.replica,
                "tier_router.reasons": ",".join(decision.reasons),
                "tier_router.difficulty": decision.difficulty,
                "tier_router.intent": decision.intent,
            }
        if usage is not None:
            told["gen_ai.usage.input_tokens"] = usage.prompt
            told["gen_ai.usage.output_tokens"] = usage.completion
        span.set_attributes({name: value for name, value in told.items() if value is not None})
        if outcome not in ("done", "abandoned"):
            span.set_attribute("error.type", outcome)
            span.set_status(StatusCode.ERROR)
        span.end()
