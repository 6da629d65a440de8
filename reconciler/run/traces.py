"""Send the spans of a run to a collector of OpenTelemetry: one trace, of stages and of repositories in them.

The optional extra `otel` has the library; without it, or without a collector, nothing is sent.
"""

from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from reconciler import __version__
from reconciler.base.timing import SpanKind, TimeSpan

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

    from reconciler.run.measuring import Recorder

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
Redact = Callable[[str], str]
_NANOSECONDS = 1_000_000_000


def is_wanted(environment: Mapping[str, str]) -> bool:
    """Tell whether the environment names a collector, and the library is there."""
    if not any(environment.get(name) for name in _ENDPOINTS):
        return False
    is_off = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    # A parent that is missing makes `find_spec` raise.
    return not is_off and bool(find_spec("opentelemetry") and find_spec("opentelemetry.sdk"))


def export(recorder: "Recorder", redact: Redact, command: str) -> None:
    """Send the spans of a run; whatever fails is logged by the library and changes no exit code."""
    provider = make_provider()
    spans = [span._replace(name=redact(span.name), where=redact(span.where)) for span in recorder.spans]
    add_spans(provider, command, spans, recorder.start, recorder.timings().seconds)
    provider.shutdown()


def make_provider() -> "TracerProvider":
    """Return a provider that sends to the collector that the environment names."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 - optional
        OTLPSpanExporter,
    )
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - optional
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - optional
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - optional

    resource = Resource.create({"service.name": "reconciler", "service.version": __version__})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def add_spans(
    provider: "TracerProvider", command: str, spans: Iterable[TimeSpan], start: float, seconds: float
) -> None:
    """Add the spans of one run to a provider: the run, in it its stages, and in these what they did.

    A span is in the stage that was under way when it began.
    """
    from opentelemetry.trace import set_span_in_context  # noqa: PLC0415 - optional

    spans = list(spans)
    tracer = provider.get_tracer("reconciler", __version__)
    run = tracer.start_span(f"reconciler {command}", start_time=_time(start))
    inside_run = set_span_in_context(run)
    stages = []
    for span in spans:
        if span.kind is SpanKind.STAGE:
            made = tracer.start_span(
                span.name, inside_run, attributes={"items": span.items}, start_time=_time(span.start)
            )
            stages.append((span.start, span.start + span.seconds, made))
    for span in spans:
        if span.kind is SpanKind.STAGE:
            continue
        stage = next((made for begin, end, made in stages if begin <= span.start <= end), run)
        made = tracer.start_span(
            f"{span.kind} {span.name}" if span.kind in {SpanKind.PACKAGE, SpanKind.FUNCTION} else span.name,
            set_span_in_context(stage),
            attributes={"repository": span.where} if span.where else {},
            start_time=_time(span.start),
        )
        made.end(_time(span.start + span.seconds))
    for _, end, made in stages:
        made.end(_time(end))
    run.end(_time(start + seconds))


def _time(seconds: float) -> int:
    return int(seconds * _NANOSECONDS)
