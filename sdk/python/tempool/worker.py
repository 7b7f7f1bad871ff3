"""The worker: a set of methods, and run(), which serves them."""

import os
import signal
import sys
import traceback

from .connection import Stream
from .errors import ProtocolError
from .methods import Method
from .serial import Serial
from .threaded import Threaded

_HOW_TO_START = """\
This program is a Tempool worker: it is started by Tempool, not by hand.
Name it in a pool.toml, for example

    [pool]
    name = "python"
    command = ["python3", "%s"]

and start the pool with: ctl pool create -f pool.toml
"""


class Worker:
    """Methods and hooks of one worker. The module-level functions of tempool use one that is made for you."""

    def __init__(self):
        self._methods = {}
        self._on_start = []
        self._on_stop = []

    def method(self, name=None, *, raw=False, whole=False):
        """Decorator that makes a function callable by the pool's clients, under its own name or the given one.

        The payload is JSON: an object becomes keyword arguments, an array positional ones, null or nothing none, anything else
        the one argument; with whole=True the decoded value is always the one argument. The result is sent as JSON.
        With raw=True the function takes and returns bytes. A generator streams what it yields: JSON values one a line, or bytes.
        An async function runs to its end before the next call begins.
        """
        if callable(name):
            return self._add(name, name.__name__, raw, whole)
        return lambda fn: self._add(fn, name or fn.__name__, raw, whole)

    def _add(self, fn, name, raw, whole):
        if name in self._methods:
            raise ValueError("method %r is defined twice" % name)
        self._methods[name] = Method(name, fn, raw, whole)
        return fn

    def on_start(self, fn):
        """Decorator: fn() runs before the worker says that it is ready. Load models here; an exception fails the start."""
        self._on_start.append(fn)
        return fn

    def on_stop(self, fn):
        """Decorator: fn() runs when the worker has been asked to stop and its last call is done."""
        self._on_stop.append(fn)
        return fn

    def on_session_release(self, fn):
        """Decorator: fn(id) runs when a session is about to leave this worker for another, as a call of that session.

        Whatever this process keeps of the session beside the store belongs into context().session now. An exception keeps the session here.
        """
        self._add(fn, "session.release", False, False)
        return fn

    def on_session_load(self, fn):
        """Decorator: fn(id) runs when a session has come to this worker, before its next call, as a call of that session.

        Warm up here what its calls will need. An exception lets the session go back to where it came from.
        """
        self._add(fn, "session.load", False, False)
        return fn

    def on_lease_reset(self, fn):
        """Decorator: fn() runs when a lease has expired whose holder went silent, where the spec says lease.on_expiry = "reset".

        Forget what that client left behind. An exception has this process replaced.
        """
        self._add(fn, "lease.reset", False, False)
        return fn

    def run(self, threads=1):
        """Serves until Tempool ends this worker, then exits the process; it does not return.

        With threads above 1, that many calls run at once (the spec's max_inflight decides how many come).
        """
        if threads < 1:
            raise ValueError("threads is the number of calls that may run at once, at least 1")
        fd, out = _descriptor("TEMPOOL_FD"), _descriptor("TEMPOOL_OUT")
        if fd is None:
            sys.stderr.write(_HOW_TO_START % os.path.basename(sys.argv[0] or "worker.py"))
            sys.exit(2)
        sys.exit(self._serve(Stream(fd, fd if out is None else out), threads))

    def _serve(self, connection, threads):
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(line_buffering=True)
        server = Serial(connection, self._methods) if threads == 1 else Threaded(connection, self._methods, threads)
        for hook in self._on_start:
            hook()
        signal.signal(signal.SIGTERM, lambda *_: server.stop())
        try:
            server.run()
        except ProtocolError as e:
            print("tempool: the host broke the protocol: %s" % e, file=sys.stderr)
            return 1
        except (BrokenPipeError, ConnectionResetError):
            pass  # the host is gone in mid-answer: an end like any other
        code = 0
        for hook in self._on_stop:
            try:
                hook()
            except Exception:
                traceback.print_exc()
                code = 1
        return code


def _descriptor(name):
    """The number of an open descriptor, taken out of the environment so that no child takes itself for the worker; None without one."""
    text = os.environ.pop(name, "")
    if not text.isdigit():
        return None
    try:
        os.fstat(int(text))
    except OSError:
        return None
    return int(text)
