"""Sessions: what is remembered between calls, for any worker to find."""

import time

from .calls import decode, encode, segment
from .errors import SessionNotFound


class Sessions:
    """The session store behind the gateways. A session is a dict: id, data, programs and metadata (dicts of what JSON can hold), version,
    created_at, last_accessed and ttl (such as "1h").

    client.sessions is the store that the pools of a host share, pool.sessions the one of a pool that has its own. Calls name their session:
    pool.call(…, session="id"). version makes a change conditional: VersionConflict if the session has another by then. All of them raise
    TempoolError, or one of its kinds.
    """

    def __init__(self, client, pool=None):
        self._client = client
        self._query = "" if pool is None else "?pool=" + segment(pool, "a pool's name")

    def get(self, id):
        """The session; SessionNotFound if there is none. Extends its life."""
        return decode(self._ask("GET", id))

    def put(self, id, data=None, *, programs=None, metadata=None, ttl=None, version=None, create=False):
        """Makes a session, or replaces what is in the one there is, and returns it. ttl is a text such as "30m"; None is the pool's. With
        create=True it replaces none: SessionExists if there is one."""
        session = {"data": data, "programs": programs, "metadata": metadata, "ttl": ttl}
        return decode(self._ask("PUT", id, {name: part for name, part in session.items() if part is not None}, version, create))

    def patch(self, id, patch, version=None):
        """Applies a JSON merge patch (RFC 7396) such as {"data": {"key": "value"}} at once, and returns the new session; SessionNotFound if
        there is none."""
        return decode(self._ask("PATCH", id, patch, version))

    def delete(self, id):
        """Ends a session; nothing happens if there is none."""
        try:
            self._ask("DELETE", id)
        except SessionNotFound:
            pass

    def _ask(self, method, id, body=None, version=None, create=False):
        headers = {} if body is None else {"Content-Type": "application/merge-patch+json" if method == "PATCH" else "application/json"}
        if version is not None:
            headers["If-Match"] = '"%d"' % version
        if create:
            headers["If-None-Match"] = "*"
        path = "/v1/sessions/" + segment(id, "a session's id") + self._query
        safe = method in ("GET", "DELETE") or method == "PUT" and version is None and not create
        deadline = time.monotonic() + self._client.timeout
        return self._client.fleet.ask(method, path, headers, b"" if body is None else encode(body), deadline, safe).read()
