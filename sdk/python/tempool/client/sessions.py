"""Sessions: client state between calls."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple
from urllib.parse import quote

from .backup import Content, save
from .calls import deadline_of, decode, encode, segment
from .endpoint import Endpoint
from .errors import SessionNotFound, TempoolError

if TYPE_CHECKING:
    from .client import Client

Session = Dict[str, Any]


class Sessions:
    """The session store behind the gateways. A session is a dict: id, data, programs and metadata (dicts of what JSON can hold), version,
    created_at, last_accessed and ttl (such as "1h").

    client.sessions uses the store that the pools of a host share, pool.sessions the store of that pool. To use a session in a call:
    pool.call(…, session="id"). With version, a change raises VersionConflict if the session has another version. All methods raise
    TempoolError or a subclass.
    """

    def __init__(self, client: Client, pool: Optional[str] = None) -> None:
        self._client = client
        self._pool = pool
        self._query = "" if pool is None else "?pool=" + segment(pool, "a pool name")

    def get(self, id: str) -> Session:
        """Returns the session and extends its ttl. Raises SessionNotFound."""
        return _session(self._request("GET", id))

    def new(
        self, data: Optional[Dict[str, Any]] = None, *, programs: Optional[Dict[str, Any]] = None, metadata: Optional[Dict[str, Any]] = None,
        ttl: Optional[str] = None,
    ) -> Session:
        """Creates an anonymous session, whose id the gateway chooses, and returns it. It lives for ttl after its last use; None means the pool's
        sessions.anonymous_ttl. Name its id in calls: pool.call(…, session=new["id"])."""
        return _session(self._request("POST", None, self._content(data, programs, metadata, ttl)))

    def put(
        self, id: str, data: Optional[Dict[str, Any]] = None, *, programs: Optional[Dict[str, Any]] = None,
        metadata: Optional[Dict[str, Any]] = None, ttl: Optional[str] = None, version: Optional[int] = None, create: bool = False,
    ) -> Session:
        """Creates a session, or replaces its content, and returns it. ttl is a duration such as "30m"; None means the pool's. With
        create=True, raises SessionExists if the session exists."""
        return _session(self._request("PUT", id, self._content(data, programs, metadata, ttl), version, create))

    def patch(self, id: str, patch: Dict[str, Any], version: Optional[int] = None) -> Session:
        """Applies a JSON merge patch (RFC 7396), for example {"data": {"key": "value"}}, atomically, and returns the new session. Raises
        SessionNotFound."""
        return _session(self._request("PATCH", id, patch, version))

    def delete(self, id: str) -> None:
        """Deletes a session if it exists."""
        try:
            self._request("DELETE", id)
        except SessionNotFound:
            pass

    def export_to(self, path: str, timeout: float = 3600.0) -> int:
        """Backs the pool's session store up to a file while the sessions are in use, and returns their number. A complete backup replaces the
        file. Only of pool.sessions."""
        return save(self._client.balancer.request("GET", self._of_pool("/sessions/export"), {}, b"", deadline_of(timeout, timeout), True), path)

    def import_from(self, path: str, *, any_pool: bool = False, timeout: float = 3600.0) -> Dict[str, int]:
        """Restores a backup while the sessions are in use, and returns counts: {"created", "replaced", "kept", "expired"}. No session is replaced
        by one with the same or a lower version. An error names the line, and what was done before; the import can be repeated. With any_pool,
        the backup may be of another pool. Only of pool.sessions."""
        content = Content(path)
        headers = {"Content-Type": "application/x-ndjson", "Content-Length": str(content.size)}
        target = self._of_pool("/sessions/import") + ("?any_pool=true" if any_pool else "")
        return _session(self._client.balancer.request("POST", target, headers, content, deadline_of(timeout, timeout), True).read())

    def bindings(self, after: str = "", limit: int = 100) -> Dict[str, Any]:
        """Lists which sessions of the pool are bound to which workers of the hosts that the client's endpoints name, by session: {"bindings":
        [{"session", "worker"}], "next"}. next is the argument after for the next page, "" on the last. Raises TempoolError if a gateway does not
        answer. Only of pool.sessions."""
        query = "?after=%s&limit=%d" % (quote(after, safe=""), limit)
        pages = [decode(body) for body in self._ask_each("GET", self._bindings() + query)]
        found = sorted({(b["session"], b["worker"]) for page in pages for b in page["bindings"]})
        end = min(limit, len(found))
        while 0 < end < len(found) and found[end][0] == found[end - 1][0]:
            end += 1  # all bindings of a session are on one page
        more = end < len(found) or any(page["next"] for page in pages)
        return {"bindings": [{"session": s, "worker": w} for s, w in found[:end]], "next": found[end - 1][0] if more and end else ""}

    def bind(self, id: str, number: int) -> None:
        """Has the worker with this number serve the session's calls if it is free, and ends the session's bindings on the other hosts that the
        client's endpoints name. Runs no hook: what a process keeps of the session stays there. A worker without a process is the code
        worker_not_found. An error whose text says that the session is bound is one of ending another binding. Only of pool.sessions."""
        path, worker = self._bindings() + "/" + segment(id, "a session id"), "%s/%d" % (self._pool, number)
        headers, deadline = {"Content-Type": "application/json"}, time.monotonic() + self._client.timeout
        reply = self._client.balancer.request("PUT", path, headers, encode({"worker": worker}), deadline, True, follow=True)
        reply.read()
        try:
            self._ask_each("DELETE", path + "?keep=" + quote(worker, safe=""), reply.gateway)
        except TempoolError as e:
            text = "session %s is bound to %s; its bindings on other hosts could not be ended, bind it again: %s" % (id, worker, e)
            raise type(e)(text, e.code, e.started, e.retry_after, e.status) from e

    def unbind(self, id: str) -> None:
        """Ends the bindings of the session on the hosts that the client's endpoints name. Only of pool.sessions."""
        self._ask_each("DELETE", self._bindings() + "/" + segment(id, "a session id"))

    @staticmethod
    def _content(
        data: Optional[Dict[str, Any]], programs: Optional[Dict[str, Any]], metadata: Optional[Dict[str, Any]], ttl: Optional[str],
    ) -> Dict[str, Any]:
        session = {"data": data, "programs": programs, "metadata": metadata, "ttl": ttl}
        return {name: part for name, part in session.items() if part is not None}

    def _bindings(self) -> str:
        return self._of_pool("/bindings")

    def _of_pool(self, path: str) -> str:
        if self._pool is None:
            raise TypeError("bindings and backups belong to a pool: use client.pool(NAME).sessions")
        return "/v1/pools/" + segment(self._pool, "a pool name") + path

    def _ask_each(self, method: str, path: str, also: Optional[Endpoint] = None) -> List[bytes]:
        return self._client.balancer.request_each(method, path, time.monotonic() + self._client.timeout, also)

    def _request(
        self, method: str, id: Optional[str], body: Optional[Dict[str, Any]] = None, version: Optional[int] = None, create: bool = False,
    ) -> bytes:
        path, headers, idempotent = session_request(method, id, body is not None, version, create)
        deadline = time.monotonic() + self._client.timeout
        return self._client.balancer.request(method, path + self._query, headers, b"" if body is None else encode(body), deadline, idempotent).read()


def session_request(method: str, id: Optional[str], body: bool, version: Optional[int], create: bool) -> Tuple[str, Dict[str, str], bool]:
    """Returns the path and the headers of a request about a session, and whether it may be repeated."""
    headers = {"Content-Type": "application/merge-patch+json" if method == "PATCH" else "application/json"} if body else {}
    if version is not None:
        headers["If-Match"] = '"%d"' % version
    if create:
        headers["If-None-Match"] = "*"
    path = "/v1/sessions" + ("" if id is None else "/" + segment(id, "a session id"))
    return path, headers, method in ("GET", "DELETE") or method == "PUT" and version is None and not create


def _session(body: bytes) -> Dict[str, Any]:
    answer: Dict[str, Any] = decode(body)
    return answer
