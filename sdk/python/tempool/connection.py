"""The way to the host: whole frames in from a socket, whole frames out through a pipe, or through the socket if there is none."""

import os
import socket
import struct

from . import frames
from .errors import ProtocolError

_READ = 64 << 10
_unpack = frames.HEAD.unpack_from
_pack = frames.HEAD.pack
_write = os.write
_JOIN = 32 << 10  # payloads up to this many bytes are copied behind their head, to be sent in one go


class Closed(Exception):
    """The host closed its end: there is nothing left to do."""


class Stream:
    """Cuts what the socket gives into frames. One thread reads; writes of several threads need a lock around send."""

    def __init__(self, fd, out):
        os.set_inheritable(fd, False)
        os.set_inheritable(out, False)
        self.out = out
        self.socket = socket.socket(fileno=fd)
        self.socket.setblocking(True)
        # A signal that comes just before a read blocks would wait for the next message: this lets its handler run within a second.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 1, 0))
        self.max_message = frames.MAX_MESSAGE
        self.buffer = b""
        self.at = 0  # what lies before it in buffer is done with

    def respond(self, id, payload):
        """send() for the most frequent frame: a response of no more than max_message bytes, without headers."""
        size = len(payload)
        if size <= _JOIN:
            frame = _pack(12 + size, 6, 0, 0, id, 0) + payload
            sent = _write(self.out, frame)
            if sent < len(frame):
                self._write_all(frame[sent:])
        else:
            self.send(6, id, payload)

    def send(self, kind, id, payload=b"", headers=b"", method=b""):
        """Sends one frame, waiting while the host does not read."""
        size = len(payload)
        if size > self.max_message and (size > frames.MAX_CONTROL or kind not in frames.CONTROL):
            raise ValueError("a message of %d bytes, the host takes %d" % (size, self.max_message))
        head = _pack(12 + len(method) + len(headers) + size, kind, 0, len(method), id, len(headers))
        if size <= _JOIN:
            self._write_all(head + method + headers + payload)
        else:
            self._write_all(head + method + headers)
            self._write_all(payload)

    def _write_all(self, data):
        sent = _write(self.out, data)
        if sent < len(data):
            rest = memoryview(data)
            while sent < len(data):
                sent += _write(self.out, rest[sent:])

    def next(self, wait=True):
        """The next frame as (type, flags, id, method, headers, payload), in bytes; None if wait is False and none is complete."""
        while True:
            buffer, at = self.buffer, self.at
            have = len(buffer) - at
            if have >= 16:
                length, kind, flags, method, id, headers = _unpack(buffer, at)
                if kind != 2 or flags or not id or not 0 < method <= 1024 or headers > 65536 or not method + headers + 12 <= length <= _READ:
                    # Anything but a small, good request, of which there are most: look closer.
                    frames.check(length, kind, flags, method, id, headers, self.max_message)
                if have >= length + 4:
                    break
                if wait and length > _READ:
                    self._fill(length + 4)
                    continue
            if not self.read(wait):
                return None
        start = at + 16
        body = start + method + headers
        self.at = at + length + 4
        return kind, flags, id, buffer[start:start + method], buffer[start + method:body], buffer[body:self.at]

    def read(self, wait):
        """Reads what is there into the buffer; False if wait is False and nothing is. Raises Closed at the end."""
        while True:
            try:
                data = self.socket.recv(_READ, 0 if wait else socket.MSG_DONTWAIT)
                break
            except BlockingIOError:
                if not wait:
                    return False
        if not data:
            if len(self.buffer) > self.at:
                raise ProtocolError("the stream ends in the middle of a frame")
            raise Closed()
        self.buffer = self.buffer[self.at:] + data if self.at < len(self.buffer) else data
        self.at = 0
        return True

    def _fill(self, size):
        """Reads until the buffer holds a frame of size bytes, without copying what came before again and again."""
        whole = bytearray(size)
        have = len(self.buffer) - self.at
        whole[:have] = self.buffer[self.at:]
        view = memoryview(whole)
        while have < size:
            try:
                n = self.socket.recv_into(view[have:])
            except BlockingIOError:
                continue
            if n == 0:
                raise ProtocolError("the stream ends in the middle of a frame")
            have += n
        self.buffer, self.at = bytes(whole), 0

    def stop_reading(self):
        """No byte sent from now on is accepted, so the host knows that it was not; what was accepted can still be read."""
        try:
            self.socket.shutdown(socket.SHUT_RD)
        except OSError:
            pass  # the host has closed its end: the next read says so
