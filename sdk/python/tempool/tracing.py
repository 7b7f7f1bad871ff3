"""Spans of calls, where the program has OpenTelemetry's API (the package opentelemetry). Nothing is imported before the first call that names the
span of its caller.

A call whose caller does not sample its trace gets no span, since nobody would record it. The caller's span is then the current one, so that what the
handler does, and what it calls, is not sampled either."""

from __future__ import annotations

import functools
import re

from .frames import decode_headers

TYPE_CHECKING = False  # the import of typing would slow the start of every worker
if TYPE_CHECKING:
    from typing import Any, Callable, Optional, Tuple

_UNSAMPLED = re.compile(rb"\x00\x0b\x00\x37traceparent00-[0-9a-f]{32}-[0-9a-f]{16}-0[02]")  # a header with its lengths

_api: Any = None  # once it was found: the parts of the API
missing = False  # once the import has failed: calls need not be passed to start()


class _Api:
    def __init__(self) -> None:
        from opentelemetry import context, trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self.attach, self.detach = context.attach, context.detach
        self.trace = trace
        self.extract = TraceContextTextMapPropagator().extract
        self.tracer = trace.get_tracer("tempool")

        class Caller(trace.NonRecordingSpan):  # type: ignore[misc]
            """The span of a caller. It is decoded when somebody asks for it, which most handlers do not."""

            _context: Any

            def __init__(self, headers: bytes) -> None:
                super().__init__(None)
                self._headers = headers

            def get_span_context(self) -> Any:
                if self._context is None:
                    try:
                        self._context = trace.get_current_span(api.parent(self._headers)).get_span_context()
                    except Exception:
                        self._context = trace.INVALID_SPAN_CONTEXT  # tracing fails no call
                return self._context

        api, self.caller = self, Caller

    def parent(self, headers: bytes) -> Any:
        """Returns the context that encoded headers name."""
        fields = decode_headers(headers)
        return self.extract({key: fields[key] for key in ("traceparent", "tracestate") if key in fields})

    def attach_caller(self, headers: bytes) -> Any:
        """Makes the caller's span the current one. Returns what detach() takes."""
        return self.attach(self.trace.set_span_in_context(self.caller(headers)))


def unsampled(headers: bytes) -> bool:
    """Whether the encoded headers name a caller that does not sample its trace, so that the call may run by below() instead of between start() and
    end(). False before the first start()."""
    return _api is not None and _UNSAMPLED.search(headers) is not None


def below(headers: bytes, call: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Returns a function that runs call, with its one argument, below a caller that does not sample its trace."""
    return functools.partial(_run_below, headers, call)


def _run_below(headers: bytes, call: Callable[[bytes], Any], body: bytes) -> Any:
    try:
        token = _api.attach_caller(headers)
    except Exception:
        return call(body)
    try:
        return call(body)
    finally:
        _api.detach(token)


def start(name: bytes, headers: bytes) -> Optional[Tuple[Any, Any]]:
    """Starts the span of a call and makes it the current one, if the encoded headers name the caller's. Returns what fail() and end() take; None for
    nothing to end. Headers without b"traceparent" need not be passed. It never raises."""
    global _api, missing
    if missing:
        return None
    if _api is None:
        try:
            _api = _Api()
        except Exception:  # the package is missing, or of another generation
            missing = True
            return None
    try:
        if unsampled(headers):
            return None, _api.attach_caller(headers)
        parent = _api.parent(headers)
        if not _api.trace.get_current_span(parent).get_span_context().is_valid:
            return None
        span = _api.tracer.start_span(name.decode(errors="replace"), context=parent, kind=_api.trace.SpanKind.SERVER)
        return span, _api.attach(_api.trace.set_span_in_context(span, parent))
    except Exception:
        return None  # tracing fails no call


def fail(error: BaseException) -> None:
    """Gives the current span, if a call has one, the status of an error that the caller gets."""
    if _api:
        try:
            span = _api.trace.get_current_span()
            span.record_exception(error)
            span.set_status(_api.trace.Status(_api.trace.StatusCode.ERROR, str(error)))
        except Exception:
            pass


def end(started: Tuple[Any, Any]) -> None:
    """Ends what start() has returned."""
    span, token = started
    try:
        _api.detach(token)
        if span is not None:
            span.end()
    except Exception:
        pass
