"""Sessions: what is remembered between calls, for any worker to find."""

import time

from .calls import decode, encode, segment


class Sessions:
    """The session store behind the gateways. A session is a dict: id, data, programs and metadata (dicts of what JSON can hold), version,
    created_at, last_accessed and ttl (such as "1h0m0s").

    Its calls name it: pool.call(…, session="id"). version makes a change conditional: VersionConflict if the session has another by then.
    All of them raise TempoolError, or one of its kinds.
    """

    def __init__(self, client):
        self._client = client

    def get(self, id):
        """The session; SessionNotFound if there is none. Extends its life."""
        return decode(self._ask("GET", id))

    def put(self, id, data=None, *, programs=None, metadata=None, ttl=None, version=None):
        """Makes a session, or replaces the one there is, and returns it. ttl is a text such as "30m"; None is the pool's."""
        session = {"data": data, "programs": programs, "metadata": metadata, "ttl": ttl}
        return decode(self._ask("PUT", id, {name: part for name, part in session.items() if part is not None}, version))

    def patch(self, id, patch, version=None):
        """Applies a JSON merge patch (RFC 7396) such as {"data": {"key": "value"}} at once, and returns the new session."""
        return decode(self._ask("PATCH", id, patch, version))

    def delete(self, id, version=None):
        """Ends a session; nothing happens if there is none."""
        self._ask("DELETE", id, None, version)

    def _ask(self, method, id, body=None, version=None):
        headers = {} if body is None else {"Content-Type": "application/merge-patch+json" if method == "PATCH" else "application/json"}
        if version is not None:
            headers["If-Match"] = '"%d"' % version
        path = "/v1/sessions/" + segment(id, "a session's id")
        safe = method == "GET" or version is None and method != "PATCH"
        deadline = time.monotonic() + self._client.timeout
        return self._client.fleet.ask(method, path, headers, b"" if body is None else encode(body), deadline, safe).read()
