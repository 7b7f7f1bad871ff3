"""The client: where the gateways are, and the pools behind them."""

import os
import socket
import ssl
import time
import uuid

from .calls import Caller, call_headers, deadline_of, decode, encode, segment
from .errors import Invalid
from .fleet import Fleet
from .lease import Lease
from .sessions import Sessions

#: where an agent's gateway listens unless it is told otherwise
DEFAULT_ENDPOINT = "http://127.0.0.1:7460"
_MOST_WAIT = 300.0  # seconds that a gateway lets a checkout wait


class Client:
    """A client of one or more gateways, safe for use by many threads. Close it, or use it as a context manager.

    endpoint is http://HOST:PORT, https://HOST:PORT or unix:/PATH, or several in a list or separated by commas: requests are then spread
    over them, and go to the others while one cannot be reached. Without it, the environment's TEMPOOL_GATEWAY says, else it is
    http://127.0.0.1:7460.

    token is the gateways' bearer token, or token_file the file that holds it. It is sent over https, Unix sockets and within this machine,
    never in the clear over a network. ca_file holds the authorities that an https gateway's certificate is checked against, in place of the
    system's; cert_file and key_file are this client's own certificate. Or give an ssl.SSLContext of your own as tls.

    timeout is in seconds and for each request, tries included, that brings none of its own. retries is how often a request is sent
    again that no worker has seen, such as one that a full queue refused.

    ValueError for an endpoint that is none; OSError for a file that cannot be read.
    """

    def __init__(self, endpoint=None, *, token=None, token_file=None, ca_file=None, cert_file=None, key_file=None, tls=None, timeout=60.0, retries=8):
        if endpoint is None:
            endpoint = os.environ.get("TEMPOOL_GATEWAY") or DEFAULT_ENDPOINT
        if isinstance(endpoint, str):
            endpoint = endpoint.split(",")
        endpoints = [one.strip().rstrip("/") for one in endpoint if one.strip()]
        if not endpoints:
            raise ValueError("a client needs an endpoint, such as %s" % DEFAULT_ENDPOINT)
        if token is not None and token_file is not None:
            raise ValueError("give the token or the file that holds it, not both")
        if token_file is not None:
            with open(token_file, encoding="utf-8") as f:
                token = f.read().strip()
        if tls is not None and (ca_file or cert_file or key_file):
            raise ValueError("give tls, or the files to make it of, not both")
        if tls is None and (ca_file or cert_file or any(one.startswith("https:") for one in endpoints)):
            tls = ssl.create_default_context(cafile=ca_file)
            if cert_file:
                tls.load_cert_chain(cert_file, key_file)
        deadline_of(timeout, timeout)
        if retries < 0:
            raise ValueError("retries is how often a request is sent again, at least 0")
        self.timeout = timeout
        self.fleet = Fleet(endpoints, token, tls, retries)
        #: the sessions of the store that the pools of a host share
        self.sessions = Sessions(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Closes the connections that are kept. Leases that are out are not given back."""
        self.fleet.close()

    def pool(self, name):
        """The pool of a name, whether or not there is one."""
        return Pool(self, name)

    def pools(self):
        """Every pool with its workers, as a list of dicts: pool, size, ready, workers."""
        return self.read("/v1/pools")

    def workers(self):
        """Every worker with its state and metrics, as a list of dicts: worker, state, health, incarnation, requests_served and many more."""
        return self.read("/v1/workers")

    def read(self, path):
        """What a GET of a path answers, decoded. For what has no method of its own here."""
        return decode(self.fleet.ask("GET", path, {}, b"", time.monotonic() + self.timeout, safe=True).read())

    def deadline(self, timeout):
        """For this package: when a request that may take timeout seconds, None for the client's, has to be over."""
        return deadline_of(timeout, self.timeout)


class Pool(Caller):
    """A pool: each call goes to whichever worker is free, and waits for one."""

    def __init__(self, client, name):
        self.name = name
        self._client = client
        self._path = "/v1/pools/" + segment(name, "a pool's name")
        #: the sessions of this pool's calls
        self.sessions = Sessions(client, name)

    def status(self):
        """The pool as a dict: pool, size, ready, workers (each with state and metrics). PoolNotFound if there is none."""
        return self._client.read(self._path)

    def lease(self, ttl=None, *, holder=None, session=None, wait=None):
        """Waits for a free worker and takes a lease on it, for calls that have to reach one and the same process.

        ttl in seconds is how long the lease outlives this program; None is the pool's lease.ttl. holder is who shows as holding the worker;
        None names this machine and process. wait in seconds is how long to wait for a worker, None the client's timeout; 0 waits not at all.
        Raises NoWorkers or QueueTimeout when none came free.
        """
        if ttl is not None and ttl <= 0:
            raise Invalid("ttl is a number of seconds above 0, not %r" % (ttl,), "invalid")
        wait = min(self._client.timeout if wait is None else wait, _MOST_WAIT)
        began = time.monotonic()
        request = {"holder": holder or "%s:%d" % (socket.gethostname(), os.getpid()), "request_id": str(uuid.uuid4()), "wait_ms": int(wait * 1000)}
        if session is not None:
            request["session"] = session
        if ttl is not None:
            request["ttl_ms"] = max(1, int(ttl * 1000))
        reply = self._client.fleet.ask(
            "POST", self._path + "/leases", {"Content-Type": "application/json"}, encode(request), began + wait + self._client.timeout,
            again_until=began + wait)
        return Lease(self._client, reply.gateway, decode(reply.read()), ttl)

    def _send(self, method, body, timeout, session, priority, headers):
        path = "%s/call/%s" % (self._path, segment(method, "a method", slashes=True))
        headers = call_headers(session, priority, headers)
        return self._client.fleet.ask("POST", path, headers, body, self._client.deadline(timeout))
