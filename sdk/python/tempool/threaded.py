"""Serving several calls at once: the main thread reads, a fixed set of threads runs the handlers."""

import queue
import sys
import threading
import time
import traceback

from . import answers, frames, garbage
from .connection import Closed
from .context import Context, bind
from .errors import ProtocolError
from .host import Uploads, hello, host_result, welcome


class Threaded:
    """Serves one connection until the host closes it or stop() is called."""

    def __init__(self, stream, methods, threads):
        self.stream = stream
        self.methods = {name.encode(): method for name, method in methods.items()}
        self.threads = threads
        self.uploads = Uploads()
        self.requests = queue.SimpleQueue()  # bounded by what the host sends at once
        self.lock = threading.Lock()  # guards what follows
        self.unanswered = {}  # id → the call: queued, running or cancelled
        self.asked = 0
        self.answers = {}  # host call → the queue its asker waits at
        self.pending = 0  # requests and notifications read and not done
        self.exit = None  # what a handler ended the worker with
        self.stopping = False
        self.writing = threading.Lock()

    @property
    def max_message(self):
        return self.stream.max_message

    def send(self, *frame):
        with self.writing:
            self.stream.send(*frame)

    def stop(self):
        """Finishes the calls already received, then lets run return. For signal handlers, so it takes no lock."""
        self.stopping = True
        if self.pending == 0:
            self.stream.stop_reading()

    def run(self):
        self.send(frames.HELLO, 0, hello(self.methods))
        crew = [threading.Thread(target=self._work, name="tempool-%d" % n, daemon=True) for n in range(self.threads)]
        for thread in crew:
            thread.start()
        try:
            while True:
                self._handle(self.stream.next())
        except Closed:
            pass
        for _ in crew:
            self.requests.put(None)
        with self.lock:
            for waiting in self.answers.values():
                waiting.put(None)
        for thread in crew:
            thread.join()
        if self.exit is not None:
            raise self.exit

    def _handle(self, frame):
        kind, flags, id, name, headers, body = frame
        if kind == frames.REQUEST and not flags:
            self._queue(id, name, headers, body)
        elif kind == frames.NOTIFY:
            self._queue(0, name, headers, body)
        elif kind in (frames.REQUEST, frames.CHUNK, frames.END):
            whole = self.uploads.add(frame, self.max_message)
            if isinstance(whole, bytes):
                self.send(frames.ERROR, id, whole)
            elif whole is not None:
                self._queue(*whole)
        elif kind == frames.PING:
            self.send(frames.PONG, id)
        elif kind == frames.CANCEL:
            self._cancel(id)
        elif kind in (frames.HOST_RESULT, frames.HOST_ERROR):
            with self.lock:
                waiting = self.answers.get(id)
            if waiting is None:
                raise ProtocolError("an answer to host call %d, which was not made" % id)
            waiting.put((kind, body))
        elif kind == frames.HELLO:
            self.stream.max_message = welcome(body)
        else:
            raise ProtocolError("a frame of type %d, which only a worker sends" % kind)

    def _queue(self, id, name, headers, body):
        method = self.methods.get(name)
        if method is None and id:
            self.send(frames.ERROR, id, answers.not_found(name, self.methods))
            return
        if method is None:
            if not garbage.collected(name):
                print("tempool: no method %r here for a notification" % name.decode(errors="replace"), file=sys.stderr, flush=True)
            return
        call = _Call(self, method, id, headers, body)
        with self.lock:
            self.pending += 1
            if id:
                self.unanswered[id] = call
        self.requests.put(call)

    def _cancel(self, id):
        with self.lock:
            call = self.unanswered.get(id)
            if call is not None:
                call.cancelled = True
                if not call.running:
                    del self.unanswered[id]
        if self.uploads.drop(id) or (call is not None and not call.running):
            self.send(frames.ERROR, id, answers.refusal("cancelled", "cancelled before it began"))

    def _work(self):
        while True:
            call = self.requests.get()
            if call is None:
                return
            with self.lock:
                call.running = not call.cancelled
            try:
                if call.running:
                    call.run()
            except (BrokenPipeError, ConnectionResetError):
                pass  # the host is gone; the reader notices by itself
            except (SystemExit, KeyboardInterrupt) as end:
                self.exit = end
                self.stream.stop_reading()
            with self.lock:
                self.unanswered.pop(call.id, None)
                self.pending -= 1
                last = self.stopping and self.pending == 0
            if last:
                self.stream.stop_reading()


class _Call:
    """One call on one thread; the connection that its handler and its Context see."""

    def __init__(self, server, method, id, headers, body):
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
        self.made = None

    def run(self):
        bind(self)
        try:
            if self.id:
                answers.serve(self, self.method, self.id, self.body)
            else:
                self._notified()
        finally:
            bind(None)

    def _notified(self):
        try:
            result = self.method.call(self.body)
            if self.method.streams:
                for _ in result:
                    pass
        except Exception:
            traceback.print_exc()
        try:
            if self.made is not None:
                self.made.tell_counts()
        except Exception:
            traceback.print_exc()

    def context(self):
        if self.made is None:
            self.made = Context(self, self.id, self.headers, self.arrival)
        return self.made

    def is_cancelled(self, id):
        return self.cancelled

    def host_call(self, id, method, payload):
        server, answer = self.server, queue.SimpleQueue()
        with server.lock:
            server.asked = mine = server.asked % 0x3FFFFFFF + 1
            server.answers[mine] = answer
        try:
            headers = frames.encode_headers({"call": str(id)}) if id else b""
            server.send(frames.HOST_CALL, mine, payload, headers, method.encode())
            return host_result(answer.get())
        finally:
            with server.lock:
                del server.answers[mine]
