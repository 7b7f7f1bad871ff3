"""Sessions: client state between calls."""

import time
from urllib.parse import quote

from .calls import decode, encode, segment
from .errors import SessionNotFound


class Sessions:
    """The session store behind the gateways. A session is a dict: id, data, programs and metadata (dicts of what JSON can hold), version,
    created_at, last_accessed and ttl (such as "1h").

    client.sessions uses the store that the pools of a host share, pool.sessions the store of that pool. To use a session in a call:
    pool.call(…, session="id"). With version, a change raises VersionConflict if the session has another version. All methods raise
    TempoolError or a subclass.
    """

    def __init__(self, client, pool=None):
        self._client = client
        self._pool = pool
        self._query = "" if pool is None else "?pool=" + segment(pool, "a pool name")

    def get(self, id):
        """Returns the session and extends its ttl. Raises SessionNotFound."""
        return decode(self._request("GET", id))

    def put(self, id, data=None, *, programs=None, metadata=None, ttl=None, version=None, create=False):
        """Creates a session, or replaces its content, and returns it. ttl is a duration such as "30m"; None means the pool's. With
        create=True, raises SessionExists if the session exists."""
        session = {"data": data, "programs": programs, "metadata": metadata, "ttl": ttl}
        return decode(self._request("PUT", id, {name: part for name, part in session.items() if part is not None}, version, create))

    def patch(self, id, patch, version=None):
        """Applies a JSON merge patch (RFC 7396), for example {"data": {"key": "value"}}, atomically, and returns the new session. Raises
        SessionNotFound."""
        return decode(self._request("PATCH", id, patch, version))

    def delete(self, id):
        """Deletes a session if it exists."""
        try:
            self._request("DELETE", id)
        except SessionNotFound:
            pass

    def bindings(self, after="", limit=100):
        """Lists which sessions of the pool are bound to which workers of the host that answers: {"bindings": [{"session", "worker"}], "next"}. next
        is the argument after for the next page, "" on the last. Only of pool.sessions."""
        query = "?after=%s&limit=%d" % (quote(after, safe=""), limit)
        return decode(self._ask("GET", self._bindings() + query))

    def bind(self, id, number):
        """Has the worker with this number serve the session's calls while it is free. Runs no hook: what a process keeps of the session stays
        there. A worker without a process is the code worker_not_found. Only of pool.sessions."""
        self._ask("PUT", self._bindings() + "/" + segment(id, "a session id"), {"worker": "%s/%d" % (self._pool, number)})

    def unbind(self, id):
        """Ends the binding of the session on the host that answers. Only of pool.sessions."""
        self._ask("DELETE", self._bindings() + "/" + segment(id, "a session id"))

    def _bindings(self):
        if self._pool is None:
            raise TypeError("bindings are those of a pool: use client.pool(NAME).sessions")
        return "/v1/pools/" + segment(self._pool, "a pool name") + "/bindings"

    def _ask(self, method, path, body=None):
        headers = {} if body is None else {"Content-Type": "application/json"}
        deadline = time.monotonic() + self._client.timeout
        return self._client.balancer.request(method, path, headers, b"" if body is None else encode(body), deadline, True).read()

    def _request(self, method, id, body=None, version=None, create=False):
        headers = {} if body is None else {"Content-Type": "application/merge-patch+json" if method == "PATCH" else "application/json"}
        if version is not None:
            headers["If-Match"] = '"%d"' % version
        if create:
            headers["If-None-Match"] = "*"
        path = "/v1/sessions/" + segment(id, "a session id") + self._query
        idempotent = method in ("GET", "DELETE") or method == "PUT" and version is None and not create
        deadline = time.monotonic() + self._client.timeout
        return self._client.balancer.request(method, path, headers, b"" if body is None else encode(body), deadline, idempotent).read()
