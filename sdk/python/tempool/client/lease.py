"""A lease: one worker for yourself."""

import re
import threading
import time
from datetime import datetime, timezone

from .calls import Caller, call_headers, decode, encode, segment
from .errors import LeaseFenced, LeaseNotFound, TempoolError

_RENEWALS = 3  # in the life of a lease, so that one or two may fail
_RENEW_TIMEOUT = 10.0  # seconds for one renewal
_RETRY = 1.0  # seconds until a renewal that failed is tried again
_SHORTEST = 0.02  # seconds between two renewals


class Lease(Caller):
    """The exclusive right to one worker: calls under it all reach the same process. Made by Pool.lease().

    It renews itself on a thread of its own until it is closed. As a context manager it is given back at the end: with outcome "error"
    when the block raised, after which the worker serves again once it has passed a probe, else with "ok".

    When it is lost, since its worker ended or it could not be renewed, every further call raises LeaseFenced, and so does a check-in
    that finds it gone.
    """

    def __init__(self, client, gateway, granted, ttl):
        self._client = client
        self._gateway = gateway
        self._ttl = ttl  # as asked for, in seconds; None for the pool's own
        self.id = granted["id"]
        self.worker = granted["worker"]
        self.incarnation = granted["incarnation"]
        self.session = granted.get("session") or None
        self.granted = granted  # the gateway's whole answer
        self._path = "/v1/leases/" + segment(self.id, "a lease's id")
        # Gateways tell times by their own clocks, so only differences between them count.
        self._zero = time.monotonic() - moment(granted["granted_at"])
        self._until = self._zero + moment(granted["expires_at"])  # on the clock of time.monotonic()
        self._lost = None
        self._closing = threading.Event()
        self._once = threading.Lock()
        self._renewer = threading.Thread(target=self._keep, name="tempool-lease-" + self.id, daemon=True)
        self._renewer.start()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _):
        if kind is None:
            self.close()
            return
        try:
            self.close("error", error="%s: %s" % (kind.__name__, error))
        except TempoolError:
            pass  # what the block raised matters more, and the lease ends by itself

    def notify(self, method, params=None, *, timeout=None, headers=None):
        """Sends what the worker does not answer; returns when it is on its way. The worker gets it in order with the calls made after it."""
        path = "%s/notify/%s" % (self._path, segment(method, "a method", slashes=True))
        self._under(path, b"" if params is None else encode(params), timeout, None, None, headers).read()

    def renew(self, ttl=None):
        """Extends the lease to ttl seconds from now; None is what it was asked for with. It does so by itself, too."""
        began = time.monotonic()
        ttl = self._ttl if ttl is None else ttl
        body = encode({} if ttl is None else {"ttl_ms": int(ttl * 1000)})
        renewed = decode(self._ask("PUT", self._path, {"Content-Type": "application/json"}, body, began + _RENEW_TIMEOUT, safe=True).read())
        self._until = self._zero + moment(renewed["expires_at"])

    def close(self, outcome="ok", error=None):
        """Gives the worker back. outcome is "ok", "error" (it served badly: it is probed before it serves again) or "close" (it must be
        replaced); error is a sentence that says why. Does nothing the second time."""
        with self._once:
            if self._closing.is_set():
                return
            self._closing.set()
        self._renewer.join()
        query = "?outcome=" + segment(outcome, "an outcome")
        if error:
            query += "&error=" + segment(error[:500], "an error")
        deadline = time.monotonic() + self._client.timeout
        self._ask("DELETE", self._path + query, {}, b"", deadline, safe=True).read()

    def _send(self, method, body, timeout, session, priority, headers):
        path = "%s/call/%s" % (self._path, segment(method, "a method", slashes=True))
        return self._under(path, body, timeout, session, priority, headers)

    def _under(self, path, body, timeout, session, priority, headers):
        """Sends what only the lease's holder may, while it is held."""
        lost = self._lost
        if lost is not None:
            raise LeaseFenced("lease %s was lost: %s" % (self.id, lost), "lease_fenced", False) from lost
        if self._closing.is_set():
            raise LeaseFenced("lease %s was given back" % self.id, "lease_fenced", False)
        headers = call_headers(self.session if session is None else session, priority, headers)
        return self._ask("POST", path, headers, body, self._client.deadline(timeout))

    def _ask(self, method, path, headers, body, deadline, safe=False):
        """Asks the gateway that carries the lease, which may turn out to be another than the one that granted it."""
        try:
            return self._client.fleet.ask(method, path, headers, body, deadline, safe, only=self._gateway)
        except LeaseNotFound as e:
            if e.endpoint is None or e.endpoint == self._gateway.endpoint:
                raise
            self._gateway = self._client.fleet.at(e.endpoint)
        return self._client.fleet.ask(method, path, headers, body, deadline, safe, only=self._gateway)

    def _keep(self):
        """Renews until the lease is closed or lost."""
        pause = self._pause()
        while not self._closing.wait(pause):
            try:
                self.renew()
                pause = self._pause()
            except (LeaseFenced, LeaseNotFound) as e:
                self._lost = e
                return
            except TempoolError as e:
                if time.monotonic() >= self._until:
                    self._lost = e
                    return
                pause = min(_RETRY, self._pause())

    def _pause(self):
        """Seconds until the next renewal, of which there are several before the lease ends."""
        return max(_SHORTEST, (self._until - time.monotonic()) / _RENEWALS)


_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)")


def moment(text):
    """A time as gateways write it (RFC 3339), as seconds since 1970."""
    found = _TIME.fullmatch(text)
    if not found:
        raise TempoolError("the gateway gave the time as %r" % text, "internal", True)
    whole, fraction, zone = found.groups()
    at = datetime.fromisoformat(whole + ("+00:00" if zone == "Z" else zone))
    return at.astimezone(timezone.utc).timestamp() + float(fraction or 0)
