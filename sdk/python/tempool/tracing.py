"""Spans of calls, where the program has OpenTelemetry's API (the package opentelemetry). Nothing is imported before the first call that names the
span of its caller."""

from .frames import decode_headers

_api = None  # once looked for: the parts of the API, or False without it


class _Api:
    def __init__(self):
        from opentelemetry import context, trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self.attach, self.detach = context.attach, context.detach
        self.trace = trace
        self.extract = TraceContextTextMapPropagator().extract
        self.tracer = trace.get_tracer("tempool")


def start(name, headers):
    """Starts the span of a call and makes it the current one, if the encoded headers name the caller's. Returns what fail() and end() take; None for
    no span. Headers without b"traceparent" need not be passed. It never raises."""
    global _api
    if _api is None:
        try:
            _api = _Api()
        except Exception:  # the package is missing, or of another generation
            _api = False
    if not _api:
        return None
    try:
        fields = decode_headers(headers)
        parent = _api.extract({key: fields[key] for key in ("traceparent", "tracestate") if key in fields})
        if not _api.trace.get_current_span(parent).get_span_context().is_valid:
            return None
        span = _api.tracer.start_span(name.decode(errors="replace"), context=parent, kind=_api.trace.SpanKind.SERVER)
        return span, _api.attach(_api.trace.set_span_in_context(span, parent))
    except Exception:
        return None  # tracing fails no call


def fail(error):
    """Gives the current span, if a call has one, the status of an error that the caller gets."""
    if _api:
        try:
            span = _api.trace.get_current_span()
            span.record_exception(error)
            span.set_status(_api.trace.Status(_api.trace.StatusCode.ERROR, str(error)))
        except Exception:
            pass


def end(started):
    """Ends the span that start() has returned."""
    span, token = started
    try:
        _api.detach(token)
        span.end()
    except Exception:
        pass
