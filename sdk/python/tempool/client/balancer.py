"""Balances requests over gateways, and retries them."""

from __future__ import annotations

import json
import random
import ssl
import threading
import time
from typing import Callable, Dict, Generic, Iterable, Iterator, List, Optional, Sequence, Set, TypeVar, Union

from .errors import RETRYABLE, DeadlineExceeded, TempoolError, Unavailable
from .endpoint import Body, Endpoint, Gateway, Reply

_MIN_BACKOFF, _MAX_BACKOFF = 0.05, 2.0  # seconds between attempts
_ROSTER_TIMEOUT = 10.0  # seconds


class Balancer:
    """Sends requests to the endpoints in round-robin order and avoids unreachable ones for a while.

    It retries a request only if no worker has received it, or if it is idempotent.
    """

    def __init__(self, endpoints: Sequence[str], token: Optional[str], tls: Optional[ssl.SSLContext], retries: int) -> None:
        self._token, self._tls, self._retries = token, tls, retries
        self._endpoints = [Endpoint(endpoint, token, tls) for endpoint in endpoints]
        self._others: Dict[str, Endpoint] = {}  # guarded by _lock: gateways that an answer named, by endpoint
        self._lock = threading.Lock()
        self._next = random.randrange(len(self._endpoints))  # guarded by _lock

    def at(self, endpoint: str) -> Endpoint:
        """Returns the Endpoint of an address, configured or not. Raises Unavailable for an invalid one, and for one that may not get the token: a
        worker's own answer can look like an error that names any address, so only those of the roster count."""
        for known in self._endpoints:
            if known.endpoint == endpoint:
                return known
        with self._lock:
            if endpoint in self._others:
                return self._others[endpoint]
        if self._token and endpoint not in self._roster():
            raise Unavailable("the gateway at %s is not in the roster, so it does not get the token; add it to the client's endpoints" % endpoint, "unavailable", False)
        with self._lock:
            if endpoint not in self._others:
                try:
                    self._others[endpoint] = Endpoint(endpoint, self._token, self._tls)
                except ValueError as e:
                    raise Unavailable(str(e), "unavailable", False) from e
            return self._others[endpoint]

    def _roster(self) -> Set[str]:
        """Returns the endpoints of the hosts that have workers, as a configured gateway lists them; none if it does not."""
        try:
            workers = json.loads(self.request("GET", "/v1/workers", {}, b"", time.monotonic() + _ROSTER_TIMEOUT, True).read())
            return {worker.get("endpoint") for worker in workers}
        except (TempoolError, ValueError):
            return set()

    def _order(self) -> List[Endpoint]:
        """Returns the endpoints, starting with the next one in turn."""
        with self._lock:
            self._next = start = (self._next + 1) % len(self._endpoints)
        return self._endpoints[start:] + self._endpoints[:start]

    def request_each(self, method: str, path: str, deadline: float, also: Optional[Endpoint] = None) -> List[bytes]:
        """Sends an idempotent request to every configured endpoint, and to the endpoint also. Returns the bodies of the answers. Raises the first
        TempoolError after all were asked."""
        bodies, failures = [], []
        for gateway in self._endpoints + ([also] if also and also not in self._endpoints else []):
            try:
                bodies.append(self.request(method, path, {}, b"", deadline, True, only=gateway).read())
            except TempoolError as e:
                failures.append(e)
        if failures:
            raise failures[0]
        return bodies

    def request(
        self, method: str, path: str, headers: Dict[str, str], body: Union[Body, Callable[[], bytes]], deadline: float, idempotent: bool = False,
        only: Optional[Endpoint] = None, first: Optional[Endpoint] = None, retry_until: Optional[float] = None, follow: bool = False,
    ) -> Reply:
        """Sends a request to the endpoint only, or to the endpoint first, or to the next one in turn. Retries it until the deadline in time.monotonic() seconds, or
        until retry_until; a callable body returns that of each attempt; with follow, also at gateways that a refusal names. Returns the Reply, or raises the last TempoolError."""
        attempts = Attempts([only] if only else self._order(), self._retries, idempotent, deadline, retry_until, first)
        while True:
            gateway = attempts.next(headers)
            try:
                return gateway.request(method, path, headers, body() if callable(body) else body, deadline)
            except TempoolError as e:
                pause = attempts.failed(gateway, e, self._named_by(e) if follow else ())
            if pause:
                time.sleep(pause)

    def _named_by(self, error: TempoolError) -> Iterator[Endpoint]:
        for endpoint in error.gateways:
            try:
                yield self.at(endpoint)
            except Unavailable:
                pass  # this client cannot use it

    def close(self) -> None:
        with self._lock:
            others = list(self._others.values())
        for gateway in self._endpoints + others:
            gateway.close()


G = TypeVar("G", bound=Gateway)


class Attempts(Generic[G]):
    """Decides where the attempts of one request go, and when: in this order, or to the endpoint first, and to the others only while that is unavailable."""

    def __init__(self, order: List[G], retries: int, idempotent: bool, deadline: float, retry_until: Optional[float], first: Optional[G] = None) -> None:
        self._order = order if first is None else [first] + [other for other in order if other is not first]
        self._first, self._left, self._idempotent, self._deadline = first, retries, idempotent, deadline
        self._retry_until = deadline if retry_until is None else retry_until
        self._refused: List[G] = []
        self._own: Optional[TempoolError] = None  # the last sign that the first does not serve
        self._backoff = _MIN_BACKOFF

    def next(self, headers: Dict[str, str]) -> G:
        """Returns the first endpoint that neither refused this request nor is down, if there is one, and sets the timeout in the headers. Raises
        DeadlineExceeded."""
        now = time.monotonic()
        if now >= self._deadline:
            raise DeadlineExceeded("deadline exceeded before the call was sent", "deadline_exceeded", False)
        if "Tempool-Timeout" in headers:
            headers["Tempool-Timeout"] = str(max(1, int((self._deadline - now) * 1000)))
        return min(self._order, key=lambda g: (g in self._refused, g.down_until if g.down_until > now else 0.0))

    def failed(self, gateway: G, error: TempoolError, others: Iterable[G] = ()) -> float:
        """Returns the seconds until the next attempt, which may go to others, too; 0.0 for at once. Raises the error if there is no other attempt."""
        if error.started and not self._idempotent:
            raise error
        first, counts = self._first, True
        if first is not None and gateway is not first:
            if error.endpoint == first.endpoint:
                error = self._own or Unavailable("the gateway at %s does not serve: %s" % (first.endpoint, error), "unavailable", False)
            counts = error.code != "unavailable"  # the retries are those of the first
        elif gateway is first and error.code == "unavailable":
            self._own = error
        if error.code not in RETRYABLE or counts and self._left == 0:
            raise error
        self._left -= counts
        self._refused.append(gateway)
        self._order = self._order + [other for other in others if other not in self._order]
        if len(self._refused) < len(self._order) and (self._first is None or error.code == "unavailable"):
            return 0.0  # another endpoint
        self._refused.clear()
        pause = max(error.retry_after or 0.0, random.uniform(self._backoff / 2, self._backoff))
        self._backoff = min(2 * self._backoff, _MAX_BACKOFF)
        if time.monotonic() + pause >= self._retry_until:
            raise error
        return pause
