"""Balances requests over gateways, and retries them."""

import json
import random
import threading
import time

from .errors import RETRYABLE, DeadlineExceeded, TempoolError, Unavailable
from .endpoint import Endpoint

_MIN_BACKOFF, _MAX_BACKOFF = 0.05, 2.0  # seconds between attempts
_ROSTER_TIMEOUT = 10.0  # seconds


class Balancer:
    """Sends requests to the endpoints in round-robin order and avoids unreachable ones for a while.

    It retries a request only if no worker has received it, or if it is idempotent.
    """

    def __init__(self, endpoints, token, tls, retries):
        self._token, self._tls, self._retries = token, tls, retries
        self._endpoints = [Endpoint(endpoint, token, tls) for endpoint in endpoints]
        self._others = {}  # guarded by _lock: gateways that an answer named, by endpoint
        self._lock = threading.Lock()
        self._next = random.randrange(len(self._endpoints))  # guarded by _lock

    def at(self, endpoint):
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

    def _roster(self):
        """Returns the endpoints of the hosts that have workers, as a configured gateway lists them; none if it does not."""
        try:
            workers = json.loads(self.request("GET", "/v1/workers", {}, b"", time.monotonic() + _ROSTER_TIMEOUT, True).read())
            return {worker.get("endpoint") for worker in workers}
        except (TempoolError, ValueError):
            return set()

    def _order(self):
        """Returns the endpoints, starting with the next one in turn."""
        with self._lock:
            self._next = start = (self._next + 1) % len(self._endpoints)
        return self._endpoints[start:] + self._endpoints[:start]

    def request_each(self, method, path, deadline, also=None):
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

    def request(self, method, path, headers, body, deadline, idempotent=False, only=None, retry_until=None, follow=False):
        """Sends a request to the endpoint only, or to the next one in turn. Retries it until the deadline in time.monotonic() seconds, or
        until retry_until; with follow, also at gateways that a refusal names. Returns the Reply, or raises the last TempoolError."""
        order = [only] if only else self._order()
        refused = set()
        backoff = _MIN_BACKOFF
        for attempt in range(self._retries + 1):
            left = deadline - time.monotonic()
            gateway = _first(order, refused)
            if "Tempool-Timeout" in headers:
                headers["Tempool-Timeout"] = str(max(1, int(left * 1000)))
            try:
                if left <= 0:
                    raise DeadlineExceeded("deadline exceeded before the call was sent", "deadline_exceeded", False)
                return gateway.request(method, path, headers, body, deadline)
            except TempoolError as e:
                if e.started and not idempotent or e.code not in RETRYABLE or attempt == self._retries:
                    raise
                error = e
            refused.add(gateway)
            if follow:
                order = order + [other for other in self._named_by(error) if other not in order]
            if len(refused) < len(order):
                continue  # try another endpoint at once
            refused.clear()
            wait = max(error.retry_after or 0.0, random.uniform(backoff / 2, backoff))
            backoff = min(2 * backoff, _MAX_BACKOFF)
            if time.monotonic() + wait >= (deadline if retry_until is None else retry_until):
                raise error
            time.sleep(wait)

    def _named_by(self, error):
        for endpoint in error.gateways:
            try:
                yield self.at(endpoint)
            except Unavailable:
                pass  # this client cannot use it

    def close(self):
        with self._lock:
            others = list(self._others.values())
        for gateway in self._endpoints + others:
            gateway.close()


def _first(order, refused):
    """Returns the first endpoint that neither refused this request nor is down, if there is one."""
    now = time.monotonic()
    return min(order, key=lambda g: (g in refused, g.down_until if g.down_until > now else 0.0))
