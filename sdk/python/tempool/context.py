"""What a handler can know and do about the call it serves."""

import json
import os
import re
import threading
import time

from .errors import Cancelled
from .frames import decode_headers, encode_headers
from .session import Programs, Session

_current = threading.local()
_counter_name = re.compile("[a-z0-9_]{1,64}")


def _counter(name):
    return isinstance(name, str) and _counter_name.fullmatch(name) is not None


def context():
    """The Context of the call that this thread is serving. RuntimeError outside of a call."""
    serving = getattr(_current, "serving", None)
    found = serving.context() if serving is not None else None
    if found is None:
        raise RuntimeError("tempool.context() works inside a method, on the thread that runs it")
    return found


def bind(serving):
    """Makes context() on this thread ask serving, an object whose context() returns the Context, or None between calls."""
    _current.serving = serving


def incarnation():
    """The number of this process in its worker's life, from 1; 0 when it is not known."""
    parts = os.environ.get("TEMPOOL_INCARNATION", "").rsplit(":", 2)
    return int(parts[1]) if len(parts) == 3 and parts[1].isdigit() else 0


class Context:
    """One call. Valid until the handler returns."""

    def __init__(self, connection, id, headers, received):
        self._connection = connection
        self._id = id
        self._counts = {}
        #: headers of the request, such as tempool-session and traceparent
        self.headers = decode_headers(headers)
        #: headers to send with the answer; str to str
        self.response_headers = {}
        self.worker = os.environ.get("TEMPOOL_WORKER", "")
        self.incarnation = incarnation()
        timeout = self.headers.get("tempool-timeout", "")
        #: when the caller stops waiting, on the clock of time.monotonic(); None if it waits forever
        self.deadline = received + int(timeout) / 1000 if timeout.isdigit() else None

    @property
    def remaining(self):
        """Seconds until the deadline, never below 0; None if there is none."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    @property
    def cancelled(self):
        """Whether nobody waits for the answer any more. Long handlers look at it now and then."""
        return self._connection.is_cancelled(self._id)

    def check(self):
        """Raises tempool.Cancelled once the call is cancelled."""
        if self.cancelled:
            raise Cancelled()

    def count(self, name, n=1):
        """Adds n, a whole number from 0, to a counter of this worker's metrics, such as "api_calls". Told to the host with the answer.

        A name has 1 to 64 of a-z, 0-9 and _. The host keeps 64 counters of a worker; what further ones count goes to "other".
        """
        if not isinstance(n, int) or not 0 <= n <= 1 << 53:
            raise ValueError("a count is a whole number from 0 to 2^53, not %r" % (n,))
        if not _counter(name):
            raise ValueError("a counter's name has 1 to 64 of a-z, 0-9 and _: %.80r" % (name,))
        self._counts[name] = min(self._counts.get(name, 0) + int(n), 1 << 53)

    def host(self, method, params=None):
        """Asks the host; params and the result are anything JSON can hold. tempool.HostError when it refuses."""
        payload = b"" if params is None else json.dumps(params, allow_nan=False).encode()
        result = self._connection.host_call(self._id, method, payload)
        return json.loads(result) if result else None

    @property
    def session(self):
        """The session of this call, kept by the host: a mapping that every worker of the pool sees."""
        return Session(self.host)

    @property
    def programs(self):
        """The programs of this call's session: put by one worker, got by any other."""
        return Programs(self.host)

    def answer_headers(self):
        """The encoded headers of the answer."""
        if not self._counts and not self.response_headers:
            return b""
        headers = dict(self.response_headers)
        for name, n in self._counts.items():
            headers["tempool-count-" + name] = str(n)
        return encode_headers(headers)

    def tell_counts(self):
        """Tells the host what a notification counted, which has no answer to tell it with."""
        if self._counts:
            self.host("worker.count", self._counts)
