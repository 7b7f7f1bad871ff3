"""The default way to serve: one call at a time, on the main thread, with nothing between the socket and the handler."""

import sys
import time
import traceback
from collections import deque

from . import answers, frames, garbage
from .connection import Closed
from .context import Context, bind
from .host import Uploads, hello, host_result, welcome
from .errors import ProtocolError


class Serial:
    """Serves one connection until the host closes it or stop() is called."""

    def __init__(self, stream, methods):
        self.stream = stream
        self.send = self.stream.send
        self.methods = {name.encode(): method for name, method in methods.items()}
        self.uploads = Uploads()
        self.waiting = deque()  # frames that came while a handler asked the host, or whether it is cancelled
        self.cancelled = set()  # calls cancelled while they ran or waited
        self.answers = {}  # host call → its answer
        self.asked = 0  # id of the newest host call
        self.busy = False  # between a frame's arrival and the end of what it asks for
        self.stopping = False
        self.call = None  # (id, headers, arrival) of the call in flight; id 0 for a notification
        self.made = None  # its Context, once asked for

    @property
    def max_message(self):
        return self.stream.max_message

    def stop(self):
        """Finishes the call in flight and those already received, then lets run return. For signal handlers."""
        self.stopping = True
        if not self.busy:
            self.stream.stop_reading()

    def run(self):
        bind(self)
        self.send(frames.HELLO, 0, hello(self.methods))
        stream, waiting = self.stream, self.waiting
        try:
            while True:
                self.busy = False
                if waiting:
                    frame = waiting.popleft()
                elif self.stopping:
                    frame = stream.next(wait=False)
                    if frame is None:
                        stream.stop_reading()
                        frame = stream.next()
                else:
                    frame = stream.next()
                self.busy = True
                kind, flags, id, name, headers, body = frame
                if kind == frames.REQUEST and not flags:
                    self._serve(id, name, headers, body)
                else:
                    self._handle(frame)
        except Closed:
            pass
        finally:
            bind(None)

    def _serve(self, id, name, headers, body):
        method = self.methods.get(name)
        if method is None:
            self.send(frames.ERROR, id, answers.not_found(name, self.methods))
            return
        self.made = None
        self.call = (id, headers, time.monotonic() if headers else 0.0)
        try:
            if method.streams:
                answers.serve(self, method, id, body)
            else:
                self._answer(method, id, body)
        finally:
            self.call = None
        if self.cancelled:
            self.cancelled.discard(id)

    def _answer(self, method, id, body):
        """answers.serve() for the usual case, in as few steps as it takes: a handler that gives bytes and asks for no Context."""
        try:
            payload = method.call(body)
        except Exception as error:
            answers.fail(self, id, error)
            return
        if self.made is None and len(payload) <= self.stream.max_message:
            self.stream.respond(id, payload)
        else:
            answers.conclude(self, id, payload)

    def context(self):
        """The Context of the call in flight, None between calls."""
        if self.made is None and self.call is not None:
            id, headers, arrival = self.call
            self.made = Context(self, id, headers, arrival)
        return self.made

    def _handle(self, frame):
        """Everything but a plain request, when no handler runs."""
        kind, flags, id, name, headers, body = frame
        if kind == frames.NOTIFY:
            self._notified(name, headers, body)
        elif kind in (frames.REQUEST, frames.CHUNK, frames.END):
            whole = self.uploads.add(frame, self.max_message)
            if isinstance(whole, bytes):
                self.send(frames.ERROR, id, whole)
            elif whole is not None:
                self._serve(*whole)
        else:
            self._note(frame)

    def _note(self, frame):
        """What is handled at once even while a handler runs; False for what has to wait for its end."""
        kind, _, id, _, _, body = frame
        if kind == frames.PING:
            self.send(frames.PONG, id)
        elif kind == frames.CANCEL:
            self._cancel(id)
        elif kind in (frames.HOST_RESULT, frames.HOST_ERROR):
            if id not in self.answers:
                raise ProtocolError("an answer to host call %d, which was not made" % id)
            self.answers[id] = (kind, body)
        elif kind == frames.HELLO:
            self.stream.max_message = welcome(body)
        elif kind in (frames.REQUEST, frames.NOTIFY, frames.CHUNK, frames.END):
            return False
        else:
            raise ProtocolError("a frame of type %d, which only a worker sends" % kind)
        return True

    def _cancel(self, id):
        """Remembers the cancel of the call in flight, and answers at once for one that has not begun."""
        if self.call is not None and self.call[0] == id:
            self.cancelled.add(id)
            return
        ours = [f for f in self.waiting if f[2] == id and f[0] != frames.NOTIFY]
        for frame in ours:
            self.waiting.remove(frame)
        if self.uploads.drop(id) or ours:
            self.send(frames.ERROR, id, answers.refusal("cancelled", "cancelled before it began"))

    def _notified(self, name, headers, body):
        method = self.methods.get(name)
        if method is None:
            if not garbage.collected(name):
                print("tempool: no method %r here for a notification" % name.decode(errors="replace"), file=sys.stderr, flush=True)
            return
        self.made = None
        self.call = (0, headers, time.monotonic())
        try:
            result = method.call(body)
            if method.streams:
                for _ in result:
                    pass
        except Exception:
            traceback.print_exc()
        try:
            if self.made is not None:
                self.made.tell_counts()
        except Exception:
            traceback.print_exc()
        finally:
            self.call = None

    def is_cancelled(self, id):
        """Looks at what the host has sent meanwhile, without waiting."""
        while id and id not in self.cancelled:
            try:
                frame = self.stream.next(wait=False)
            except Closed:
                return True  # nobody is left to wait for the answer
            if frame is None:
                return False
            if not self._note(frame):
                self.waiting.append(frame)
        return bool(id)

    def host_call(self, id, method, payload):
        """Asks the host on behalf of call id (0: of none) and waits for the answer, noting what else comes."""
        self.asked = self.asked % 0x3FFFFFFF + 1
        mine = self.asked
        self.answers[mine] = None
        headers = frames.encode_headers({"call": str(id)}) if id else b""
        self.send(frames.HOST_CALL, mine, payload, headers, method.encode())
        try:
            while self.answers[mine] is None:
                try:
                    frame = self.stream.next()
                except Closed:
                    return host_result(None)
                if not self._note(frame):
                    self.waiting.append(frame)
            return host_result(self.answers[mine])
        finally:
            del self.answers[mine]
