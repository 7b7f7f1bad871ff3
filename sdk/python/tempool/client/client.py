"""The Client and its pools."""

from __future__ import annotations

import os
import ssl
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Union

from .calls import Caller, Options, call_headers, deadline_of, decode, segment
from .errors import Invalid, TempoolError
from .balancer import Balancer
from .endpoint import Reply
from .lease import Checkout, Lease
from .map import Result, map_calls
from .sessions import Sessions

#: the default address of an agent's gateway
DEFAULT_ENDPOINT = "http://127.0.0.1:7460"
DEFAULT_CONCURRENCY, MAX_CONCURRENCY = 8, 256  # of Pool.map, where the size of the pool is unknown; of Pool.map and submit


class Client:
    """A client of one or more gateways, safe for use by many threads. Close it, or use it as a context manager.

    endpoint is http://HOST:PORT, https://HOST:PORT or unix:/PATH, or several of them as a list or separated by commas. The client
    balances requests over several endpoints and avoids unreachable ones. The default is TEMPOOL_GATEWAY from the environment, else
    http://127.0.0.1:7460.

    token is the gateways' bearer token; token_file is a file that contains it. The client sends it over https, Unix sockets and loopback
    only, never unencrypted over a network. ca_file contains the CA certificates for https, instead of the system's; cert_file and key_file
    are a client certificate. tls is an ssl.SSLContext to use instead of these files. TEMPOOL_TOKEN or TEMPOOL_TOKEN_FILE, TEMPOOL_CA_FILE,
    TEMPOOL_CERT_FILE and TEMPOOL_KEY_FILE in the environment stand for what is not given.

    timeout in seconds is the default for each request, retries included. retries is how often a request that no worker has received is
    sent again, for example after queue_full.

    Raises ValueError for an invalid endpoint, OSError for an unreadable file.
    """

    def __init__(
        self, endpoint: Union[str, Iterable[str], None] = None, *, token: Optional[str] = None, token_file: Optional[str] = None,
        ca_file: Optional[str] = None, cert_file: Optional[str] = None, key_file: Optional[str] = None, tls: Optional[ssl.SSLContext] = None,
        timeout: float = 60.0, retries: int = 8,
    ) -> None:
        settings = Settings(endpoint, token, token_file, ca_file, cert_file, key_file, tls, timeout, retries)
        self.timeout: float = timeout
        self.balancer: Balancer = Balancer(settings.endpoints, settings.token, settings.tls, settings.retries)
        self._lock = threading.Lock()
        self._threads: Optional[ThreadPoolExecutor] = None  # guarded by _lock
        self._pid = 0  # guarded by _lock: of the process that has _threads; a forked child has none of them
        #: sessions in the store that the pools of a host share
        self.sessions = Sessions(self)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Waits for the calls of Pool.submit, and closes idle connections. It does not check in leases."""
        with self._lock:
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown()
        self.balancer.close()

    def threads(self) -> ThreadPoolExecutor:
        """For this package: the threads of Pool.submit."""
        with self._lock:
            if self._threads is None or self._pid != os.getpid():
                self._threads, self._pid = ThreadPoolExecutor(MAX_CONCURRENCY, thread_name_prefix="tempool-submit"), os.getpid()
            return self._threads

    def pool(self, name: str) -> Pool:
        """Returns the pool of this name without checking that it exists."""
        return Pool(self, name)

    def pools(self) -> List[Dict[str, Any]]:
        """Returns all pools with their workers, as a list of dicts: pool, size, ready, workers."""
        pools: List[Dict[str, Any]] = self.read("/v1/pools")
        return pools

    def workers(self) -> List[Dict[str, Any]]:
        """Returns all workers with their state and metrics, as a list of dicts: worker, state, health, incarnation, requests_served and many more."""
        workers: List[Dict[str, Any]] = self.read("/v1/workers")
        return workers

    def read(self, path: str) -> Any:
        """Returns the decoded answer to a GET of a path, for endpoints without a method here."""
        return decode(self.balancer.request("GET", path, {}, b"", time.monotonic() + self.timeout, idempotent=True).read())

    def deadline(self, timeout: Optional[float]) -> float:
        """For this package: returns the deadline of a request with this timeout; None means the client's timeout."""
        return deadline_of(timeout, self.timeout)


class Settings:
    """What the arguments of a client and the environment say. Raises ValueError for what does not fit, OSError for an unreadable file."""

    def __init__(
        self, endpoint: Union[str, Iterable[str], None], token: Optional[str], token_file: Optional[str], ca_file: Optional[str],
        cert_file: Optional[str], key_file: Optional[str], tls: Optional[ssl.SSLContext], timeout: float, retries: int,
    ) -> None:
        if endpoint is None:
            endpoint = os.environ.get("TEMPOOL_GATEWAY") or DEFAULT_ENDPOINT
        if isinstance(endpoint, str):
            endpoint = endpoint.split(",")
        endpoints = [one.strip().rstrip("/") for one in endpoint if one.strip()]
        if not endpoints:
            raise ValueError("no endpoint given; use for example %s" % DEFAULT_ENDPOINT)
        if token is not None and token_file is not None:
            raise ValueError("token and token_file are mutually exclusive")
        if token is None and token_file is None:
            token, token_file = os.environ.get("TEMPOOL_TOKEN") or None, os.environ.get("TEMPOOL_TOKEN_FILE") or None
            if token is not None:
                token_file = None
        if tls is None:
            ca_file = ca_file or os.environ.get("TEMPOOL_CA_FILE") or None
            if not (cert_file or key_file):
                cert_file, key_file = os.environ.get("TEMPOOL_CERT_FILE") or None, os.environ.get("TEMPOOL_KEY_FILE") or None
            if key_file and not cert_file:
                raise ValueError("key_file without cert_file")
        if token_file is not None:
            with open(token_file, encoding="utf-8") as f:
                token = f.read().strip()
        if tls is not None and (ca_file or cert_file or key_file):
            raise ValueError("tls cannot be combined with ca_file, cert_file and key_file")
        if tls is None and (ca_file or cert_file or any(one.startswith("https:") for one in endpoints)):
            tls = ssl.create_default_context(cafile=ca_file)
            if cert_file:
                tls.load_cert_chain(cert_file, key_file)
        deadline_of(timeout, timeout)
        if retries < 0:
            raise ValueError("retries must be at least 0")
        self.endpoints, self.token, self.tls, self.retries = endpoints, token, tls, retries


