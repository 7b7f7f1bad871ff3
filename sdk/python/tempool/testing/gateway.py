"""A gateway for tests, over real HTTP, whose answers the test scripts."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Dict, Iterator, List, Mapping, Optional
from urllib.parse import unquote, urlsplit

from ..client.endpoint import utf8
from ..client.errors import (
    LeaseFenced, LeaseNotFound, MethodNotFound, PoolNotFound, QueueTimeout, SessionExists, SessionNotFound, TempoolError, Unauthorized,
    WorkerCrashed, WorkerError,
)
from .sessions import MemorySessions
from .worker import TestWorker, _worker_error

_STATUSES = {
    "invalid": 400, "unauthorized": 401, "forbidden": 403, "not_found": 404, "pool_not_found": 404, "worker_not_found": 404, "lease_not_found": 404,
    "session_not_found": 404, "method_not_found": 404, "lease_fenced": 409, "session_exists": 412, "version_conflict": 412,
    "payload_too_large": 413, "queue_full": 429, "rate_limited": 429, "worker_crashed": 502, "memory_limit_exceeded": 502, "no_workers": 503,
    "queue_timeout": 503, "busy": 503, "unavailable": 503, "deadline_exceeded": 504,
}
_DEFAULT_TTL = 60_000  # ms


def crash(started: bool = True) -> WorkerCrashed:
    """The process ends in the middle of the call, as the answer of a script: the caller gets WorkerCrashed, leases on the worker are fenced, and its
    next process has a higher incarnation. With started=False, the call had not reached it."""
    return WorkerCrashed("the process ended during the call", "worker_crashed", started)


@dataclass(frozen=True)
class Call:
    """A call that came in at a FakeGateway."""

    pool: str
    worker: str
    method: str
    params: Any
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    session: Optional[str] = None
    lease: Optional[str] = None


@dataclass
class _Worker:
    pool: str
    number: int
    incarnation: int = 1
    lease: Optional[Dict[str, Any]] = None
    until: float = 0.0  # of the lease, in time.monotonic() seconds

    @property
    def name(self) -> str:
        return "%s/%d" % (self.pool, self.number)

    def live(self) -> Optional[Dict[str, Any]]:
        return self.lease if time.monotonic() < self.until else None

    def renew(self, lease: Dict[str, Any], ttl_ms: int) -> None:
        lease["ttl_ms"], self.until = ttl_ms, time.monotonic() + ttl_ms / 1000

    def status(self) -> Dict[str, Any]:
        return {"worker": self.name, "state": "busy" if self.live() else "ready", "incarnation": self.incarnation}


class _Pool:
    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.workers = [_Worker(name, n) for n in range(size)]
        self.scripts: Dict[str, List[Any]] = {}
        self.served: Optional[TestWorker] = None

    def status(self) -> Dict[str, Any]:
        return {"pool": self.name, "size": len(self.workers), "ready": len(self.workers), "workers": [w.status() for w in self.workers]}


class FakeGateway:
    """A gateway on a loopback port. Use it as a context manager.

    Pools, of size workers each, exist once a test has scripted one of their methods or has them served by a TestWorker. Calls never wait: without a
    free worker they fail with queue_timeout. With token, requests need it.
    """

    def __init__(self, *, size: int = 1, token: Optional[str] = None) -> None:
        self._size, self._token = size, token
        self._lock = threading.RLock()
        self._pools: Dict[str, _Pool] = {}  # guarded by _lock
        self._seq = 0  # guarded by _lock
        #: the calls that came in
        self.calls: List[Call] = []
        self.sessions = MemorySessions()
        gateway = self

        class Handler(_Handler):
            def respond(self) -> None:
                gateway._serve(self)

            do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = respond

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.endpoint = "http://127.0.0.1:%d" % self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def __enter__(self) -> FakeGateway:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def on(self, pool: str, method: str, *answers: Any) -> FakeGateway:
        """Scripts the answers of a method: each call gets the next, and the last one stays. An answer is a value, an exception (a TempoolError is the
        gateway's, any other one the worker's), an iterator for a stream, or a function of (params, call) that returns or raises one."""
        if not answers:
            raise ValueError("on() needs at least one answer")
        self._pool(pool).scripts[method] = list(answers)
        return self

    def serve(self, pool: str, worker: TestWorker) -> FakeGateway:
        """Has a pool's calls run by a TestWorker, one at a time."""
        self._pool(pool).served = worker
        return self

    def fence(self, pool: str) -> None:
        """Ends the leases of a pool, as if they had expired: the next request under one fails with lease_fenced."""
        for worker in self._pool(pool).workers:
            worker.lease = None

    def leases(self, pool: str) -> List[Dict[str, Any]]:
        """Returns the leases of a pool: id, holder, worker and more."""
        return [lease for worker in self._pool(pool).workers for lease in [worker.live()] if lease]

    def _pool(self, name: str) -> _Pool:
        with self._lock:
            return self._pools.setdefault(name, _Pool(name, self._size))

    def _serve(self, handler: _Handler) -> None:
        handler.begun, handler.worker = False, None  # a connection carries many requests
        handler.body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        try:
            if self._token and handler.headers.get("Authorization") != "Bearer " + self._token:
                raise Unauthorized("missing or invalid bearer token", "unauthorized")
            self._route(handler)
        except Exception as error:
            if handler.begun:
                handler.close_connection = True  # a stream breaks off
            else:
                handler.problem(error if isinstance(error, TempoolError) else _worker_error(error))

    def _route(self, handler: _Handler) -> None:
        path = urlsplit(handler.path).path
        parts = [unquote(part) for part in path.split("/")[2:]] + ["", "", ""]
        kind, id, verb = parts[:3]
        method = "/".join(parts[3:-3])
        if kind == "leases":
            self._lease(handler, id, verb, method)
        elif kind == "sessions":
            self._session(handler, id)
        elif kind == "workers":
            handler.answer([worker.status() for pool in list(self._pools.values()) for worker in pool.workers])
        elif kind != "pools":
            raise TempoolError("there is no route " + path, "not_found")
        elif not id:
            handler.answer([pool.status() for pool in list(self._pools.values())])
        else:
            pool = self._pools.get(id)
            if pool is None:
                raise PoolNotFound("pool %s is not running" % id, "pool_not_found")
            if not verb:
                handler.answer(pool.status())
            elif verb == "leases":
                handler.answer(self._grant(pool, handler.json()), 201)
            elif verb == "workers":
                number, _, method = method.partition("/call/")
                if int(number) >= len(pool.workers):
                    raise TempoolError("pool %s has no such worker" % id, "worker_not_found")
                self._call(handler, pool, self._free(pool.workers[int(number):int(number) + 1]), method)
            else:
                self._call(handler, pool, self._free(pool.workers), method)

    @staticmethod
    def _free(workers: List[_Worker]) -> _Worker:
        for worker in workers:
            if not worker.live():
                return worker
        raise QueueTimeout("no worker is free", "queue_timeout")

    def _grant(self, pool: _Pool, asked: Dict[str, Any]) -> Dict[str, Any]:
        with self._lock:
            worker = self._free(pool.workers)
            self._seq += 1
            lease = {
                "id": "%s.%d.%d.%d" % (pool.name, worker.number, worker.incarnation, self._seq), "worker": worker.name, "seq": self._seq,
                "incarnation": worker.incarnation, "holder": asked["holder"], "session": asked.get("session"), "token": asked.get("token"),
                "endpoint": self.endpoint,
            }
            worker.renew(lease, asked.get("ttl_ms") or _DEFAULT_TTL)
            worker.lease = lease
            return lease

    def _lease(self, handler: _Handler, id: str, verb: str, method: str) -> None:
        name, _, rest = id.partition(".")
        pool = self._pools.get(name)
        if pool is None:
            raise LeaseNotFound("lease %s was never granted" % id, "lease_not_found")
        worker = pool.workers[int(rest.split(".")[0])]
        lease = worker.live()
        if lease is None or lease["id"] != id:
            raise LeaseFenced("lease %s has ended" % id, "lease_fenced")
        if lease["token"] and handler.headers.get("Tempool-Lease-Token") != lease["token"]:
            raise Unauthorized("the token of the lease is missing or wrong", "forbidden")
        if verb == "call":
            self._call(handler, pool, worker, method, id)
        elif verb == "notify":
            self._record(handler, pool, worker, method, id)
            handler.answer(None, 202)
        else:
            if handler.command == "DELETE":
                worker.lease = None
            else:
                worker.renew(lease, (handler.json() or {}).get("ttl_ms") or lease["ttl_ms"])
            handler.answer(lease)

    def _record(self, handler: _Handler, pool: _Pool, worker: _Worker, method: str, lease: Optional[str]) -> Call:
        try:
            params = handler.json()
        except ValueError:
            params = None  # bytes
        headers = utf8(handler.headers)
        call = Call(
            pool.name, worker.name, method, params, handler.body, headers, headers.get("Tempool-Session"), lease)
        self.calls.append(call)
        return call

    def _call(self, handler: _Handler, pool: _Pool, worker: _Worker, method: str, lease: Optional[str] = None) -> None:
        call = self._record(handler, pool, worker, method, lease)
        handler.worker = worker
        try:
            with self._lock:
                script = pool.scripts.get(method)
                answer: Any = None if script is None else script.pop(0) if len(script) > 1 else script[0]
            if script is None:
                self._serve_call(handler, pool, call)
                return
            if callable(answer):
                answer = answer(call.params, call)
            if isinstance(answer, BaseException):
                raise answer
            if hasattr(answer, "__next__"):
                handler.stream(json.dumps(value).encode() + b"\n" for value in answer)
            else:
                handler.answer(answer)
        except WorkerCrashed as error:
            if error.started:
                worker.incarnation += 1
                worker.lease = None
            raise

    def _serve_call(self, handler: _Handler, pool: _Pool, call: Call) -> None:
        if pool.served is None:
            raise MethodNotFound("method %s not found" % call.method, "method_not_found", True)
        headers = {name: value for name, value in call.headers.items() if name.lower().startswith("x-")}
        with self._lock, pool.served.stream(call.method, call.body, raw=True, session=call.session, headers=headers) as pieces:
            handler.stream(pieces)

    def _session(self, handler: _Handler, id: str) -> None:
        match = handler.headers.get("If-Match")
        version = int(match.strip('"')) if match else None
        if handler.command == "GET":
            handler.answer(self.sessions.get(id))
        elif handler.command == "PATCH":
            handler.answer(self.sessions.patch(id, handler.json(), version))
        elif handler.command == "DELETE":
            self.sessions.delete(id)
            handler.answer(None, 204)
        elif handler.command == "POST":
            with self._lock:
                self._seq += 1
                handler.answer(self.sessions.put("anonymous-%d" % self._seq, handler.json()), 201)
        else:
            with self._lock:
                if handler.headers.get("If-None-Match"):
                    try:
                        self.sessions.get(id)
                    except SessionNotFound:
                        pass
                    else:
                        raise SessionExists("session %s exists" % id, "session_exists")
                handler.answer(self.sessions.put(id, handler.json(), version))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that breaks off is part of tests


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    body = b""
    begun = False
    worker: Optional[_Worker] = None

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def json(self) -> Any:
        return json.loads(self.body) if self.body else None

    def _head(self, status: int, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if self.worker is not None:
            self.send_header("Tempool-Worker", self.worker.name)
            self.send_header("Tempool-Incarnation", str(self.worker.incarnation))

    def answer(self, value: Any, status: int = 200, kind: str = "application/json") -> None:
        body = b"" if value is None else json.dumps(value).encode()
        self._head(status, kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, pieces: Iterator[bytes]) -> None:
        """Answers with pieces; an error before the first is the caller's to answer."""
        first = next(iter(pieces), b"")
        self._head(200, "application/x-ndjson")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.begun = True
        piece = first
        while piece:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            piece = next(pieces, b"")
        self.wfile.write(b"0\r\n\r\n")

    def problem(self, error: TempoolError) -> None:
        status = error.status or _STATUSES.get(error.code, 500)
        problem: Dict[str, Any] = {"title": error.code, "status": status, "detail": str(error), "code": error.code, "started": error.started}
        if error.retry_after is not None:
            problem["retry_after_ms"] = int(error.retry_after * 1000)
        if isinstance(error, WorkerError):
            problem["worker_error"] = {
                "code": error.worker_code, "type": error.type, "message": str(error), "traceback": error.traceback, "data": error.data,
                "fatal": error.fatal, "unhandled": error.unhandled,
            }
        self.answer(problem, status, "application/problem+json")
