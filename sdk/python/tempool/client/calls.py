"""Calls on a pool or under a lease, and their answers."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Generator, Iterator, List, Mapping, Optional
from urllib.parse import quote

from .endpoint import Reply
from .errors import Invalid, WorkerError

MAX_TIMEOUT = 24 * 3600.0  # seconds; the gateways' limit for a call


@dataclass(frozen=True)
class Options:
    """What a call may say beside its method and parameters; the arguments of Caller's methods."""

    timeout: Optional[float] = None
    session: Optional[str] = None
    priority: Optional[int] = None
    headers: Optional[Mapping[str, str]] = None
    key: Optional[str] = None


@dataclass(frozen=True)
class Answer:
    """A worker's answer: body (bytes), worker (name), incarnation (number of its process) and headers."""

    body: bytes
    headers: Mapping[str, str] = field(repr=False)

    @property
    def worker(self) -> str:
        return self.headers.get("Tempool-Worker", "")

    @property
    def incarnation(self) -> int:
        return int(self.headers.get("Tempool-Incarnation") or 0)

    def json(self) -> Any:
        """Decodes the body; None if it is empty. Raises WorkerError if it is not JSON."""
        return decode(self.body)


class Stream:
    """A streamed answer. Iterate over it once, to its end, or close it, which cancels the call.

    worker and incarnation name the process that answers.
    """

    def __init__(self, reply: Reply, raw: bool) -> None:
        self.headers: Mapping[str, str] = reply.headers
        self.worker = self.headers.get("Tempool-Worker", "")
        self.incarnation = int(self.headers.get("Tempool-Incarnation") or 0)
        self._reply = reply
        self._items: Generator[Any, None, None] = self._pieces() if raw else self._values()

    def _pieces(self) -> Generator[bytes, None, None]:
        while True:
            piece = self._reply.read_some()
            if not piece:
                return
            yield piece

    def _values(self) -> Generator[Any, None, None]:
        lines = Lines()
        for piece in self._pieces():
            yield from lines.values(piece)
        yield from lines.last()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._items)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancels the call unless it has ended."""
        self._items.close()
        self._reply.close()


class Lines:
    """Decodes JSON lines that arrive in pieces."""

    def __init__(self) -> None:
        self._rest: List[bytes] = []  # pieces of an incomplete line

    def values(self, piece: bytes) -> Iterator[Any]:
        if b"\n" not in piece:
            self._rest.append(piece)
            return
        lines = b"".join(self._rest + [piece]).split(b"\n")
        self._rest = [lines.pop()]
        for line in lines:
            if line:
                yield decode(line)

    def last(self) -> Iterator[Any]:
        line = b"".join(self._rest)
        if line:
            yield decode(line)


class Caller:
    """Methods to make a call. timeout is in seconds and includes queueing, retries and the answer; None means the client's timeout.

    They raise TempoolError or a subclass: WorkerError for an error of the worker itself.
    """

    def call(
        self, method: str, params: Any = None, *, timeout: Optional[float] = None, session: Optional[str] = None,
        priority: Optional[int] = None, headers: Optional[Mapping[str, str]] = None, key: Optional[str] = None,
    ) -> Any:
        """Calls a method whose parameters and result are JSON, and returns the result.

        params: a dict becomes a Python worker's keyword arguments, a list its positional arguments, None no arguments, anything else its
        only argument. priority is 0 to 9; queued calls with a higher one run first. Workers receive traceparent and every X- header of headers.
        key names whose call it is, for a pool with isolation.by = "key".
        """
        return self._exchange(method, encode_params(params), Options(timeout, session, priority, headers, key)).json()

    def call_raw(
        self, method: str, body: bytes = b"", *, timeout: Optional[float] = None, session: Optional[str] = None,
        priority: Optional[int] = None, headers: Optional[Mapping[str, str]] = None, key: Optional[str] = None,
    ) -> bytes:
        """Calls a method with bytes and returns bytes."""
        return self._exchange(method, body, Options(timeout, session, priority, headers, key)).body

    def exchange(
        self, method: str, body: bytes = b"", *, timeout: Optional[float] = None, session: Optional[str] = None,
        priority: Optional[int] = None, headers: Optional[Mapping[str, str]] = None, key: Optional[str] = None,
    ) -> Answer:
        """Like call_raw, but returns the Answer, which names the worker."""
        return self._exchange(method, body, Options(timeout, session, priority, headers, key))

    def stream(
        self, method: str, params: Any = None, *, raw: bool = False, timeout: Optional[float] = None, session: Optional[str] = None,
        priority: Optional[int] = None, headers: Optional[Mapping[str, str]] = None, key: Optional[str] = None,
    ) -> Stream:
        """Calls a method and returns a Stream: an iterator of the JSON values that the worker yields, and of its result at the end if it has
        one. With raw=True, params are bytes and the iterator returns bytes as they arrive."""
        body = (params or b"") if raw else encode_params(params)
        return Stream(self._send(method, body, Options(timeout, session, priority, headers, key)), raw)

    def _exchange(self, method: str, body: bytes, options: Options) -> Answer:
        reply = self._send(method, body, options)
        return Answer(reply.read(), reply.headers)

    def _send(self, method: str, body: bytes, options: Options) -> Reply:
        raise NotImplementedError  # Pool, Worker and Lease implement it


def call_headers(options: Options, session: Optional[str] = None, key: Optional[str] = None) -> Dict[str, str]:
    """Returns the headers of a call; session and key are used if the options have none. Raises Invalid for a value that is not a line of text."""
    headers: Dict[str, Any] = dict(options.headers or {})
    if options.session is not None or session is not None:
        headers["Tempool-Session"] = session if options.session is None else options.session
    if options.key is not None or key is not None:
        headers["Tempool-Key"] = key if options.key is None else options.key
    if options.priority is not None:
        headers["Tempool-Priority"] = str(options.priority)
    headers["Tempool-Timeout"] = ""  # set before each attempt
    headers.setdefault("Content-Type", "application/json")
    for name, value in headers.items():
        if not isinstance(value, str) or re.search("[\r\n\ud800-\udfff]", value):
            raise Invalid("header %s must be a line of text, not %.80r" % (name, value), "invalid")
    return headers


def deadline_of(timeout: Optional[float], default: float) -> float:
    """Returns the deadline of a request with this timeout, in time.monotonic() seconds."""
    seconds = default if timeout is None else timeout
    if not 0 < seconds <= MAX_TIMEOUT:
        raise Invalid("timeout must be above 0 and at most %d seconds, not %r" % (MAX_TIMEOUT, seconds), "invalid")
    return time.monotonic() + seconds


def segment(text: Any, what: str, slashes: bool = False) -> str:
    """Quotes text for a path. Raises Invalid if it is empty."""
    if not isinstance(text, str) or not text:
        raise Invalid("%s must be a non-empty string, not %r" % (what, text), "invalid")
    return quote(text, safe="/" if slashes else "")


def encode(value: Any) -> bytes:
    """Encodes value as JSON. Raises Invalid if it cannot be represented."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as e:
        raise Invalid("cannot encode the parameters as JSON: %s" % e, "invalid") from e


def waiting(request: Dict[str, Any], until: float) -> Callable[[], bytes]:
    """Returns the body of each attempt at a request that may wait until then, in time.monotonic() seconds."""
    return lambda: encode(dict(request, wait_ms=max(0, int((until - time.monotonic()) * 1000))))


def encode_params(params: Any) -> bytes:
    """Encodes the parameters of a call: None as an empty body."""
    return b"" if params is None else encode(params)


def decode(text: bytes) -> Any:
    """Decodes JSON; None for an empty text."""
    if not text:
        return None
    try:
        return json.loads(text)
    except ValueError as e:
        raise WorkerError("the answer is not JSON (%s); use call_raw or a raw stream" % e, "worker_error", True) from e
