"""Several gateways as one: which is asked, and what is asked again."""

import random
import threading
import time

from .errors import PASSING, DeadlineExceeded, TempoolError, Unavailable
from .gateway import Gateway

_PAUSE, _LONGEST = 0.05, 2.0  # seconds between tries of a request that no gateway took


class Fleet:
    """Requests are spread over the gateways in turn; one that cannot be reached is left alone for a while.

    A request is sent again only if the answer says that no worker has seen it, or if it is safe: doing it twice is doing it once.
    """

    def __init__(self, endpoints, token, tls, retries):
        self._token, self._tls, self._retries = token, tls, retries
        self._members = [Gateway(endpoint, token, tls) for endpoint in endpoints]
        self._others = {}  # guarded by _lock: gateways that leases led to, by endpoint
        self._lock = threading.Lock()
        self._turn = random.randrange(len(self._members))  # guarded by _lock

    def at(self, endpoint):
        """The gateway of an endpoint, a member or not. Unavailable for an endpoint that is none."""
        for member in self._members:
            if member.endpoint == endpoint:
                return member
        with self._lock:
            if endpoint not in self._others:
                try:
                    self._others[endpoint] = Gateway(endpoint, self._token, self._tls)
                except ValueError as e:
                    raise Unavailable(str(e), "unavailable", False) from e
            return self._others[endpoint]

    def _order(self):
        """The gateways, beginning with the one whose turn it is."""
        with self._lock:
            self._turn = turn = (self._turn + 1) % len(self._members)
        return self._members[turn:] + self._members[:turn]

    def ask(self, method, path, headers, body, deadline, safe=False, only=None, again_until=None):
        """Sends a request to the gateway only, or to the one whose turn it is, and again where it may be, until the deadline on the clock
        of time.monotonic(), or until again_until if that is given. Returns the Reply; raises the last TempoolError."""
        order = [only] if only else self._order()
        refused = set()
        pause = _PAUSE
        for attempt in range(self._retries + 1):
            left = deadline - time.monotonic()
            gateway = _first(order, refused)
            if "Tempool-Timeout" in headers:
                headers["Tempool-Timeout"] = str(max(1, int(left * 1000)))
            try:
                if left <= 0:
                    raise DeadlineExceeded("the call's time was over before it could begin", "deadline_exceeded", False)
                return gateway.ask(method, path, headers, body, deadline)
            except TempoolError as e:
                if e.started and not safe or e.code not in PASSING or attempt == self._retries:
                    raise
                error = e
            refused.add(gateway)
            if len(refused) < len(order):
                continue  # another may take it at once
            refused.clear()
            wait = max(error.retry_after or 0.0, random.uniform(pause / 2, pause))
            pause = min(2 * pause, _LONGEST)
            if time.monotonic() + wait >= (deadline if again_until is None else again_until):
                raise error
            time.sleep(wait)

    def close(self):
        with self._lock:
            others = list(self._others.values())
        for gateway in self._members + others:
            gateway.close()


def _first(order, refused):
    """The first that has neither just refused nor been out of reach, as long as there is one."""
    now = time.monotonic()
    return min(order, key=lambda g: (g in refused, g.down_until if g.down_until > now else 0.0))
