"""The concurrent server: the main thread reads frames, a fixed set of threads runs the handlers, and an event loop the async ones."""

from __future__ import annotations

import queue
import sys
import threading
import time

from . import forked, frames, garbage, responses, tracing
from .connection import Closed
from .context import Context, bind
from .errors import ProtocolError
from .host import hello, host_result, max_message_of

TYPE_CHECKING = False  # the import of typing would slow the start of every worker
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional, Set, Tuple

    import asyncio

    from .connection import Stream
    from .methods import Method


class Threaded:
    """Serves one connection until the host closes it or stop() is called. loop runs the async methods; None if there are none. check runs the
    hooks of a ping; None if there are none."""

    def __init__(self, stream: Stream, methods: Dict[str, Method], threads: int, loop: Any = None,
                 check: Optional[Callable[[], Any]] = None) -> None:
        self.stream = stream
        self.check = check
        self.loop = loop
        self.methods = {name.encode(): method for name, method in methods.items()}
        self.threads = threads
        self.requests: queue.SimpleQueue[Optional[_Call]] = queue.SimpleQueue()  # bounded by the spec's max_inflight
        self.lock = threading.Lock()  # guards the fields below
        self.unanswered: Dict[int, _Call] = {}  # id → the call: queued, running or cancelled
        self.on_loop: Set[_Call] = set()  # calls of async methods
        self.host_call_id = 0  # of the latest host call
        self.host_results: Dict[int, queue.SimpleQueue[Optional[Tuple[int, bytes]]]] = {}  # host call id → the queue for its result
        self.pending = 0  # requests and notifications received and not done
        self.closed = False  # once nothing is read any more
        self.exit: Optional[BaseException] = None  # the SystemExit or KeyboardInterrupt of a handler
        self.stopping = False  # if it is set, no call begins
        self.greeted = False  # once the hello is sent

    @property
    def max_message(self) -> int:
        return self.stream.max_message

    def send(self, *frame: Any) -> None:
        self.stream.send(*frame)

    def stop(self) -> None:
        """Makes run() return after the calls that have begun. Signal handlers may call it: it takes no lock."""
        self.stopping = True
        if self.pending == 0:
            self.stream.stop_reading()

    def detach(self) -> None:
        """In a child of os.fork: makes the child end when its handler does. Other threads, which the child lacks, may have held the lock."""
        self.stream.detach()
        self.lock = threading.Lock()

    def run(self) -> None:
        forked.detach_in_children(self)
        if self.loop is not None:
            self.loop.on_exit = self._exit
        self.send(frames.HELLO, 0, hello(self.methods))
        self.greeted = True
        workers = [threading.Thread(target=self._work, name="tempool-%d" % n, daemon=True) for n in range(self.threads)]
        for thread in workers:
            thread.start()
        try:
            while True:
                self._handle(self.stream.next())
        except Closed:
            pass
        for _ in workers:
            self.requests.put(None)
        with self.lock:
            self.closed = True
            for waiting in self.host_results.values():
                waiting.put(None)
            if not self.stopping and self.exit is None:  # the host is gone, so nobody waits for answers
                for call in self.unanswered.values():
                    call.cancelled = True
            on_loop = list(self.on_loop)
        if self.loop is not None:
            for call in on_loop:
                self.loop.call(call.cancel)
            self.loop.wait([call.future for call in on_loop])
        for thread in workers:
            thread.join()
        if self.exit is not None:
            raise self.exit

    def _handle(self, frame: frames.Frame) -> None:
        kind, _, id, name, headers, body = frame
        if kind == frames.REQUEST:
            self._queue(id, name, headers, body)
        elif kind == frames.NOTIFY:
            self._queue(0, name, headers, body)
        elif kind == frames.PING:
            if self.check is None:
                self.send(frames.PONG, id)
            else:  # on a thread of its own, of which there is one: the host has one unanswered ping
                threading.Thread(target=self._pong, args=(id, self.check), name="tempool-health", daemon=True).start()
        elif kind == frames.CANCEL:
            self._cancel(id)
        elif kind in (frames.HOST_RESULT, frames.HOST_ERROR):
            with self.lock:
                waiting = self.host_results.get(id)
            if waiting is None:
                raise ProtocolError("result for unknown host call %d" % id)
            waiting.put((kind, body))
        elif kind == frames.HELLO:
            self.stream.max_message = max_message_of(body)
        else:
            raise ProtocolError("unexpected frame of type %d: only workers send it" % kind)

    def _queue(self, id: int, name: bytes, headers: bytes, body: bytes) -> None:
        method = self.methods.get(name)
        if method is None and id:
            self.send(frames.ERROR, id, responses.not_found(name, self.methods))
            return
        if method is None:
            if not garbage.collected(name):
                print("tempool: notification for unknown method %r dropped" % name.decode(errors="replace"), file=sys.stderr, flush=True)
            return
        call = _Call(self, method, id, headers, body)
        with self.lock:
            self.pending += 1  # first: a stop() from now on reads on for this call
            refused = self.stopping and id  # else others would keep the worker from its end
            if not refused:
                if id:
                    self.unanswered[id] = call
                if method.is_async:
                    self.on_loop.add(call)
                    call.future = self.loop.start(self._run_async(call))
                    return
        if refused:
            self.send(frames.ERROR, id, responses.NOT_BEGUN)
            self._ended(call)
        else:
            self.requests.put(call)

    def _pong(self, id: int, check: Callable[[], Any]) -> None:
        try:
            responses.pong(self, id, check)
        except (SystemExit, KeyboardInterrupt) as end:
            self._exit(end)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the reader sees it, too

    def _cancel(self, id: int) -> None:
        with self.lock:
            call = self.unanswered.get(id)
            if call is not None:
                call.cancelled = True
                if not call.running:
                    del self.unanswered[id]
                elif call.future is not None:
                    self.loop.call(call.cancel)
        if call is not None and not call.running:
            self.send(frames.ERROR, id, responses.error_payload("cancelled", "cancelled before it started"))

    def _work(self) -> None:
        while True:
            call = self.requests.get()
            if call is None:
                return
            try:
                if self._begin(call):
                    call.run()
            except BaseException as error:
                self._ended(call, error)
            else:
                self._ended(call)

    async def _run_async(self, call: _Call) -> None:
        try:
            if self._begin(call):
                await call.run_async()
        except BaseException as error:
            self._ended(call, error)
        else:
            self._ended(call)

    def _begin(self, call: _Call) -> bool:
        with self.lock:
            call.running = not call.cancelled
            return call.running

    def _ended(self, call: _Call, error: Optional[BaseException] = None) -> None:
        """Counts a call as done. error is what ended it instead of its response."""
        if isinstance(error, (SystemExit, KeyboardInterrupt)):
            self._exit(error)
        elif error is not None and not isinstance(error, (BrokenPipeError, ConnectionResetError)):  # then the reader sees it, too
            responses.log_exception(error)
        if self.stream.detached:
            forked.end()
        with self.lock:
            self.unanswered.pop(call.id, None)
            self.on_loop.discard(call)
            self.pending -= 1
            last = self.stopping and self.pending == 0
        if last:
            self.stream.stop_reading()

    def _exit(self, end: BaseException) -> None:
        """Ends the worker with the SystemExit or KeyboardInterrupt of a handler, or with what ended the event loop."""
        if self.stream.detached:
            code = end.code if isinstance(end, SystemExit) else 1
            forked.end(code=code if isinstance(code, int) else 0 if code is None else 1)
        self.exit = end
        self.stream.stop_reading()


