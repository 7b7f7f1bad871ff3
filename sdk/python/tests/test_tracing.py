import importlib.util
import json
import time
import unittest

from tempool import frames

from .host import TIMEOUT, Host
from .test_worker import each_mode

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEADERS = {"traceparent": "00-%s-%s-01" % (TRACE, PARENT), "tracestate": "vendor=1"}
UNSAMPLED = dict(HEADERS, traceparent="00-%s-%s-00" % (TRACE, PARENT))
needs_opentelemetry = unittest.skipUnless(importlib.util.find_spec("opentelemetry"), "needs the packages opentelemetry-api and opentelemetry-sdk")

SPANS = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
ended = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ended))
trace.set_tracer_provider(provider)

def here():
    span = trace.get_current_span().get_span_context()
    return [format(span.trace_id, "032x"), format(span.span_id, "016x")]

@tempool.method
def current(): return here()
@tempool.method
def inner():
    with trace.get_tracer("test").start_as_current_span("inner") as span:
        return [span.is_recording(), here()[0], span.get_span_context().trace_state.get("vendor")]
@tempool.method
async def inner_async(): return inner()
@tempool.method
async def current_async(): return here()
@tempool.method
def current_streamed(): yield here()
@tempool.method
def fail(): raise tempool.Error("not today")
@tempool.method
def spans():
    found = [[s.name, format(s.context.span_id, "016x"), s.parent and format(s.parent.span_id, "016x"), s.kind.name, s.status.status_code.name] for s in ended.get_finished_spans()]
    if found: ended.clear()  # one that ends meanwhile must stay
    return found
"""


# A worker whose method f answers with the number of calls that took the longer path, this one included.
COUNT_LONGER = """
import tempool
from tempool import serial
serve, longer = serial.Serial._serve, []
def counted(*args):
    longer.append(1)
    serve(*args)
serial.Serial._serve = counted
@tempool.method
def f(): return [len(longer), tempool.context().headers['traceparent']]
"""


def call(host, method, headers=None):
    """Calls a method and returns its answer, or its error."""
    host.send(frames.REQUEST, 1, method.encode(), headers)
    payload = b""
    while True:
        frame = host.read()
        payload += frame[5]
        if frame[0] != frames.CHUNK:
            return json.loads(payload)


def ended(host):
    """Waits for the spans that have ended since the last call; a call's own may end after its answer."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        found = call(host, "spans")
        if found or time.monotonic() > deadline:
            return found


class Tracing(unittest.TestCase):
    @each_mode
    def test_a_program_without_opentelemetry_serves_traced_calls(self, start):
        with start("sys.modules['opentelemetry'] = None\n"
                   "@tempool.method\ndef parent(): return tempool.context().headers['traceparent']\n"
                   "@tempool.method\nasync def parent_async(): return tempool.context().headers['traceparent']\n"
                   "@tempool.method\ndef fail(): raise tempool.Error('not today')") as host:
            for method in "parent", "parent_async":
                self.assertEqual(call(host, method, HEADERS), HEADERS["traceparent"])
            self.assertEqual(call(host, "fail", HEADERS)["message"], "not today")

    def test_without_opentelemetry_traced_calls_take_the_shortest_path(self):
        with Host("import sys\nsys.modules['opentelemetry'] = None\n" + COUNT_LONGER + "tempool.run()") as host:
            for _ in range(3):  # the first one looks for OpenTelemetry
                self.assertEqual(call(host, "f", HEADERS), [1, HEADERS["traceparent"]])

    @each_mode
    def test_a_call_without_a_trace_imports_nothing(self, start):
        with start("@tempool.method\ndef imported(): return 'opentelemetry' in sys.modules") as host:
            self.assertFalse(call(host, "imported", {"x-other": "1"}))

    @needs_opentelemetry
    @each_mode
    def test_a_call_that_is_not_sampled_runs_below_its_caller_without_a_span(self, start):
        with start(SPANS) as host:
            for _ in range(2):  # the first one looks for OpenTelemetry
                for method in "current", "current_async", "current_streamed":
                    self.assertEqual(call(host, method, UNSAMPLED), [TRACE, PARENT])
                for method in "inner", "inner_async":
                    self.assertEqual(call(host, method, UNSAMPLED), [False, TRACE, "1"])
                self.assertEqual(call(host, "fail", UNSAMPLED)["message"], "not today")
                self.assertEqual(call(host, "current"), ["0" * 32, "0" * 16])
            self.assertEqual(call(host, "spans"), [])

    @needs_opentelemetry
    def test_a_call_that_is_not_sampled_takes_the_shortest_path(self):
        with Host(COUNT_LONGER + "tempool.run()") as host:
            for _ in range(3):  # the first one looks for OpenTelemetry
                self.assertEqual(call(host, "f", UNSAMPLED), [1, UNSAMPLED["traceparent"]])
            self.assertEqual(call(host, "f", HEADERS)[0], 2)

    @needs_opentelemetry
    @each_mode
    def test_a_handler_runs_in_a_span_below_its_caller(self, start):
        with start(SPANS) as host:
            for method in "current", "current_async", "current_streamed":
                trace, span = call(host, method, HEADERS)
                self.assertEqual(trace, TRACE)
                self.assertEqual(ended(host), [[method, span, PARENT, "SERVER", "UNSET"]])
            call(host, "fail", HEADERS)
            self.assertEqual([(name, status) for name, _, _, _, status in ended(host)], [("fail", "ERROR")])
            for headers in None, {"traceparent": "00-1-2-3"}:
                self.assertEqual(call(host, "current", headers)[0], "0" * 32)
            self.assertEqual(call(host, "spans"), [])
