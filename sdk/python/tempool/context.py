"""What a handler can know and do about the call it serves."""

import json
import os
import threading
import time

from .errors import Cancelled
from .frames import decode_headers, encode_headers

_current = threading.local()


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
        """Adds n to a counter of this worker's metrics, such as "api_calls". Told to the host with the answer."""
        self._counts[name] = self._counts.get(name, 0) + n

    def host(self, method, params=None):
        """Asks the host; params and the result are anything JSON can hold. tempool.HostError when it refuses."""
        payload = b"" if params is None else json.dumps(params).encode()
        result = self._connection.host_call(self._id, method, payload)
        return json.loads(result) if result else None

    @property
    def session(self):
        """The session of this call, kept by the host: a mapping that every worker of the pool sees."""
        return Session(self)

    def answer_headers(self):
        """The encoded headers of the answer."""
        if not self._counts and not self.response_headers:
            return b""
        headers = dict(self.response_headers)
        for name, n in self._counts.items():
            headers["tempool-count-" + name] = str(n)
        return encode_headers(headers)


class Session:
    """A session's data as a mapping. Each access asks the host, so it is never stale; use update() for several keys at once.

    Setting a key to None removes it, as in a JSON merge patch.
    """

    def __init__(self, context):
        self._host = context.host

    def load(self):
        """The whole session: id, data, programs, metadata, version and times."""
        return self._host("session.get")

    def __getitem__(self, key):
        return self.load()["data"][key]

    def get(self, key, default=None):
        return self.load()["data"].get(key, default)

    def __contains__(self, key):
        return key in self.load()["data"]

    def __iter__(self):
        return iter(self.load()["data"])

    def __len__(self):
        return len(self.load()["data"])

    def __setitem__(self, key, value):
        self.update({key: value})

    def __delitem__(self, key):
        self.update({key: None})

    def update(self, data, version=None):
        """Merges data into the session and returns the new session. With version, only if it has that version still."""
        params = {"patch": {"data": data}}
        if version is not None:
            params["version"] = version
        return self._host("session.update", params)

    def touch(self):
        """Extends the session's life."""
        return self._host("session.touch")

    def delete(self):
        """Ends the session."""
        return self._host("session.delete")

    def put_program(self, id, program):
        """Keeps a program (anything JSON can hold) in the session, for any worker to run."""
        return self._host("programs.put", {"id": id, "program": program})

    def get_program(self, id):
        return self._host("programs.get", {"id": id})

    def delete_program(self, id):
        return self._host("programs.delete", {"id": id})
