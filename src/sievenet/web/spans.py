"""An event's way as a trace of OpenTelemetry, for whoever has a collector.

    stock: symbol="IBM", …                     the event, from where it comes in
    ├─ switch s5                               each switch that it passes, with the flows that decide there
    │  └─ switch s4
    │     └─ client watcher-1  delivered       who gets it, and who filters it out again
    └─ …

The event is not sent (as with `sievenet trace`), so that spans have an order and no lengths that mean anything: each
hop takes a microsecond. Needs the extra `otel`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Span, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.trace import format_trace_id, set_span_in_context

from sievenet.errors import Unavailable

__all__ = ["Step", "export", "steps_of"]

_HOP: Final = 1000  # nanoseconds


class Step(NamedTuple):
    """One span: its name, which one it is part of (a position, -1 for the event itself), how deep, what is said."""

    name: str
    parent: int
    depth: int
    attributes: dict[str, str | int | bool | list[str]]


def steps_of(found: Mapping[str, Any]) -> list[Step]:
    """The steps of a daemon's answer to `trace`, parents first."""
    steps: list[Step] = []
    #: Which step leads to a switch.
    at: dict[str, int] = {}
    wanted = {each["client"]: each["subscriptions"] for each in found["delivered"]}
    for hop in found["hops"]:
        own = len(steps)
        flows = [str(flow) for flow in hop["flows"]]
        attributes: dict[str, str | int | bool | list[str]] = {"switch": hop["switch"], "flows": flows}
        steps.append(Step(f"switch {hop['switch']}", at.get(hop["switch"], -1), hop["depth"], attributes))
        for out in hop["out"]:
            if not out["to"] or out["stopped"]:
                continue
            at[out["to"]] = own
            if out["to"] in wanted or out["to"] in found["false_positives"]:
                outcome = "delivered" if out["to"] in wanted else "false positive"
                steps.append(Step(f"client {out['to']}", own, hop["depth"] + 1, {"outcome": outcome}))
    return steps


def export(found: Mapping[str, Any], endpoint: str, timeout: float = 10.0) -> str:
    """Send an event's way to a collector (OTLP over HTTP); the trace's identifier."""
    exporter = _Exporter(endpoint=endpoint, timeout=timeout)
    provider = TracerProvider(resource=Resource.create({"service.name": "sievenet"}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("sievenet")
    begin = time.time_ns()
    steps = steps_of(found)
    codes = [str(code) for code in found["codes"]]
    root = tracer.start_span(found["event"], start_time=begin, attributes={"from": found["from"], "codes": codes})
    spans: list[Span] = []
    for step in steps:
        parent = root if step.parent < 0 else spans[step.parent]
        started = tracer.start_span(
            step.name,
            context=set_span_in_context(parent),
            start_time=begin + step.depth * _HOP,
            attributes=step.attributes,
        )
        assert isinstance(started, Span)
        spans.append(started)
    deepest = 1 + max((step.depth for step in steps), default=0)
    for span in reversed(spans):
        span.end(begin + deepest * _HOP)
    root.end(begin + (deepest + 1) * _HOP)
    provider.shutdown()
    if exporter.failed:
        raise Unavailable(
            f"No collector takes traces at {endpoint} (OTLP over HTTP, such as http://localhost:4318/v1/traces)"
        )
    return format_trace_id(root.get_span_context().trace_id)


class _Exporter(OTLPSpanExporter):
    """Remembers whether something could not be sent."""

    failed = False

    def export(self, spans: Any) -> SpanExportResult:
        """Send spans."""
        if self.failed:
            return SpanExportResult.FAILURE
        result = super().export(spans)
        self.failed = result is not SpanExportResult.SUCCESS
        return result
