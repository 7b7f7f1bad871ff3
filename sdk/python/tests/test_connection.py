import fcntl
import os
import select
import socket
import sys
import termios
import threading
import time
import unittest

from tempool import frames
from tempool.connection import Stream

from .host import TIMEOUT

LARGE = b"a" * (200 << 10)  # more than a pipe holds
SMALL = b"b" * (30 << 10)  # one write, which a full pipe takes in pieces


class Writers(unittest.TestCase):
    """Two threads write while the host does not read."""

    def setUp(self):
        ours, self.theirs = socket.socketpair()
        self.pipe, out = os.pipe()
        self.stream = Stream(ours.detach(), out)

    def tearDown(self):
        self.theirs.close()
        self.stream.socket.close()
        os.close(self.stream.out)
        os.close(self.pipe)

    def filling(self):
        have = int.from_bytes(fcntl.ioctl(self.pipe, termios.FIONREAD, b"\0" * 4), sys.byteorder)
        return have > len(SMALL) + 4096

    def until(self, condition):
        end = time.monotonic() + TIMEOUT
        while not condition():
            self.assertLess(time.monotonic(), end)
            os.sched_yield()

    def start(self, target, *args):
        thread = threading.Thread(target=target, args=args, daemon=True)
        thread.start()
        return thread

    def read(self, count):
        """Reads frames slowly, so that a writer that waits for room gets a turn after each page."""
        data, got = b"", []
        while len(got) < count:
            self.assertTrue(select.select([self.pipe], [], [], TIMEOUT)[0], "no whole frame in %d bytes" % len(data))
            data += os.read(self.pipe, 4096)
            while len(data) >= 4 and len(data) >= 4 + int.from_bytes(data[:4], "big"):
                got.append(frames.decode(data))
                data = data[4 + int.from_bytes(data[:4], "big"):]
        self.assertEqual(data, b"")
        return got

    def test_a_frame_of_another_thread_waits_for_the_response_in_progress(self):
        def respond():
            for id in 1, 2, 3, 4:
                self.stream.respond(id, SMALL)

        responses = self.start(respond)
        self.until(self.filling)
        other = self.start(self.stream.send, frames.NOTIFY, 0, LARGE, b"", b"worker.unhealthy")
        self.until(lambda: self.stream.sending)
        got = self.read(5)
        self.assertEqual(sorted((kind, id, body) for kind, _, id, _, _, body in got),
                         [(frames.NOTIFY, 0, LARGE)] + [(frames.RESPONSE, id, SMALL) for id in (1, 2, 3, 4)])
        responses.join(TIMEOUT)
        other.join(TIMEOUT)
        self.assertFalse(self.stream.responding)

    def test_a_response_waits_for_the_frame_in_progress_of_another_thread(self):
        other = self.start(self.stream.send, frames.NOTIFY, 0, LARGE, b"", b"worker.unhealthy")
        self.until(self.filling)
        response = self.start(self.stream.respond, 1, SMALL)
        got = self.read(2)
        self.assertEqual([(kind, body) for kind, _, _, _, _, body in got], [(frames.NOTIFY, LARGE), (frames.RESPONSE, SMALL)])
        response.join(TIMEOUT)
        other.join(TIMEOUT)
        self.assertFalse(self.stream.responding)
