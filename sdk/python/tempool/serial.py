"""The default server: one call at a time on the main thread, with a minimal path from the socket to the handler."""

from __future__ import annotations

import _thread
import sys
import time
from collections import deque
from os import read as _read

from . import forked, frames, garbage, responses, tracing
from .connection import READ, Closed
from .context import Context, bind
from .errors import ProtocolError
from .host import hello, host_result, max_message_of

TYPE_CHECKING = False  # the import of typing would slow the start of every worker
if TYPE_CHECKING:
    from typing import Any, Callable, Deque, Dict, Iterable, List, Optional, Set, Tuple

    from .connection import Stream
    from .methods import Method

_RLock = getattr(_thread, "RLock")  # threading's, whose import would slow the start; older type stubs lack it
_unpack = frames.HEAD_WORDS.unpack_from
_now = time.monotonic
_REQUEST = frames.REQUEST << 24  # the second word of a request without flags, less its bytes of method
_LONGEST = _REQUEST + frames.MAX_METHOD
_MAX_HEADERS = frames.MAX_HEADERS
_TRACED = 4 + len("traceparent") + 55  # bytes of the shortest headers that name a trace
_CANCEL = frames.encode(frames.CANCEL, 1)[:8]  # what is before its id
_LONG = 0.001  # seconds of a call in which a cancel of the next one may well have come


