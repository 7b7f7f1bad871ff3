"""Calls and their answers, whether of a pool or under a lease."""

import json
import time
from urllib.parse import quote

from .errors import Invalid, WorkerError

LONGEST = 24 * 3600.0  # seconds that a gateway lets a call ask for


class Answer:
    """What a worker answered: body (bytes), worker (its name), incarnation (its process's number) and headers."""

    __slots__ = ("body", "worker", "incarnation", "headers")

    def __init__(self, body, headers):
        self.body = body
        self.headers = headers
        self.worker = headers.get("Tempool-Worker", "")
        self.incarnation = int(headers.get("Tempool-Incarnation") or 0)

    def json(self):
        """The body decoded; None for an empty one. WorkerError if it is not JSON."""
        return decode(self.body)


class Stream:
    """The answer to a call, piece by piece as the worker sends it. Iterate over it once, and to its end, or close it: that cancels the call.

    worker and incarnation name who answers.
    """

    def __init__(self, reply, raw):
        self.headers = reply.headers
        self.worker = reply.headers.get("Tempool-Worker", "")
        self.incarnation = int(reply.headers.get("Tempool-Incarnation") or 0)
        self._reply = reply
        self._items = self._pieces() if raw else self._values()

    def _pieces(self):
        while True:
            piece = self._reply.piece()
            if not piece:
                return
            yield piece

    def _values(self):
        rest = []  # of a line that has not come to its end
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
        """Ends the call if it has not ended."""
        self._items.close()
        self._reply.close()


class Caller:
    """The ways to make a call. timeout is in seconds, for all of it: waiting in queues, tries and the answer; None is the client's.

    All of them raise TempoolError, or one of its kinds: WorkerError for what the worker itself answers.
    """

    def call(self, method, params=None, *, timeout=None, session=None, priority=None, headers=None):
        """Calls a method whose parameters and result are JSON, and returns the result.

        params: a dict becomes a Python worker's keyword arguments, a list its positional ones, None nothing, anything else its one
        argument. priority goes from 0 to 9, highest first, while calls wait. headers are sent along; workers see traceparent and every X- header.
        """
        body = b"" if params is None else encode(params)
        return self.exchange(method, body, timeout=timeout, session=session, priority=priority, headers=headers).json()

    def call_raw(self, method, body=b"", *, timeout=None, session=None, priority=None, headers=None):
        """Calls a method that takes and gives bytes, and returns them."""
        return self.exchange(method, body, timeout=timeout, session=session, priority=priority, headers=headers).body

    def exchange(self, method, body=b"", *, timeout=None, session=None, priority=None, headers=None):
        """call_raw that returns the whole Answer, which names the worker."""
        reply = self._send(method, body, timeout, session, priority, headers)
        return Answer(reply.read(), reply.headers)

    def stream(self, method, params=None, *, raw=False, timeout=None, session=None, priority=None, headers=None):
        """Calls a method and returns its answer as a Stream: an iterator of the JSON values that the worker yields, one for each line, and of
        its result at the end if it has one. With raw=True, params are bytes and the pieces are bytes as they come."""
        if raw:
            body = params or b""
        else:
            body = b"" if params is None else encode(params)
        return Stream(self._send(method, body, timeout, session, priority, headers), raw)

    def _send(self, method, body, timeout, session, priority, headers):
        raise NotImplementedError  # by Pool and Lease


def call_headers(session, priority, more):
    """The headers of a call; what is not text is Invalid."""
    headers = dict(more or {})
    if session is not None:
        headers["Tempool-Session"] = session
    if priority is not None:
        headers["Tempool-Priority"] = str(priority)
    headers["Tempool-Timeout"] = ""  # what is left, at each try
    headers.setdefault("Content-Type", "application/json")
    for key, value in headers.items():
        if not isinstance(value, str) or "\r" in value or "\n" in value:
            raise Invalid("the header %s has to be a line of text, not %.80r" % (key, value), "invalid")
    return headers


def deadline_of(timeout, default):
    """When a request that may take timeout seconds has to be over, on the clock of time.monotonic()."""
    seconds = default if timeout is None else timeout
    if not 0 < seconds <= LONGEST:
        raise Invalid("a timeout is a number of seconds above 0 and at most %d, not %r" % (LONGEST, seconds), "invalid")
    return time.monotonic() + seconds


def segment(text, what, slashes=False):
    """text as part of a path."""
    if not isinstance(text, str) or not text:
        raise Invalid("%s is a text that is not empty, not %r" % (what, text), "invalid")
    return quote(text, safe="/" if slashes else "")


def encode(value):
    """value as JSON; Invalid for what JSON cannot hold."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as e:
        raise Invalid("the parameters cannot be written as JSON: %s" % e, "invalid") from e


def decode(text):
    """The value of JSON, None for nothing."""
    if not text:
        return None
    try:
        return json.loads(text)
    except ValueError as e:
        raise WorkerError("the answer is not JSON (%s); take it with call_raw or a raw stream" % e, "worker_error", True) from e
