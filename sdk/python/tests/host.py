"""The host's side of the protocol, driven by a test: starts a worker program and talks frames with it."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

from tempool import frames

SDK = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TIMEOUT = 120  # seconds any single step may take on a slow machine


class Host:
    def __init__(self, program, max_message=1 << 20, env=None, hello=True):
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(TIMEOUT)
        self.answers, out = os.pipe()
        fds = [theirs.fileno(), out]
        self.logs = tempfile.TemporaryFile()
        environ = dict(os.environ, PYTHONPATH=SDK, TEMPOOL_FD=str(fds[0]), TEMPOOL_OUT=str(out), **(env or {}))
        self.process = subprocess.Popen(
            [sys.executable, "-c", program], env=environ, pass_fds=fds, stdout=self.logs, stderr=subprocess.STDOUT)
        theirs.close()
        os.close(out)
        self.buffer = b""
        self.ids = 0
        if hello:
            self.send(frames.HELLO, payload=json.dumps({"protocol": 1, "max_message": max_message, "max_inflight": 1}).encode())
            self.hello = json.loads(self.expect(frames.HELLO)[5])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
        os.close(self.answers)
        try:
            self.process.wait(TIMEOUT)
        finally:
            self.process.kill()
            self.process.wait()
            self.logs.close()

    def send(self, kind, id=0, method=b"", headers=None, payload=b""):
        self.socket.sendall(frames.encode(kind, id, method, frames.encode_headers(headers or {}), payload))

    def read(self):
        """The next frame, or None at the end of the stream."""
        while True:
            if len(self.buffer) >= 4:
                size = int.from_bytes(self.buffer[:4], "big") + 4
                if len(self.buffer) >= size:
                    frame, self.buffer = self.buffer[:size], self.buffer[size:]
                    return frames.decode(frame)
            assert self.ready(TIMEOUT), "no frame: " + self.log()
            data = os.read(self.answers, 1 << 16)
            if not data:
                return None
            self.buffer += data

    def expect(self, kind, id=None):
        frame = self.read()
        assert frame is not None, "the worker closed its end: " + self.log()
        assert frame[0] == kind and (id is None or frame[2] == id), "wanted type %d for %s, got %r" % (kind, id, frame)
        return frame

    def silent(self, seconds=0.1):
        """Whether nothing comes for a while."""
        return not self.buffer and not self.ready(seconds)

    def ready(self, seconds):
        """Whether there is something to read, or the end, within a while."""
        return bool(select.select([self.answers], [], [], seconds)[0])

    def request(self, method, payload=b"", headers=None):
        self.ids += 1
        self.send(frames.REQUEST, self.ids, method.encode(), headers, payload)
        return self.ids

    def call(self, method, *args, **kwargs):
        """A JSON call: its result, or its error as a dict."""
        params = kwargs if kwargs else list(args)
        id = self.request(method, json.dumps(params).encode())
        kind, _, got, _, _, payload = self.read()
        assert got == id
        assert kind in (frames.RESPONSE, frames.ERROR)
        return json.loads(payload)

    def await_idle(self):
        """Waits until the worker, which has been sent nothing that takes time, sleeps in its read. Linux only."""
        limit = time.monotonic() + TIMEOUT
        while time.monotonic() < limit:
            with open("/proc/%d/stat" % self.process.pid) as stat:
                if stat.read().rpartition(")")[2].split()[0] == "S":
                    return
            time.sleep(0.001)
        raise AssertionError("the worker does not become idle: " + self.log())

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def wait(self):
        return self.process.wait(TIMEOUT)

    def log(self):
        """What the program has written. It shares the file's position, which stays as it is: a write elsewhere would replace a line."""
        file = self.logs.fileno()
        return os.pread(file, os.fstat(file).st_size, 0).decode()