class Serial:
    """Serves one connection until the host closes it or stop() is called."""

    def __init__(self, stream: Stream, methods: Dict[str, Method], check: Optional[Callable[[], Any]] = None) -> None:
        self.stream = stream
        self.check = check  # runs the hooks of a ping; None if there are none
        self.greeted = False  # once the hello is sent
        self.send = self.stream.send
        self.methods = {name.encode(): method for name, method in methods.items()}
        self.calls = {name: method.call for name, method in self.methods.items() if not method.streams}
        self.waiting: Deque[frames.Frame] = deque()  # frames received during a handler's host call or check for cancellation
        self.cancelled: Set[int] = set()  # calls cancelled while running or waiting
        self.host_results: Dict[int, Optional[Tuple[int, bytes]]] = {}  # host call id → its result
        self.abandoned: Set[int] = set()  # host calls that an exception of a signal handler has ended
        self.reading = _RLock()  # held while a handler reads: it may run threads, and signal handlers may call the host, too
        self.host_call_id = 0  # of the latest host call
        self.busy = False  # while a frame is handled
        self.stopping = False
        self.accepted: Optional[Iterable[int]] = None  # once it stops: the requests that it still serves
        # Of the call in flight: its id (0 for a notification), a buffer and where its headers begin and end in it, and its arrival.
        self.call: Any = None
        self.current: Optional[Context] = None  # its Context, once the handler has used it

    @property
    def max_message(self) -> int:
        return self.stream.max_message

    def stop(self) -> None:
        """Makes run() return after the call in flight and those already received. Signal handlers may call it."""
        self.stopping = True
        if not self.busy:
            self.stream.stop_reading()
            # A request that was read just before could make no host call.
            self.accepted = ()
            self.calls.clear()

    def detach(self) -> None:
        """In a child of os.fork: makes the child end when its handler does."""
        self.stream.detach()
        self.send = self.stream.send
        self.waiting.clear()
        self.reading = _RLock()  # another thread may have held it

    def run(self) -> None:
        bind(self)
        forked.detach_in_children(self)
        self.send(frames.HELLO, 0, hello(self.methods))
        self.greeted = True
        try:
            self._serve_frames()
        except Closed:
            pass
        finally:
            bind(None)

    def _serve_frames(self) -> None:
        """Serves frames until the stream ends.

        The most frequent frame is a small request that needs no span, whose handler does not stream. It is served without a function for each
        step, which would cost as much again as the steps. Every other frame goes through _next() and _handle().
        """
        stream, waiting, calls, cancelled, fd = self.stream, self.waiting, self.calls, self.cancelled, self.stream.fd
        began = 0.0  # the call before, or an earlier one
        id = headers = fields = body = end = 0
        while True:
            self.busy = False
            buffer, at = stream.buffer, stream.at
            if at < len(buffer) or waiting:
                if _now() - began > _LONG:  # what is there was received before its cancel, which may have come since
                    self._receive()
                    buffer, at = stream.buffer, stream.at
            elif not self.stopping:
                try:
                    buffer = _read(fd, READ)
                except BlockingIOError:
                    continue
                if not buffer:
                    raise Closed()
                stream.buffer = buffer
                stream.at = at = 0
            self.busy = True
            call = None
            size = len(buffer)
            if size - at >= 16 and not waiting:
                length, word, id, headers = _unpack(buffer, at)
                fields = at + 16 + word - _REQUEST
                body, end = fields + headers, at + 4 + length
                if _REQUEST < word <= _LONGEST and id and headers <= _MAX_HEADERS and body <= end <= size:
                    if end < size and buffer.find(_CANCEL, end) >= 0:
                        self._receive()
                        continue
                    call = calls.get(buffer[at + 16:fields])
                    if headers >= _TRACED and call is not None and not tracing.missing and buffer.find(b"traceparent", fields, body) >= 0:
                        block = buffer[fields:body]
                        call = tracing.below(block, call) if tracing.unsampled(block) else None
            if call is None:
                self.busy = False
                frame = self._next()
                self.busy = True
                began = _now()
                self._handle(frame)
                if stream.detached:
                    forked.end()
                continue
            stream.at = end
            self.current = None
            if headers:
                began = _now()
            self.call = id, buffer, fields, body, began
            try:
                payload = call(buffer[body:end])
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                responses.send_exception(self, id, error)
            else:
                if self.current is None and len(payload) <= stream.max_message:
                    stream.respond(id, payload)
                else:
                    responses.send_result(self, id, payload)
            self.call = None
            if cancelled:
                cancelled.discard(id)

    def _next(self) -> frames.Frame:
        """Returns the next frame. Once the worker stops and has none, it refuses further ones first."""
        if self.stopping and self.accepted is None:
            self._receive()
            self.accepted = {frame[2] for frame in self.waiting if frame[0] == frames.REQUEST}
        if self.waiting:
            return self.waiting.popleft()
        frame = self.stream.next(wait=not self.stopping)
        if frame is None:
            self.stream.stop_reading()
            frame = self.stream.next()
        return frame

    def _receive(self) -> None:
        """Handles the cancels that have arrived behind calls that have not begun, and keeps the other frames in their order."""
        try:
            while True:
                frame = self.stream.next(wait=False)
                if frame is None:
                    return
                if frame[0] == frames.CANCEL:
                    self._cancel(frame[2])
                else:
                    self.waiting.append(frame)
        except Closed:
            pass  # the next read finds it again

    def take_requests(self) -> List[int]:
        """Takes the requests that have arrived and have not begun. Returns their ids."""
        self._receive()
        taken = [frame for frame in self.waiting if frame[0] == frames.REQUEST]
        for frame in taken:
            self.waiting.remove(frame)
        return [frame[2] for frame in taken]

    def _serve(self, id: int, name: bytes, headers: bytes, body: bytes) -> None:
        method = self.methods.get(name)
        if method is None:
            self.send(frames.ERROR, id, responses.not_found(name, self.methods))
            return
        self.current = None
        self.call = id, headers, None, None, _now() if headers else 0.0
        span = tracing.start(name, headers) if headers and b"traceparent" in headers else None
        try:
            responses.serve(self, method, id, body)
        finally:
            self.call = None
            if span is not None:
                tracing.end(span)
            self.cancelled.discard(id)

    def context(self) -> Optional[Context]:
        """Returns the Context of the call in flight, or None."""
        if self.current is None and self.call is not None:
            id, buffer, fields, body, arrival = self.call
            self.current = Context(self, id, buffer[fields:body], arrival)
        return self.current

    def _handle(self, frame: frames.Frame) -> None:
        """Handles a frame while no handler runs."""
        kind, _, id, name, headers, body = frame
        if kind == frames.REQUEST and self.accepted is not None and id not in self.accepted:
            self.send(frames.ERROR, id, responses.NOT_BEGUN)
        elif kind == frames.REQUEST:
            self._serve(id, name, headers, body)
        elif kind == frames.NOTIFY:
            self._notification(name, headers, body)
        else:
            self._handle_now(frame)

    def _handle_now(self, frame: frames.Frame) -> bool:
        """Handles a frame that cannot wait for the running handler; returns False for one that can."""
        kind, _, id, _, _, body = frame
        if kind == frames.PING:
            if self.check is None:
                self.send(frames.PONG, id)
            elif self.call is not None:
                return False  # a hook must not run in the middle of a handler
            else:
                responses.pong(self, id, self.check)
        elif kind == frames.CANCEL:
            self._cancel(id)
        elif kind in (frames.HOST_RESULT, frames.HOST_ERROR):
            if id in self.abandoned:
                self.abandoned.remove(id)
            elif id not in self.host_results:
                raise ProtocolError("result for unknown host call %d" % id)
            else:
                self.host_results[id] = (kind, body)
        elif kind == frames.HELLO:
            self.stream.max_message = max_message_of(body)
        elif kind in (frames.REQUEST, frames.NOTIFY):
            return False
        else:
            raise ProtocolError("unexpected frame of type %d: only workers send it" % kind)
        return True

    def _cancel(self, id: int) -> None:
        """Marks the call in flight as cancelled, or responds at once for a call that has not started."""
        if self.call is not None and self.call[0] == id:
            self.cancelled.add(id)
            return
        queued = [f for f in self.waiting if f[2] == id and f[0] == frames.REQUEST]
        for frame in queued:
            self.waiting.remove(frame)
        if queued:
            self.send(frames.ERROR, id, responses.error_payload("cancelled", "cancelled before it started"))

    def _notification(self, name: bytes, headers: bytes, body: bytes) -> None:
        method = self.methods.get(name)
        if method is None:
            if not garbage.collected(name):
                print("tempool: notification for unknown method %r dropped" % name.decode(errors="replace"), file=sys.stderr, flush=True)
            return
        self.current = None
        self.call = 0, headers, None, None, _now()
        try:
            try:
                result = method.call(body)
                if method.streams:
                    for _ in result:
                        pass
            finally:
                if self.current is not None:
                    self.current.report_counts()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            responses.log_exception(error)
        finally:
            self.call = None

    def is_cancelled(self, id: int) -> bool:
        """Reads what the host has sent meanwhile, without blocking."""
        if not self.reading.acquire(False):
            return id in self.cancelled  # another thread reads
        try:
            while id and id not in self.cancelled:
                try:
                    frame = self.stream.next(wait=False)
                except Closed:
                    return True  # the host is gone
                if frame is None:
                    return False
                if not self._handle_now(frame):
                    self.waiting.append(frame)
            return bool(id)
        finally:
            self.reading.release()

    def host_call(self, id: int, method: str, payload: bytes) -> bytes:
        """Makes a host call for call id (0: none) and waits for its result; frames received meanwhile are handled or queued."""
        with self.reading:
            return self._host_call(id, method, payload)

    def _host_call(self, id: int, method: str, payload: bytes) -> bytes:
        self.host_call_id = self.host_call_id % 0x3FFFFFFF + 1
        mine = self.host_call_id
        self.host_results[mine] = None
        headers = frames.encode_headers({"call": str(id)}) if id else b""
        self.send(frames.HOST_CALL, mine, payload, headers, method.encode())
        try:
            while self.host_results[mine] is None:
                try:
                    frame = self.stream.next()
                except Closed:
                    return host_result(None)
                if not self._handle_now(frame):
                    self.waiting.append(frame)
            return host_result(self.host_results[mine])
        finally:
            if self.host_results.pop(mine) is None:
                self.abandoned.add(mine)
