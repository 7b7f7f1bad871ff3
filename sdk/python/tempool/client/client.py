"""The Client and its pools."""

import os
import secrets
import socket
import ssl
import time
import uuid

from .calls import Caller, call_headers, deadline_of, decode, encode, segment
from .errors import Invalid
from .balancer import Balancer
from .lease import Lease
from .sessions import Sessions

#: the default address of an agent's gateway
DEFAULT_ENDPOINT = "http://127.0.0.1:7460"
_MAX_WAIT = 300.0  # seconds; the gateways' limit for a checkout


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

    def __init__(self, endpoint=None, *, token=None, token_file=None, ca_file=None, cert_file=None, key_file=None, tls=None, timeout=60.0, retries=8):
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
        if tls is None and not (ca_file or cert_file or key_file):
            ca_file, cert_file, key_file = (os.environ.get("TEMPOOL_" + name) or None for name in ("CA_FILE", "CERT_FILE", "KEY_FILE"))
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
        self.timeout = timeout
        self.balancer = Balancer(endpoints, token, tls, retries)
        #: sessions in the store that the pools of a host share
        self.sessions = Sessions(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Closes idle connections. It does not check in leases."""
        self.balancer.close()

    def pool(self, name):
        """Returns the pool of this name without checking that it exists."""
        return Pool(self, name)

    def pools(self):
        """Returns all pools with their workers, as a list of dicts: pool, size, ready, workers."""
        return self.read("/v1/pools")

    def workers(self):
        """Returns all workers with their state and metrics, as a list of dicts: worker, state, health, incarnation, requests_served and many more."""
        return self.read("/v1/workers")

    def read(self, path):
        """Returns the decoded answer to a GET of a path, for endpoints without a method here."""
        return decode(self.balancer.request("GET", path, {}, b"", time.monotonic() + self.timeout, idempotent=True).read())

    def deadline(self, timeout):
        """For this package: returns the deadline of a request with this timeout; None means the client's timeout."""
        return deadline_of(timeout, self.timeout)


class Pool(Caller):
    """A pool: each call goes to a free worker and waits for one if necessary."""

    def __init__(self, client, name):
        self.name = name
        self._client = client
        self._path = "/v1/pools/" + segment(name, "a pool name")
        #: sessions of this pool's calls
        self.sessions = Sessions(client, name)

    def worker(self, number):
        """Returns the worker with this number, from 0, for calls that must reach this one; each waits in the queue until the worker is free."""
        return Worker(self, number)

    def status(self):
        """Returns the pool as a dict: pool, size, ready, workers (each with state and metrics). Raises PoolNotFound if it does not exist."""
        return self._client.read(self._path)

    def lease(self, ttl=None, *, holder=None, session=None, wait=None):
        """Waits for a free worker and checks it out, for calls that must reach the same process.

        ttl in seconds is how long the lease lives after its last renewal; None means the pool's lease.ttl. holder is shown as the worker's
        holder; None means this machine and process. wait in seconds limits the wait for a worker; None means the client's timeout, 0 no
        wait. Raises NoWorkers or QueueTimeout if no worker became free.
        """
        if ttl is not None and ttl <= 0:
            raise Invalid("ttl must be above 0 seconds, not %r" % (ttl,), "invalid")
        wait = min(self._client.timeout if wait is None else wait, _MAX_WAIT)
        began = time.monotonic()
        token = secrets.token_urlsafe(24)  # the lease's secret: its owner can use the lease
        request = {"token": token, "holder": holder or "%s:%d" % (socket.gethostname(), os.getpid()), "request_id": str(uuid.uuid4()), "wait_ms": int(wait * 1000)}
        if session is not None:
            request["session"] = session
        if ttl is not None:
            request["ttl_ms"] = max(1, int(ttl * 1000))
        reply = self._client.balancer.request(
            "POST", self._path + "/leases", {"Content-Type": "application/json"}, encode(request), began + wait + self._client.timeout,
            retry_until=began + wait)
        return Lease(self._client, reply.gateway, dict(decode(reply.read()), token=token), ttl)

    def _send(self, *call):
        return self._send_to(self._path, *call)

    def _send_to(self, path, method, body, timeout, session, priority, headers):
        path = "%s/call/%s" % (path, segment(method, "a method name", slashes=True))
        headers = call_headers(session, priority, headers)
        return self._client.balancer.request("POST", path, headers, body, self._client.deadline(timeout))


class Worker(Caller):
    """One worker of a pool. A call raises TempoolError with the code worker_not_found if the pool has no such worker."""

    def __init__(self, pool, number):
        if not isinstance(number, int) or number < 0:
            raise Invalid("a worker's number must be an integer from 0, not %r" % (number,), "invalid")
        self.pool = pool
        self.number = number

    def _send(self, *call):
        return self.pool._send_to("%s/workers/%d" % (self.pool._path, self.number), *call)
