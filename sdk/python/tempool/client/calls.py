"""Calls on a pool or under a lease, and their answers."""

import json
import time
from urllib.parse import quote

from .errors import Invalid, WorkerError

MAX_TIMEOUT = 24 * 3600.0  # seconds; the gateways' limit for a call


class Answer:
    """A worker's answer: body (bytes), worker (name), incarnation (number of its process) and headers."""

    __slots__ = ("body", "worker", "incarnation", "headers")

    def __init__(self, body, headers):
        self.body = body
        self.headers = headers
        self.worker = headers.get("Tempool-Worker", "")
        self.incarnation = int(headers.get("Tempool-Incarnation") or 0)

    def json(self):
        """Decodes the body; None if it is empty. Raises WorkerError if it is not JSON."""
        return decode(self.body)


class Stream:
    """A streamed answer. Iterate over it once, to its end, or close it, which cancels the call.

    worker and incarnation name the process that answers.
    """

    def __init__(self, reply, raw):
        self.headers = reply.headers
        self.worker = reply.headers.get("Tempool-Worker", "")
        self.incarnation = int(reply.headers.get("Tempool-Incarnation") or 0)
        self._reply = reply
        self._items = self._pieces() if raw else self._values()

    def _pieces(self):
        while True:
            piece = self._reply.read_some()
            if not piece:
                return
            yield piece

    def _values(self):
        rest = []  # pieces of an incomplete line
        for piece in self._pieces():
            if b"\n" not in piece:
                rest.append(piece)
                continue
            lines = b"".join(rest + [piece]).split(b"\n")
            rest = [lines.pop()]
            for line in lines:
                if line:
                    yield decode(line)
        last = b"".join(rest)
        if last:
            yield decode(last)

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._items)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Cancels the call unless it has ended."""
        self._items.close()
        self._reply.close()


class Caller:
    """Methods to make a call. timeout is in seconds and includes queueing, retries and the answer; None means the client's timeout.

    They raise TempoolError or a subclass: WorkerError for an error of the worker itself.
    """

    def call(self, method, params=None, *, timeout=None, session=None, priority=None, headers=None):
        """Calls a method whose parameters and result are JSON, and returns the result.

        params: a dict becomes a Python worker's keyword arguments, a list its positional arguments, None no arguments, anything else its
        only argument. priority is 0 to 9; queued calls with a higher one run first. Workers receive traceparent and every X- header of
        headers.
        """
        body = b"" if params is None else encode(params)
        return self.exchange(method, body, timeout=timeout, session=session, priority=priority, headers=headers).json()

    def call_raw(self, method, body=b"", *, timeout=None, session=None, priority=None, headers=None):
        """Calls a method with bytes and returns bytes."""
        return self.exchange(method, body, timeout=timeout, session=session, priority=priority, headers=headers).body

    def exchange(self, method, body=b"", *, timeout=None, session=None, priority=None, headers=None):
        """Like call_raw, but returns the Answer, which names the worker."""
        reply = self._send(method, body, timeout, session, priority, headers)
        return Answer(reply.read(), reply.headers)

    def stream(self, method, params=None, *, raw=False, timeout=None, session=None, priority=None, headers=None):
        """Calls a method and returns a Stream: an iterator of the JSON values that the worker yields, and of its result at the end if it has
        one. With raw=True, params are bytes and the iterator returns bytes as they arrive."""
        if raw:
            body = params or b""
        else:
            body = b"" if params is None else encode(params)
        return Stream(self._send(method, body, timeout, session, priority, headers), raw)

    def _send(self, method, body, timeout, session, priority, headers):
        raise NotImplementedError  # Pool and Lease implement it


def call_headers(session, priority, more):
    """Returns the headers of a call. Raises Invalid for a value that is not a line of text."""
    headers = dict(more or {})
    if session is not None:
        headers["Tempool-Session"] = session
    if priority is not None:
        headers["Tempool-Priority"] = str(priority)
    headers["Tempool-Timeout"] = ""  # set before each attempt
    headers.setdefault("Content-Type", "application/json")
    for key, value in headers.items():
        if not isinstance(value, str) or "\r" in value or "\n" in value:
            raise Invalid("header %s must be a line of text, not %.80r" % (key, value), "invalid")
    return headers


def deadline_of(timeout, default):
    """Returns the deadline of a request with this timeout, in time.monotonic() seconds."""
    seconds = default if timeout is None else timeout
    if not 0 < seconds <= MAX_TIMEOUT:
        raise Invalid("timeout must be above 0 and at most %d seconds, not %r" % (MAX_TIMEOUT, seconds), "invalid")
    return time.monotonic() + seconds


def segment(text, what, slashes=False):
    """Quotes text for a path. Raises Invalid if it is empty."""
    if not isinstance(text, str) or not text:
        raise Invalid("%s must be a non-empty string, not %r" % (what, text), "invalid")
    return quote(text, safe="/" if slashes else "")


def encode(value):
    """Encodes value as JSON. Raises Invalid if it cannot be represented."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as e:
        raise Invalid("cannot encode the parameters as JSON: %s" % e, "invalid") from e


def decode(text):
    """Decodes JSON; None for an empty text."""
    if not text:
        return None
    try:
        return json.loads(text)
    except ValueError as e:
        raise WorkerError("the answer is not JSON (%s); use call_raw or a raw stream" % e, "worker_error", True) from e
