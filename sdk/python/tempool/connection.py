"""The connection to the host: reads frames from a socket, writes frames to a pipe, or to the socket if there is no pipe."""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
from _thread import allocate_lock

from . import forked, frames
from .errors import HostError, ProtocolError

TYPE_CHECKING = False  # the import of typing would slow the start of every worker
if TYPE_CHECKING:
    from typing import Any, Literal, Optional, overload

READ = 64 << 10  # bytes of one read
_unpack = frames.HEAD.unpack_from
_pack = frames.HEAD.pack
_pack_words = frames.HEAD_WORDS.pack
_read = os.read
_write = os.write
_JOIN = 32 << 10  # payloads up to this many bytes are appended to their head and sent in one write
_PAUSE = 0.0005  # seconds between two checks whether a response is written
_RESPONSE = frames.RESPONSE << 24


def _threads_run_at_once() -> bool:
    """Whether this interpreter has no global lock, so that two threads may see each other's changes in different orders."""
    enabled = getattr(sys, "_is_gil_enabled", None)
    return enabled is not None and not enabled()


class Closed(Exception):
    """The host closed the connection."""


class Stream:
    """Reads and writes frames. One thread reads; any thread may write."""

    def __init__(self, fd: int, out: int) -> None:
        os.set_inheritable(fd, False)
        os.set_inheritable(out, False)
        self.out = out
        # The lock belongs to who sends. respond() does without it: it checks sending after it has set responding, send() sets sending before it
        # checks responding, so at least one of them waits for the other.
        self.lock = allocate_lock()
        self.sending = _threads_run_at_once()
        self.responding = False
        self.socket = socket.socket(fileno=fd)
        self.socket.setblocking(True)
        self.fd = fd  # of the socket: os.read costs less than socket.recv
        # A signal that arrives just before recv blocks is handled only after recv returns: this timeout limits the delay to 1 s.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 1, 0))
        self.max_message = frames.MAX_MESSAGE
        self.buffer = b""
        self.at = 0  # buffer[:at] is consumed
        self.detached = False

    def respond(self, id: int, payload: bytes) -> None:
        """send() optimized for the most frequent frame: a response of up to max_message bytes without headers. One thread may call it."""
        size = len(payload)
        try:
            self.responding = True
            if size <= _JOIN and not self.sending:
                frame = _pack_words(12 + size, _RESPONSE, id, 0) + payload
                sent = _write(self.out, frame)
                if sent < len(frame):
                    self._write_all(frame[sent:])
                return
        finally:
            self.responding = False
        self.send(frames.RESPONSE, id, payload)

    def send(self, kind: int, id: int, payload: bytes = b"", headers: bytes = b"", method: bytes = b"") -> None:
        """Sends one frame. Blocks while the host does not read."""
        size = len(payload)
        if size > self.max_message and (size > frames.MAX_CONTROL or kind not in frames.CONTROL):
            raise ValueError("message of %d bytes exceeds the limit of %d" % (size, self.max_message))
        head = _pack(12 + len(method) + len(headers) + size, kind, 0, len(method), id, len(headers))
        with self.lock:
            before, self.sending = self.sending, True
            try:
                while self.responding:
                    time.sleep(_PAUSE)
                if size <= _JOIN:
                    self._write_all(head + method + headers + payload)
                else:
                    self._write_all(head + method + headers)
                    self._write_all(payload)
            finally:
                self.sending = before

    def _write_all(self, data: bytes) -> None:
        sent = _write(self.out, data)
        if sent < len(data):
            rest = memoryview(data)
            while sent < len(data):
                sent += _write(self.out, rest[sent:])

    if TYPE_CHECKING:
        @overload
        def next(self, wait: Literal[True] = True) -> frames.Frame: ...

        @overload
        def next(self, wait: bool) -> Optional[frames.Frame]: ...

    def next(self, wait: bool = True) -> Optional[frames.Frame]:
        """Returns the next frame as (type, flags, id, method, headers, payload), in bytes; None if wait is False and no frame is complete."""
        while True:
            buffer, at = self.buffer, self.at
            have = len(buffer) - at
            if have >= 16:
                length, kind, flags, method, id, headers = _unpack(buffer, at)
                if kind != 2 or flags or not id or not 0 < method <= 1024 or headers > 65536 or not method + headers + 12 <= length <= READ:
                    # Not the common case, a small valid request: check every rule.
                    frames.check(length, kind, flags, method, id, headers, self.max_message)
                if have >= length + 4:
                    break
                if wait and length > READ:
                    self._fill(length + 4)
                    continue
            if not self.read(wait):
                return None
        start = at + 16
        body = start + method + headers
        self.at = at + length + 4
        return kind, flags, id, buffer[start:start + method], buffer[start + method:body], buffer[body:self.at]

    def read(self, wait: bool) -> bool:
        """Reads available bytes into the buffer; returns False if wait is False and there are none. Raises Closed at the end of the stream."""
        while True:
            try:
                data = _read(self.fd, READ) if wait else self.socket.recv(READ, socket.MSG_DONTWAIT)
                break
            except BlockingIOError:
                if not wait:
                    return False
        if not data:
            if len(self.buffer) > self.at:
                raise ProtocolError("the stream ended within a frame")
            raise Closed()
        self.buffer = self.buffer[self.at:] + data if self.at < len(self.buffer) else data
        self.at = 0
        return True

    def _fill(self, size: int) -> None:
        """Reads until the buffer holds size bytes, in linear time."""
        frame = bytearray(size)
        have = len(self.buffer) - self.at
        frame[:have] = self.buffer[self.at:]
        view = memoryview(frame)
        while have < size:
            try:
                n = self.socket.recv_into(view[have:])
            except BlockingIOError:
                continue
            if n == 0:
                raise ProtocolError("the stream ended within a frame")
            have += n
        self.buffer, self.at = bytes(frame), 0

    def detach(self) -> None:
        """In a child of os.fork: gives up the child's copy of the connection. From then on, an attempt to answer, to read the next call or to
        stop reading ends the child; a host call raises HostError."""
        if self.detached:
            return  # a child of the child, in which the descriptors may be others
        taken = (self.socket.detach(), self.out)
        try:
            # Kept open, because subprocess.Popen requires that of pass_fds even if preexec_fn is yet to put files there.
            null = os.open(os.devnull, os.O_WRONLY)
            for fd in taken:
                os.dup2(null, fd, inheritable=False)
            os.close(null)
        except OSError:
            for fd in taken:
                os.close(fd)
        self.detached = True
        self.buffer, self.at = b"", 0
        self.send, self.next, self.read = self._send_detached, self._next_detached, self._next_detached  # type: ignore[assignment]
        self.respond = self.stop_reading = forked.end  # type: ignore[assignment]

    def _send_detached(self, kind: int, id: int, payload: bytes = b"", headers: bytes = b"", method: bytes = b"") -> None:
        if kind in (frames.HOST_CALL, frames.NOTIFY):
            raise HostError("a child of os.fork cannot use the connection of its parent", code="forked")
        forked.end(error=payload if kind == frames.ERROR else None)

    def _next_detached(self, wait: bool = True) -> Any:
        if wait:
            forked.end()

    def stop_reading(self) -> None:
        """Refuses further bytes, so the host knows that they were not received. Bytes received before can still be read."""
        try:
            self.socket.shutdown(socket.SHUT_RD)
        except OSError:
            pass  # the host closed the connection; the next read reports that
