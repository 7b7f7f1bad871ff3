"""Leases: exclusive use of one worker."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
import uuid
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Dict, Mapping, Optional, Type, Union

from .calls import Caller, Options, call_headers, decode, encode, segment, waiting
from .endpoint import Endpoint, Reply
from .errors import Invalid, LeaseFenced, LeaseNotFound, TempoolError, WorkerError

if TYPE_CHECKING:
    from .client import Client

MAX_WAIT = 300.0  # seconds; the gateways' limit for a checkout
RENEWALS = 3  # attempts within the ttl, so that one or two may fail
RENEW_TIMEOUT = 10.0  # seconds for one renewal, and at most half of what is left of the lease
RETRY = 1.0  # seconds until a failed renewal is retried
MIN_PAUSE = 0.02  # seconds between two renewals
MAX_REASON = 1000  # bytes of a checkin's reason; a gateway takes 1024


def ttl_ms(ttl: float) -> int:
    return max(1, int(ttl * 1000))


def checkin_query(outcome: str, error: Union[BaseException, str, None]) -> str:
    """Returns the query of a checkin. error is a text or an exception; any of the latter will do."""
    query = "?outcome=" + segment(outcome, "an outcome")
    try:
        text = "%s: %s" % (type(error).__name__, error) if isinstance(error, BaseException) else error
    except Exception:  # the program's exception has no readable text
        text = type(error).__name__
    cut = (text or "").encode(errors="replace")[:MAX_REASON].decode(errors="ignore")
    return query + "&error=" + segment(cut, "an error") if cut else query


class Checkout:
    """The request for a lease, with the arguments of Pool.lease. It waits until `until`, in time.monotonic() seconds."""

    def __init__(self, ttl: Optional[float], holder: Optional[str], session: Optional[str], wait: float, key: Optional[str]) -> None:
        if ttl is not None and ttl <= 0:
            raise Invalid("ttl must be above 0 seconds, not %r" % (ttl,), "invalid")
        self.until = time.monotonic() + min(wait, MAX_WAIT)
        self._ours = {"token": secrets.token_urlsafe(24), "key": key}  # the token is the lease's secret: its owner can use the lease
        asked = dict(
            self._ours, holder=holder or "%s:%d" % (socket.gethostname(), os.getpid()), request_id=str(uuid.uuid4()), session=session,
            ttl_ms=None if ttl is None else ttl_ms(ttl))
        self.body: Callable[[], bytes] = waiting({name: value for name, value in asked.items() if value is not None}, self.until)

    def granted(self, answer: bytes) -> Dict[str, Any]:
        """Returns the lease in an answer, with what only its holder knows."""
        return dict(decode(answer), **self._ours)


class Granted:
    """What a lease is, and how long it lasts, for the clients with threads and with tasks."""

    def __init__(self, granted: Dict[str, Any], ttl: Optional[float]) -> None:
        self._ttl = ttl  # as requested, in seconds; None means the pool's
        self.id: str = granted["id"]
        self.worker: str = granted["worker"]
        self.incarnation: int = granted["incarnation"]
        self.session: Optional[str] = granted.get("session") or None
        self.key: Optional[str] = granted.get("key")
        self.granted = granted  # the gateway's complete answer
        self._path = "/v1/leases/" + segment(self.id, "a lease id")
        self._token = {"Tempool-Lease-Token": granted["token"]} if granted.get("token") else {}
        self._until: float = time.monotonic() + granted["ttl_ms"] / 1000  # no time of the gateway's clock is used
        self._lost: Optional[TempoolError] = None

    @property
    def remaining(self) -> float:
        """Seconds until the lease ends unless it is renewed, by this machine's clock; never below 0."""
        return max(0.0, self._until - time.monotonic())

    def _renew_timeout(self) -> float:
        """Returns the seconds for one renewal."""
        return min(RENEW_TIMEOUT, max(MIN_PAUSE, self.remaining / 2 or RENEW_TIMEOUT))

    def _pause(self) -> float:
        """Returns the seconds until the next renewal."""
        return max(MIN_PAUSE, (self._until - time.monotonic()) / RENEWALS)

    def _pause_after(self, error: TempoolError) -> Optional[float]:
        """Returns the seconds until a failed renewal is retried; None if the lease is lost."""
        if isinstance(error, (LeaseFenced, LeaseNotFound)) or time.monotonic() >= self._until:
            self._lost = error
            return None
        return min(RETRY, self._pause())

    def _check(self, closed: bool) -> None:
        """Raises LeaseFenced if the lease has ended."""
        lost = self._lost
        if lost is not None:
            raise LeaseFenced("lease %s was lost: %s" % (self.id, lost), "lease_fenced", False) from lost
        if closed:
            raise LeaseFenced("lease %s was checked in" % self.id, "lease_fenced", False)


