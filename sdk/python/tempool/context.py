"""The Context of a call: its headers, deadline, session and host calls."""

from __future__ import annotations

import contextvars
import json
import os
import re
import time

from .errors import Cancelled
from .frames import decode_headers, encode_headers
from .session import Programs, Session

TYPE_CHECKING = False  # the import of typing would slow the start of every worker
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

_serving: contextvars.ContextVar[Any] = contextvars.ContextVar("tempool_call", default=None)
_counter_name = re.compile("[a-z0-9_]{1,64}")


def _counter(name: Any) -> bool:
    return isinstance(name, str) and _counter_name.fullmatch(name) is not None


def context() -> Context:
    """Returns the Context of the call that this thread or task serves, including in tasks and asyncio.to_thread calls that it starts. Raises
    RuntimeError outside of a call."""
    serving = _serving.get()
    found: Optional[Context] = serving.context() if serving is not None else None
    if found is None:
        raise RuntimeError("tempool.context() must be called in a method, on the thread or in the task that runs it")
    return found


def bind(serving: Any) -> None:
    """Sets the object whose context() returns the Context of this thread or task; None between calls."""
    _serving.set(serving)


def incarnation() -> int:
    """Returns the incarnation of this process, from 1; 0 if unknown."""
    parts = os.environ.get("TEMPOOL_INCARNATION", "").rsplit(":", 2)
    return int(parts[1]) if len(parts) == 3 and parts[1].isdigit() else 0


class Context:
    """One call. Valid until the handler returns."""

    def __init__(self, connection: Any, id: int, headers: bytes, received: float) -> None:
        self._connection = connection
        self._id = id
        self._counts: Dict[str, int] = {}
        #: headers of the request, such as tempool-session and traceparent
        self.headers: Dict[str, str] = decode_headers(headers)
        #: headers to send with the response; str to str
        self.response_headers: Dict[str, str] = {}
        self.worker = os.environ.get("TEMPOOL_WORKER", "")
        self.incarnation = incarnation()
        timeout = self.headers.get("tempool-timeout", "")
        #: when the caller stops waiting, in time.monotonic() seconds; None without a deadline
        self.deadline: Optional[float] = received + int(timeout) / 1000 if timeout.isdigit() else None

    @property
    def remaining(self) -> Optional[float]:
        """Seconds until the deadline, never below 0; None if there is none."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    @property
    def cancelled(self) -> bool:
        """Whether the caller cancelled the call. Poll it in long handlers."""
        return bool(self._connection.is_cancelled(self._id))

    def check(self) -> None:
        """Raises tempool.Cancelled once the call is cancelled."""
        if self.cancelled:
            raise Cancelled()

    def count(self, name: str, n: int = 1) -> None:
        """Adds n, an integer from 0, to a counter in this worker's metrics, such as "api_calls". The host gets it with the response.

        A name has 1 to 64 characters of a-z, 0-9 and _. The host has 64 counters per worker and adds further names to "other".
        """
        if not isinstance(n, int) or not 0 <= n <= 1 << 53:
            raise ValueError("a count must be an integer from 0 to 2^53, not %r" % (n,))
        if not _counter(name):
            raise ValueError("a counter name must have 1 to 64 characters of a-z, 0-9 and _: %.80r" % (name,))
        self._counts[name] = min(self._counts.get(name, 0) + int(n), 1 << 53)

    def host(self, method: str, params: Any = None) -> Any:
        """Makes a host call. params and the result are anything JSON can represent. Raises tempool.HostError if it fails."""
        payload = b"" if params is None else json.dumps(params, allow_nan=False).encode()
        result = self._connection.host_call(self._id, method, payload)
        return json.loads(result) if result else None

    @property
    def session(self) -> Session:
        """The session of this call: a mapping in the host's session store, visible to every worker of the pool."""
        return Session(self.host)

    @property
    def programs(self) -> Programs:
        """The programs of this call's session, visible to every worker of the pool."""
        return Programs(self.host)

    def encoded_headers(self) -> bytes:
        """Returns the encoded headers of the response."""
        if not self._counts and not self.response_headers:
            return b""
        headers = dict(self.response_headers)
        for name, n in self._counts.items():
            headers["tempool-count-" + name] = str(n)
        return encode_headers(headers)

    def report_counts(self) -> None:
        """Sends the counters of a notification, which has no response, as a host call."""
        if self._counts:
            self.host("worker.count", self._counts)