class _Call:
    """One call on one thread. Its handler and its Context use it as their connection."""

    def __init__(self, server: Threaded, method: Method, id: int, headers: bytes, body: bytes) -> None:
        self.server = server
        self.method = method
        self.id = id
        self.headers = headers
        self.body = body
        self.arrival = time.monotonic()
        self.send = server.send
        self.max_message = server.max_message
        self.running = False  # both guarded by server.lock
        self.cancelled = False
        self.current: Optional[Context] = None
        self.future: Any = None  # of an async method
        self.task: Optional[asyncio.Task[Any]] = None  # of an async method, once it runs; used on the event loop only

    def run(self) -> None:
        bind(self)
        span = self._start_span()
        try:
            if self.id:
                responses.serve(self, self.method, self.id, self.body)
                return
            try:
                result = self.method.call(self.body)
                if self.method.streams:
                    for _ in result:
                        pass
            finally:
                self._report_counts()
        finally:
            if span is not None:
                tracing.end(span)
            bind(None)

    def _start_span(self) -> Optional[Tuple[Any, Any]]:
        if self.id and self.headers and b"traceparent" in self.headers:
            return tracing.start(self.method.name.encode(), self.headers)
        return None

    async def run_async(self) -> None:
        bind(self)
        self.task = self.server.loop.current_task()
        if self.id:
            span = self._start_span()
            try:
                await self.server.loop.serve(self, self.method, self.id, self.body)
            finally:
                if span is not None:
                    tracing.end(span)
            return
        try:
            result = self.method.call(self.body)
            if self.method.streams:
                async for _ in result:
                    pass
            else:
                await result
        finally:
            self._report_counts()

    def cancel(self) -> None:
        """Cancels the task of an async method, on the event loop."""
        if self.task is not None:
            self.task.cancel()

    def _report_counts(self) -> None:
        if self.current is not None:
            self.current.report_counts()

    def context(self) -> Context:
        if self.current is None:
            self.current = Context(self, self.id, self.headers, self.arrival)
        return self.current

    def is_cancelled(self, id: int) -> bool:
        return self.cancelled

    def take_requests(self) -> Tuple[int, ...]:
        return ()  # those that were received may have begun

    def host_call(self, id: int, method: str, payload: bytes) -> bytes:
        server = self.server
        result: queue.SimpleQueue[Optional[Tuple[int, bytes]]] = queue.SimpleQueue()
        with server.lock:
            if server.closed:  # nobody would read its result
                return host_result(None)
            server.host_call_id = mine = server.host_call_id % 0x3FFFFFFF + 1
            server.host_results[mine] = result
        try:
            headers = frames.encode_headers({"call": str(id)}) if id else b""
            server.send(frames.HOST_CALL, mine, payload, headers, method.encode())
            return host_result(result.get())
        finally:
            with server.lock:
                del server.host_results[mine]