class Lease(Granted, Caller):
    """The exclusive right to one worker: all calls under it reach the same process. Pool.lease() returns one.

    A background thread renews the lease until it is closed. A with block checks it in at its end: with outcome "error" if the block
    raised, and the worker serves again after a successful probe, else with "ok".

    After a lost lease (its worker ended, or it could not be renewed), every call raises LeaseFenced, and so does a checkin that finds it
    ended.
    """

    def __init__(self, client: Client, gateway: Endpoint, granted: Dict[str, Any], ttl: Optional[float]) -> None:
        super().__init__(granted, ttl)
        self._client = client
        self._gateway = gateway
        self._closing = threading.Event()
        self._once = threading.Lock()
        self._checked_in = False  # guarded by _once
        self._renewer = threading.Thread(target=self._renew_until_closed, name="tempool-lease-" + self.id, daemon=True)
        self._renewer.start()

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], _: Optional[TracebackType]) -> None:
        if kind is None:
            self.close()
            return
        try:
            self.close("error", error)
        except TempoolError:
            pass  # the block's exception matters more, and the lease expires anyway

    def notify(self, method: str, params: Any = None, *, timeout: Optional[float] = None, headers: Optional[Mapping[str, str]] = None) -> None:
        """Sends a notification, which the worker does not answer, and returns when the gateway has forwarded it. The worker receives it before
        calls made later."""
        path = "%s/notify/%s" % (self._path, segment(method, "a method name", slashes=True))
        self._request_as_holder(path, b"" if params is None else encode(params), Options(timeout=timeout, headers=headers)).read()

    def renew(self, ttl: Optional[float] = None) -> None:
        """Extends the lease to ttl seconds from now; None means the requested ttl. The background thread does this, too."""
        began = time.monotonic()
        ttl = self._ttl if ttl is None else ttl
        body = encode({} if ttl is None else {"ttl_ms": ttl_ms(ttl)})
        deadline = began + self._renew_timeout()
        renewed = decode(self._request("PUT", self._path, {"Content-Type": "application/json"}, body, deadline, idempotent=True).read())
        self._until = began + renewed["ttl_ms"] / 1000

    def close(self, outcome: str = "ok", error: Union[str, BaseException, None] = None) -> None:
        """Checks the worker in. outcome is "ok", "error" (the worker is probed before it serves again) or "close" (its process is replaced);
        error is the reason, a text or an exception. After an error it may be repeated; after a success a second call does nothing."""
        self._closing.set()
        self._renewer.join()
        with self._once:
            if not self._checked_in:
                deadline = time.monotonic() + self._client.timeout
                self._request("DELETE", self._path + checkin_query(outcome, error), {}, b"", deadline, idempotent=True).read()
                self._checked_in = True

    def _send(self, method: str, body: bytes, options: Options) -> Reply:
        path = "%s/call/%s" % (self._path, segment(method, "a method name", slashes=True))
        return self._request_as_holder(path, body, options)

    def _request_as_holder(self, path: str, body: bytes, options: Options) -> Reply:
        """Sends a request that only the holder may make. Raises LeaseFenced if the lease has ended."""
        self._check(self._closing.is_set())
        headers = call_headers(options, self.session, self.key)
        return self._request("POST", path, headers, body, self._client.deadline(options.timeout))

    def _request(self, method: str, path: str, headers: Dict[str, str], body: bytes, deadline: float, idempotent: bool = False) -> Reply:
        """Sends a request to the lease's gateway, which may be another one than the gateway that granted it. While that one does not serve, another
        one of the client does."""
        headers = dict(headers, **self._token)
        try:
            return self._client.balancer.request(method, path, headers, body, deadline, idempotent, first=self._gateway)
        except LeaseNotFound as e:
            if e.endpoint is None or e.endpoint == self._gateway.endpoint:
                raise
            gateway = self._client.balancer.at(e.endpoint)
        try:
            reply = self._client.balancer.request(method, path, headers, body, deadline, idempotent, only=gateway)
        except WorkerError:
            self._gateway = gateway
            raise
        self._gateway = gateway  # not before an answer of the worker: it may be unreachable from here
        return reply

    def _renew_until_closed(self) -> None:
        pause: Optional[float] = self._pause()
        while pause is not None and not self._closing.wait(pause):
            try:
                self.renew()
                pause = self._pause()
            except TempoolError as e:
                pause = self._pause_after(e)
