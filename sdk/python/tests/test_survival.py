"""What a handler may raise or do without ending the worker or disturbing the protocol."""

import json
import pathlib
import time
import unittest

from tempool import frames, responses

from .host import TIMEOUT, Host
from .test_worker import HEAD, each_mode

UNPRINTABLE = """
class Silent(Exception):
    def __str__(self): raise ValueError("no text")
    __repr__ = __str__
class Rude(tempool.Error):
    def __init__(self): super().__init__("rude", code=object(), data=Silent())
class Own(BaseException): pass
import asyncio
kinds = {"cancelled": asyncio.CancelledError, "silent": Silent, "rude": Rude, "own": Own, "generator": GeneratorExit}
@tempool.method
def fail(kind): raise kinds[kind]()
@tempool.method
def stream(kind):
    yield 1
    raise kinds[kind]()
@tempool.method
def ok(): return True
"""


class Exceptions(unittest.TestCase):
    @each_mode
    def test_a_worker_survives_everything_that_is_raised(self, start):
        with start(UNPRINTABLE) as host:
            for kind in ("cancelled", "silent", "rude", "own", "generator"):
                for _ in range(3):
                    failure = host.call("fail", kind)
                    self.assertIsInstance(failure["message"], str)
                    self.assertIsInstance(failure["code"], str)
                id = host.request("stream", json.dumps([kind]).encode())
                host.expect(frames.CHUNK, id)
                host.expect(frames.ERROR, id)
                host.send(frames.NOTIFY, 0, b"fail", payload=json.dumps([kind]).encode())
                self.assertIs(host.call("ok"), True)
            self.assertEqual(host.call("fail", "cancelled")["type"], "CancelledError")


    def test_what_is_raised_fits_into_an_error_frame(self):
        long = type("E" * 100_000, (Exception,), {})("\U0001f600" * 100_000)  # in JSON each takes 12 bytes
        payload = responses.exception_payload(long)
        self.assertLessEqual(len(payload), frames.MAX_CONTROL)
        self.assertTrue(json.loads(payload)["message"].startswith("\U0001f600"))


class Output(unittest.TestCase):
    @each_mode
    def test_output_from_c_and_from_children_does_not_disturb_the_protocol(self, start):
        with start("import ctypes, os, subprocess\n"
                   "@tempool.method\ndef f():\n"
                   " print('from python')\n os.write(1, b'\\x00\\x00raw\\n')\n"
                   " c = ctypes.CDLL(None); c.puts(b'from c'); c.fflush(None)\n"
                   " subprocess.run(['sh', '-c', 'echo from a child; echo to every descriptor | tee /dev/fd/3 /dev/fd/4 2>/dev/null'], close_fds=False)\n"
                   " return True") as host:
            for _ in range(3):
                self.assertIs(host.call("f"), True)
            for text in ("from python", "raw", "from c", "from a child"):
                self.assertEqual(host.log().count(text), 3, host.log())


FORKS = """
import os, sys, time, signal
def fork():
    pid = os.fork()
    if pid: return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
@tempool.method
def returns():
    code = fork()
    return [code, "parent"]
@tempool.method
def streams():
    yield 1
    yield fork()
@tempool.method
def raises():
    code = fork()
    if code is None: raise RuntimeError("in the child")
    return code
@tempool.method
def leaves():
    code = fork()
    if code is None: sys.exit(3)
    return code
@tempool.method
def asks():
    code = fork()
    if code is None:
        try: tempool.context().host("session.get")
        except tempool.HostError as e: os._exit(40 + len(e.code) if tempool.context().cancelled is False else 1)
    return code
@tempool.method
def note():
    code = fork()
    if code is not None: print("note %d" % code)  # in one piece: another thread prints, too
@tempool.method
def asks_first():
    tempool.context().host("session.get")
    note()
@tempool.method
def seen(): print("seen")
@tempool.method
def term():
    ready, done = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(done, b'!')
        while True: time.sleep(1)
    os.read(ready, 1)
    os.kill(pid, signal.SIGTERM)
    return os.waitpid(pid, 0)[1]
"""