class Pool(Caller):
    """A pool: each call goes to a free worker and waits for one if necessary."""

    def __init__(self, client: Client, name: str) -> None:
        self.name = name
        self._client = client
        self._path = "/v1/pools/" + segment(name, "a pool name")
        #: sessions of this pool's calls
        self.sessions = Sessions(client, name)

    def worker(self, number: int) -> Worker:
        """Returns the worker with this number, from 0, for calls that must reach this one; each waits in the queue until the worker is free."""
        return Worker(self, number)

    def status(self) -> Dict[str, Any]:
        """Returns the pool as a dict: pool, size, ready, workers (each with state and metrics). Raises PoolNotFound if it does not exist."""
        status: Dict[str, Any] = self._client.read(self._path)
        return status

    def lease(
        self, ttl: Optional[float] = None, *, holder: Optional[str] = None, session: Optional[str] = None,
        wait: Optional[float] = None, key: Optional[str] = None,
    ) -> Lease:
        """Waits for a free worker and checks it out, for calls that must reach the same process.

        ttl in seconds is how long the lease lives after its last renewal; None means the pool's lease.ttl. holder is shown as the worker's
        holder; None means this machine and process. wait in seconds limits the wait for a worker; None means the client's timeout, 0 no
        wait. key is that of the calls under the lease. Raises NoWorkers or QueueTimeout if no worker became free.
        """
        checkout = Checkout(ttl, holder, session, self._client.timeout if wait is None else wait, key)
        reply = self._client.balancer.request(
            "POST", self._path + "/leases", {"Content-Type": "application/json"}, checkout.body, checkout.until + self._client.timeout,
            retry_until=checkout.until)
        return Lease(self._client, reply.gateway, checkout.granted(reply.read()), ttl)

    def submit(
        self, method: str, params: Any = None, *, timeout: Optional[float] = None, session: Optional[str] = None,
        priority: Optional[int] = None, headers: Optional[Mapping[str, str]] = None, key: Optional[str] = None,
    ) -> Future[Any]:
        """Calls a method on another thread and returns its future, whose result is that of call. The client runs at most 256 at a time."""
        return self._client.threads().submit(
            self.call, method, params, timeout=timeout, session=session, priority=priority, headers=headers, key=key)

    def map(
        self, method: str, items: Iterable[Any], *, ordered: bool = True, concurrency: Optional[int] = None,
        on_progress: Optional[Callable[[int], None]] = None, timeout: Optional[float] = None, session: Optional[str] = None,
        priority: Optional[int] = None, headers: Optional[Mapping[str, str]] = None, key: Optional[str] = None,
    ) -> Iterator[Result]:
        """Calls a method once for each item, the parameters of that call, and yields a Result for each, with its value or its error: in the
        order of the items, or with ordered=False as the calls end.

        concurrency is how many calls run at a time; None means twice the number of the pool's workers. on_progress(done) is called after each
        call. The other arguments are those of call; timeout is for each.
        """
        if concurrency is not None and not 1 <= concurrency <= MAX_CONCURRENCY:
            raise Invalid("concurrency must be from 1 to %d, not %r" % (MAX_CONCURRENCY, concurrency), "invalid")
        return map_calls(
            lambda item: self.call(method, item, timeout=timeout, session=session, priority=priority, headers=headers, key=key),
            items, ordered, concurrency or self._usual_concurrency(), on_progress)

    def _usual_concurrency(self) -> int:
        try:
            return usual_concurrency(self.status())
        except TempoolError:
            return DEFAULT_CONCURRENCY  # the token may not have the right read

    def _send(self, method: str, body: bytes, options: Options) -> Reply:
        return self._send_to(self._path, method, body, options)

    def _send_to(self, path: str, method: str, body: bytes, options: Options) -> Reply:
        path = "%s/call/%s" % (path, segment(method, "a method name", slashes=True))
        return self._client.balancer.request("POST", path, call_headers(options), body, self._client.deadline(options.timeout))


class Worker(Caller):
    """One worker of a pool. A call raises TempoolError with the code worker_not_found if the pool has no such worker."""

    def __init__(self, pool: Pool, number: int) -> None:
        if not isinstance(number, int) or number < 0:
            raise Invalid("a worker's number must be an integer from 0, not %r" % (number,), "invalid")
        self.pool = pool
        self.number = number

    def _send(self, method: str, body: bytes, options: Options) -> Reply:
        return self.pool._send_to("%s/workers/%d" % (self.pool._path, self.number), method, body, options)


def usual_concurrency(status: Dict[str, Any]) -> int:
    """Returns the concurrency of a map on a pool with this status."""
    return min(2 * len(status["workers"]) or DEFAULT_CONCURRENCY, MAX_CONCURRENCY)
