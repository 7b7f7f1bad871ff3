"""The Worker: registers methods and hooks, and serves them with run()."""

from __future__ import annotations

import json
import os
import sys

from . import forked, frames
from .connection import Stream
from .errors import ProtocolError
from .methods import Method, is_async
from .responses import log_exception
from .serial import Serial

TYPE_CHECKING = False  # the import of typing would slow the start of every worker
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, TypeVar, overload

    F = TypeVar("F", bound=Callable[..., Any])
    H = TypeVar("H", bound=Callable[[], Any])
    S = TypeVar("S", bound=Callable[[str], Any])

_HOW_TO_START = """\
This program is a Tempool worker: Tempool starts it, do not run it by hand.
Name it in a pool.toml, for example

    [pool]
    name = "python"
    command = ["python3", "%s"]

and start the pool with: tempool pool start -f pool.toml
"""


_MAX_REASON = 1000  # characters
in_process = False  # set by tempool.testing: run() returns at once


class Worker:
    """Methods and hooks of one worker. The module-level functions of tempool use a default Worker."""

    def __init__(self) -> None:
        self._methods: Dict[str, Method] = {}
        self._on_start: List[Callable[[], Any]] = []
        self._on_stop: List[Callable[[], Any]] = []
        self._on_health: List[Callable[[], Any]] = []
        self._before_fork: List[Callable[[], Any]] = []
        self._after_fork: List[Callable[[], Any]] = []
        self._server: Any = None

    if TYPE_CHECKING:
        @overload
        def method(self, name: F) -> F: ...

        @overload
        def method(self, name: Optional[str] = None, *, raw: bool = False, whole: bool = False) -> Callable[[F], F]: ...

    def method(self, name: Any = None, *, raw: bool = False, whole: bool = False) -> Any:
        """Decorator that makes a function callable by the pool's clients, under its own name or the given one.

        The payload is JSON: an object becomes keyword arguments, an array positional arguments, null or an empty payload no arguments,
        and any other value the only argument. With whole=True the decoded value is always the only argument. The result is sent as JSON.
        With raw=True the function takes and returns bytes. A generator streams the values it yields: JSON, one value per line, or bytes.
        Async functions share one event loop, on which their calls overlap, up to the spec's max_inflight; a cancelled call's task is cancelled.
        """
        if callable(name):
            return self._add(name, name.__name__, raw, whole)
        return lambda fn: self._add(fn, name or fn.__name__, raw, whole)

    def _add(self, fn: F, name: str, raw: bool, whole: bool) -> F:
        if name in self._methods:
            raise ValueError("method %r is already defined" % name)
        self._methods[name] = Method(name, fn, raw, whole)
        return fn

    def on_start(self, fn: H) -> H:
        """Decorator: fn(), which may be async, runs before the worker reports ready. Load models here; an exception fails the start."""
        self._on_start.append(fn)
        return fn

    def on_stop(self, fn: H) -> H:
        """Decorator: fn(), which may be async, runs when the worker stops, after its last call."""
        self._on_stop.append(fn)
        return fn

    def on_health(self, fn: H) -> H:
        """Decorator: fn(), which may be async, runs in each health check of kind "rpc". If it raises, the check fails with its reason.

        With one thread and no async function it runs on the main thread, between two calls; else on a thread of its own, beside the calls.
        Keep it shorter than the spec's health.timeout.
        """
        self._on_health.append(fn)
        return fn

    def before_fork(self, fn: H) -> H:
        """Decorator: with start.fork, fn() runs in the template, after on_start and before its first fork: close connections, stop threads."""
        self._before_fork.append(fn)
        return fn

    def after_fork(self, fn: H) -> H:
        """Decorator: with start.fork, fn() runs in each forked process before it reports ready: open connections, start threads, seed generators."""
        self._after_fork.append(fn)
        return fn

    def unhealthy(self, reason: str) -> None:
        """Reports this worker unhealthy, which counts at once as a failed health check. Any thread may call it, a signal handler may not.

        The worker gets no new call until a check passes; after health.max_failures in a row Tempool replaces the process. Within 5 seconds
        several reports count once. Raises RuntimeError before run() has begun to serve.
        """
        server = self._server
        if server is None or not server.greeted:
            raise RuntimeError("call tempool.unhealthy() after run() has started; before that, raise an exception in an on_start hook")
        payload = json.dumps({"reason": str(reason)[:_MAX_REASON]}).encode()
        try:
            server.send(frames.NOTIFY, 0, payload, b"", b"worker.unhealthy")
        except (BrokenPipeError, ConnectionResetError):
            pass  # the host is gone, so the worker ends

    def on_session_release(self, fn: S) -> S:
        """Decorator: fn(id) runs before a session migrates from this worker to another, as a call of that session.

        Write state that this process caches for the session to context().session. An exception cancels the migration.
        """
        self._add(fn, "session.release", False, False)
        return fn

    def on_session_load(self, fn: S) -> S:
        """Decorator: fn(id) runs after a session has migrated to this worker, before its next call, as a call of that session.

        Warm up caches here. An exception undoes the migration.
        """
        self._add(fn, "session.load", False, False)
        return fn

    def on_lease_reset(self, fn: H) -> H:
        """Decorator: fn() runs when a lease expires without a checkin, if the spec has lease.on_expiry = "reset".

        Reset the state that the client left behind. If fn raises, Tempool replaces this process.
        """
        self._add(fn, "lease.reset", False, False)
        return fn

    def on_suspend(self, fn: H) -> H:
        """Decorator: fn() runs when an operator suspends this worker, after its last call: release what others could use meanwhile.

        It has the spec's health.timeout; then the worker is suspended while fn keeps running, and fn is cancelled when the worker resumes.
        """
        self._add(fn, "worker.suspend", False, False)
        return fn

    def on_resume(self, fn: H) -> H:
        """Decorator: fn() runs when a suspended worker resumes, before its next call. It is cancelled after the spec's health.timeout."""
        self._add(fn, "worker.resume", False, False)
        return fn

    def run(self, threads: int = 1) -> None:
        """Serves calls until Tempool stops this worker, then exits the process. It does not return.

        Up to threads calls of plain functions run concurrently, in addition to those of async functions; the spec's max_inflight limits how many
        arrive. With one thread and no async function the calls run on the main thread. An exception of any kind fails only its call, except
        SystemExit and KeyboardInterrupt, which end the worker. Where tempool.testing was imported first, it returns at once.
        """
        if threads < 1:
            raise ValueError("threads must be at least 1: it is the number of calls that run concurrently")
        if in_process:
            return
        control = _descriptor("TEMPOOL_TEMPLATE")
        if control is not None:
            from . import template  # it and what it imports take a tenth of the start of every other worker

            # This returns in each process that the template forks.
            template.serve(control, self._on_start, self._before_fork)
            self._on_start = self._after_fork
        fd, out = _descriptor("TEMPOOL_FD"), _descriptor("TEMPOOL_OUT")
        if fd is None or out is None:
            sys.stderr.write(_HOW_TO_START % os.path.basename(sys.argv[0] or "worker.py"))
            sys.exit(2)
        sys.exit(self._serve(Stream(fd, out), threads))

    def _serve(self, connection: Any, threads: int) -> int:
        for stream in (sys.stdout, sys.stderr):
            reconfigure = getattr(stream, "reconfigure", None)
            if reconfigure is not None:
                reconfigure(line_buffering=True)
        async_methods = any(method.is_async for method in self._methods.values())
        loop = None
        if async_methods or any(map(is_async, self._on_start + self._on_stop + self._on_health)):
            from .eventloop import EventLoop  # a slow import that few workers need

            loop = EventLoop()
        check: Optional[Callable[[], None]] = None
        if self._on_health:
            def run_hooks() -> None:
                for hook in self._on_health:
                    _run_hook(hook, loop)
            check = run_hooks
        if threads == 1 and not async_methods:
            server: Any = Serial(connection, self._methods, check)
        else:
            from .threaded import Threaded

            server = Threaded(connection, self._methods, threads, loop, check)
        self._server = server
        for hook in self._on_start:
            _run_hook(hook, loop)
        forked.stop_on_sigterm(server)
        try:
            server.run()
        except ProtocolError as e:
            print("tempool: protocol error from the host: %s" % e, file=sys.stderr)
            return 1
        except (BrokenPipeError, ConnectionResetError):
            pass  # the host exited while the worker was writing
        code = 0
        for hook in self._on_stop:
            try:
                _run_hook(hook, loop)
            except Exception as error:
                log_exception(error)
                code = 1
        if loop is not None:
            loop.close()
        return code


def _run_hook(hook: Callable[[], Any], loop: Any) -> None:
    if is_async(hook):
        loop.start(hook()).result()
    else:
        hook()


def _descriptor(name: str) -> Optional[int]:
    """Reads the number of an open descriptor from the environment, or None, and removes the variable so that children do not inherit it."""
    text = os.environ.pop(name, "")
    if not text.isdigit():
        return None
    try:
        os.fstat(int(text))
    except OSError:
        return None
    return int(text)