def children(parent):
    """The processes of a parent, which Linux lists in /proc."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            if stat.read_text().rpartition(")")[2].split()[1] == str(parent):
                found.append(stat.parent.name)
        except OSError:  # it has ended
            pass
    return found


class HostCalls(unittest.TestCase):
    @each_mode
    def test_threads_of_a_handler_ask_the_host_at_once(self, start):
        with start("import asyncio\n"
                   "@tempool.method\ndef both():\n"
                   " async def ask(name): return await asyncio.to_thread(lambda: [tempool.context().host(name), tempool.context().cancelled])\n"
                   " async def ask_both(): return await asyncio.gather(ask('a'), ask('b'))\n"
                   " return asyncio.run(ask_both())") as host:
            for _ in range(3):
                id, answered = host.request("both"), 0
                while answered < 2:
                    asked = [host.expect(frames.HOST_CALL)]
                    if not answered and not host.silent():  # each thread waits for the result of its own
                        asked.append(host.expect(frames.HOST_CALL))
                    for call in reversed(asked):
                        host.send(frames.HOST_RESULT, call[2], payload=b'"%s"' % call[3].encode())
                        answered += 1
                self.assertEqual(json.loads(host.expect(frames.RESPONSE, id)[5]), [["a", False], ["b", False]])

    def test_a_signal_handler_may_end_a_host_call(self):
        with Host(HEAD + "import signal\n"
                  "def alarm(*_): raise TimeoutError()\n"
                  "signal.signal(signal.SIGALRM, alarm)\n"
                  "@tempool.method\ndef limited():\n"
                  " signal.setitimer(signal.ITIMER_REAL, 0.01)\n"
                  " try: tempool.context().host('slow')\n except TimeoutError: return 'late'\n"
                  "@tempool.method\ndef asks(): return tempool.context().host('quick')\ntempool.run()") as host:
            id = host.request("limited")
            slow = host.expect(frames.HOST_CALL)[2]
            self.assertEqual(json.loads(host.expect(frames.RESPONSE, id)[5]), "late")
            id = host.request("asks")
            quick = host.expect(frames.HOST_CALL)[2]
            host.send(frames.HOST_RESULT, slow, payload=b"1")
            host.send(frames.HOST_RESULT, quick, payload=b"2")
            self.assertEqual(json.loads(host.expect(frames.RESPONSE, id)[5]), 2)

    def test_nobody_waits_for_the_host_once_nothing_is_read(self):
        with Host(HEAD + "@tempool.method\ndef asks():\n tempool.context().host('begun')\n time.sleep(0.2)\n tempool.context().host('late')\n"
                  "@tempool.method\ndef leaves(): sys.exit(3)\ntempool.run(threads=2)") as host:
            host.request("asks")
            host.send(frames.HOST_RESULT, host.expect(frames.HOST_CALL)[2])
            host.request("leaves")
            self.assertEqual(host.wait(), 3)

    @each_mode
    def test_a_call_is_cancelled_when_the_host_is_gone(self, start):
        with start("@tempool.method\ndef polls():\n tempool.context().host('begun')\n"
                   " while not tempool.context().cancelled: time.sleep(0.001)") as host:
            host.request("polls")
            host.send(frames.HOST_RESULT, host.expect(frames.HOST_CALL)[2])
            host.socket.close()
            self.assertEqual(host.wait(), 0)


class Fork(unittest.TestCase):
    @each_mode
    def test_a_forked_child_that_returns_ends_itself(self, start):
        with start(FORKS) as host:
            for _ in range(3):
                self.assertEqual(host.call("returns"), [0, "parent"])
            self.assertEqual(host.call("raises"), 1)
            self.assertIn("RuntimeError: in the child", host.log())
            self.assertEqual(host.call("leaves"), 3)
            self.assertEqual(host.call("asks"), 40 + len("forked"))
            self.assertEqual(host.call("term"), 15)
            id = host.request("streams")
            self.assertEqual(host.expect(frames.CHUNK, id)[5], b"1\n")
            self.assertEqual(host.expect(frames.CHUNK, id)[5], b"0\n")
            host.expect(frames.RESPONSE, id)
            host.send(frames.NOTIFY, 0, b"note")
            while "note 0" not in host.log():
                self.assertEqual(host.call("returns"), [0, "parent"])
            end = time.monotonic() + TIMEOUT
            while left := children(host.process.pid):  # one may end now
                self.assertLess(time.monotonic(), end, left)
                time.sleep(0.01)

    @each_mode
    def test_a_forked_child_serves_no_call_that_its_parent_has_received(self, start):
        with start(FORKS) as host:
            seen = frames.encode(frames.REQUEST, 1000, b"seen")
            host.socket.sendall(frames.encode(frames.NOTIFY, 0, b"note") + seen)  # in one read
            host.expect(frames.RESPONSE, 1000)
            host.send(frames.NOTIFY, 0, b"asks_first")
            asked = host.expect(frames.HOST_CALL)[2]
            host.socket.sendall(seen + frames.encode(frames.HOST_RESULT, asked, payload=b"{}"))  # the request waits
            host.expect(frames.RESPONSE, 1000)
            end = time.monotonic() + TIMEOUT
            while host.log().count("note 0") < 2:
                self.assertLess(time.monotonic(), end, host.log())
                host.call("returns")
            self.assertEqual(host.log().count("seen"), 2)

    @each_mode
    def test_a_child_of_a_forked_child_keeps_its_descriptors(self, start):
        with start(FORKS + """
@tempool.method
def twice():
    pid = os.fork()
    if pid == 0:
        for fd in range(3, 10): os.dup2(1, fd)  # also in place of the connection
        if (grandchild := os.fork()) == 0:
            os._exit(not all(os.path.sameopenfile(1, fd) for fd in range(3, 10)))
        os._exit(os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1]))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
""") as host:
            self.assertEqual(host.call("twice"), 0)

    @each_mode
    def test_a_program_can_be_given_files_at_the_numbers_of_the_connection(self, start):
        with start(FORKS + """
import subprocess
fd = int(os.environ["TEMPOOL_FD"])
@tempool.method
def give():
    read, write = os.pipe()
    subprocess.run([sys.executable, "-c", "import os; os.write(%d, b'hello')" % fd], preexec_fn=lambda: os.dup2(write, fd), pass_fds=[fd], check=True)
    os.close(write)
    return os.read(read, 9).decode()
""") as host:
            self.assertEqual(host.call("give"), "hello")

    @each_mode
    def test_a_forked_child_ends_although_another_thread_was_printing(self, start):
        with start(FORKS + """
import fcntl, struct, termios, threading
@tempool.method
def while_printing():
    full, end = os.pipe()
    sys.stdout = open(end, "w", buffering=1)
    threading.Thread(target=lambda: print("x" * (1 << 20)), daemon=True).start()
    while struct.unpack("i", fcntl.ioctl(full, termios.FIONREAD, bytes(4)))[0] < 1 << 16: time.sleep(0.001)
    return fork()
""") as host:
            self.assertEqual(host.call("while_printing"), 0)


if __name__ == "__main__":
    unittest.main()
