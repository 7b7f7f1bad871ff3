"""A worker's methods in the process of a test."""

from __future__ import annotations

import asyncio
import contextvars
import json
import time
import uuid
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, cast

import tempool

from ..client.calls import Caller, Options, call_headers
from ..client.endpoint import Reply
from ..client.errors import MethodNotFound, TempoolError, WorkerError
from ..context import Context, bind
from ..errors import host_error
from ..frames import encode_headers
from ..responses import exception_payload
from .. import worker as worker_module
from .sessions import MemorySessions

worker_module.in_process = True


class TestWorker(Caller):
    """Calls the methods of a Worker, by default that of the package's functions, as a pool would: JSON goes in and out, errors are those that a
    client gets, sessions are in memory. start() and stop() run its hooks. One call at a time."""

    __test__ = False  # for pytest

    def __init__(self, worker: Optional[tempool.Worker] = None, sessions: Optional[MemorySessions] = None) -> None:
        self._worker: Any = worker or tempool.default_worker
        self._loop = asyncio.new_event_loop()
        #: the store of its calls' sessions
        self.sessions = sessions or MemorySessions()
        #: what its calls have counted, by name
        self.counts: Dict[str, int] = {}

    def start(self) -> None:
        """Runs the on_start hooks."""
        self._hooks(self._worker._on_start)

    def stop(self) -> None:
        """Runs the on_stop hooks, and closes the event loop."""
        self._hooks(self._worker._on_stop)
        self._loop.close()

    def check_health(self) -> None:
        """Runs the on_health hooks; raises what they raise if the worker is unhealthy."""
        self._hooks(self._worker._on_health)

    def _hooks(self, hooks: Any) -> None:
        for hook in hooks:
            result = hook()
            if asyncio.iscoroutine(result):
                self._loop.run_until_complete(result)

    def _send(self, method: str, body: bytes, options: Options) -> Reply:
        found = self._worker._methods.get(method)
        if found is None:
            error = MethodNotFound("method %s not found; this worker has: %s" % (method, ", ".join(sorted(self._worker._methods))), "method_not_found", True)
            error.worker_code = "method_not_found"
            raise error
        return cast(Reply, _Reply(self, found, body, options))


class _Reply:
    """An answer like that of a gateway. It stands for the connection in the call's Context, too."""

    def __init__(self, worker: TestWorker, method: Any, body: bytes, options: Options) -> None:
        self.headers: Mapping[str, str] = {"Tempool-Worker": "test/0", "Tempool-Incarnation": "1"}
        self._worker, self._loop, self._session = worker, worker._loop, options.session or "temporary-" + uuid.uuid4().hex
        headers = {name.lower(): value for name, value in call_headers(options).items() if value != "application/json"}
        headers["tempool-timeout"] = "" if options.timeout is None else str(int(options.timeout * 1000))
        self._call = Context(self, 1, encode_headers(headers), time.monotonic())
        self._variables = contextvars.copy_context()
        self._variables.run(bind, self)
        self._cancelled = False
        self._pieces = self._run(method, body)
        self._first = next(self._pieces, b"")  # an error before it is that of the call

    def _run(self, method: Any, body: bytes) -> Iterator[bytes]:
        try:
            result = self._step(lambda: method.call(body))
            if method.streams:
                yield from self._stream(method, result)
            elif method.is_async:
                yield method.to_payload(self._await(lambda: result))
            else:
                yield result
        except (GeneratorExit, SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise _worker_error(error) from error
        finally:
            for name, n in self._call._counts.items():
                self._worker.counts[name] = self._worker.counts.get(name, 0) + n

    def _stream(self, method: Any, chunks: Any) -> Iterator[bytes]:
        if method.is_async:
            try:
                while True:
                    try:
                        yield method.to_chunk(self._await(chunks.__anext__))
                    except StopAsyncIteration:
                        return
            finally:
                self._await(chunks.aclose)
        try:
            while True:
                try:
                    yield method.to_chunk(self._step(lambda: next(chunks)))
                except StopIteration as end:
                    if end.value is not None:
                        yield method.to_payload(end.value)
                    return
        finally:
            chunks.close()

    def _step(self, do: Callable[[], Any]) -> Any:
        return self._variables.run(do)

    def _await(self, start: Callable[[], Any]) -> Any:
        async def run() -> Any:
            return await start()

        return self._step(lambda: self._loop.run_until_complete(run()))

    def read_some(self) -> bytes:
        first, self._first = self._first, b""
        return first or next(self._pieces, b"")

    def read(self) -> bytes:
        return b"".join(iter(self.read_some, b""))

    def close(self) -> None:
        self._cancelled = True
        cast(Any, self._pieces).close()

    # What a Context uses of its connection:

    def context(self) -> Context:
        return self._call

    def is_cancelled(self, _: int) -> bool:
        return self._cancelled

    def host_call(self, _: int, method: str, payload: bytes) -> bytes:
        try:
            result = self._worker.sessions.host_call(self._session, method, json.loads(payload) if payload else {})
        except TempoolError as e:
            raise host_error(str(e), e.code) from None
        return json.dumps(result).encode()


def _worker_error(error: BaseException) -> WorkerError:
    """Returns what a client gets for an exception of a method."""
    report = json.loads(exception_payload(error))
    failure = WorkerError(report["message"], "worker_error", True)
    failure.worker_code, failure.type, failure.traceback = report["code"], report["type"], report["traceback"]
    failure.data, failure.fatal, failure.unhandled = report.get("data"), report.get("fatal", False), report.get("unhandled", False)
    return failure
