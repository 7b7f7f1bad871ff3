"""The template: a process that has loaded the program and never serves. The worker's processes are its forks (start.fork)."""

from __future__ import annotations

import fcntl
import gc
import json
import os
import random
import socket
import struct
import sys
import threading
import time

from .methods import is_async

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, List

_HUGE = 2 << 20  # bytes of a huge page
_MADV_COLLAPSE = 25
_COMPACTION = 2.0  # seconds for which memory is moved into huge pages; the rest stays where it is
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000


def serve(control: int, on_start: List[Callable[[], Any]], before_fork: List[Callable[[], Any]]) -> None:
    """Loads the program and forks on request. It returns in each process that it forks, once the host lets that go on."""
    os.set_inheritable(control, False)
    for hook in on_start:
        if is_async(hook):
            sys.exit("tempool: start.fork: %s is async, and its event loop is a thread, which a fork does not have; "
                     "make it a plain function, or an after_fork hook" % getattr(hook, "__qualname__", hook))
        hook()
    for hook in before_fork:
        hook()
    _refuse_threads()
    gc.collect()
    gc.freeze()  # so that a collection in a fork does not copy the pages of what was loaded
    _use_huge_pages()
    connection = socket.socket(fileno=control)
    connection.sendall(b'{"template": 1}\n')
    while True:
        sys.stdout.flush()
        sys.stderr.flush()
        # The process is forked ahead of its request, which then costs no fork, by a helper that exits, so that the host adopts it.
        taken, take = os.pipe()
        helper = os.fork()
        if helper == 0:
            os.close(taken)
            if os.fork():
                os._exit(0)
            _reseed()
            _await_request(connection, take)
            return
        os.close(take)
        _, status = os.waitpid(helper, 0)
        if os.WIFEXITED(status) and status != 0:
            os._exit(1)
        came = b""
        while True:
            data = os.read(taken, 2)
            if not data:
                break
            came += data
        os.close(taken)
        if came == _TAKEN:
            connection.sendall(b'{"error": "the process that was forked has been killed"}\n')
        elif not came and not _is_open(connection):
            os._exit(0)


_TAKEN = b"1"  # from the process that waits: it has a request
_ANSWERS = b"2"  # it answers the request; it closes the pipe when it begins to serve


def _use_huge_pages() -> None:
    """Moves the memory of what was loaded into huge pages where Linux can (6.1): a fork, and its end, take time for each page.

    A fork that writes still gets 4 KiB of its own. Memory that is only partly in use stays where it is, since it would grow.
    """
    try:
        import ctypes

        advise = ctypes.CDLL(None).madvise
        with open("/proc/self/smaps") as smaps:
            lines = smaps.read().splitlines()
    except (ImportError, OSError, AttributeError):
        return
    until = time.monotonic() + _COMPACTION
    start = end = 0
    for line in lines:
        fields = line.split()
        if not fields[0].endswith(":"):
            anonymous = fields[1] == "rw-p" and (len(fields) == 5 or fields[5] == "[heap]")
            start, end = [int(address, 16) for address in fields[0].split("-")] if anonymous else (0, 0)
        elif fields[0] == "Anonymous:" and int(fields[1]) << 10 >= (end - start) * 0.95:
            for at in range(-(-start // _HUGE) * _HUGE, end - _HUGE + 1, _HUGE):
                if time.monotonic() > until:
                    return
                advise(ctypes.c_void_p(at), ctypes.c_size_t(_HUGE), _MADV_COLLAPSE)


def _is_open(connection: socket.socket) -> bool:
    """Whether the host has the connection open, so that the process which waited was killed. A request that came takes the next one."""
    try:
        return bool(connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except BlockingIOError:
        return True


def _refuse_threads() -> None:
    """Exits if another thread runs: a fork would not have it, and keep the locks that it holds."""
    names = [t.name for t in threading.enumerate() if t is not threading.current_thread()]
    try:
        own = threading.get_native_id()
        natives = [int(tid) for tid in os.listdir("/proc/self/task") if int(tid) != own]
    except OSError:
        natives = []
    if len(natives) > len(names):
        known = {t.native_id for t in threading.enumerate()}
        for tid in natives:
            if tid not in known:
                with open("/proc/self/task/%d/comm" % tid) as comm:
                    names.append("%s (of a library, thread %d)" % (comm.read().strip(), tid))
    if names:
        sys.exit("tempool: start.fork: a template must have no other threads, and this one has: %s; start them in an after_fork hook, "
                 "stop them in a before_fork hook, or for numeric libraries set OPENBLAS_NUM_THREADS, OMP_NUM_THREADS or MKL_NUM_THREADS to 1"
                 % ", ".join(names))


def _await_request(connection: socket.socket, take: int) -> None:
    """In the process that was forked ahead: takes one request, and returns once the host lets the process go on."""
    line = b""
    files: List[int] = []
    while not line.endswith(b"\n"):
        data, fds, _, _ = socket.recv_fds(connection, 64 << 10, 16)
        if not data:
            os._exit(0)  # the host has closed the connection
        if not line:
            os.write(take, _TAKEN)
        line += data
        files += fds
    try:
        request = json.loads(line)
        os.setsid()
        if request.get("network") == "none":
            _leave_network()
        targets = request["files"]
        files.append(take)
        take = _prepare(connection, files, targets)
        gate = files.pop()
        os.environ.update(request["env"])
    except Exception as error:
        os.write(take, _ANSWERS)
        connection.sendall(json.dumps({"error": "%s: %s" % (type(error).__name__, error)}).encode() + b"\n")
        os._exit(1)
    os.write(take, _ANSWERS)
    connection.sendall(json.dumps({"pid": os.getpid()}).encode() + b"\n")
    connection.close()
    for target, file in zip(targets, files):
        os.dup2(file, target)
        os.close(file)
    if not os.read(gate, 1):
        os._exit(0)  # the host has given this process up
    os.close(gate)
    os.close(take)  # not before: the next fork would compete with this process


def _prepare(connection: socket.socket, files: List[int], targets: List[int]) -> int:
    """Moves descriptors, and the connection, out of the way of the targets of a request. Returns the last of them."""
    free = max(targets) + 1
    moved = [fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, free) for file in files]
    for file in files:
        os.close(file)
    files[:] = moved
    held = fcntl.fcntl(connection.fileno(), fcntl.F_DUPFD_CLOEXEC, free)
    connection.close()
    connection.__init__(fileno=held)  # type: ignore[misc]
    return files.pop()


def _leave_network() -> None:
    """Gives this process a network of its own with a loopback interface only."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET) and libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "sandbox.network = none needs CAP_SYS_ADMIN, or user namespaces for everybody: cannot leave the network")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        up = struct.pack("16sH14x", b"lo", 0x1 | 0x40)  # IFF_UP, IFF_RUNNING
        fcntl.ioctl(any_socket, 0x8914, up)  # SIOCSIFFLAGS


def _reseed() -> None:
    """Makes the generators of this process differ from those of its siblings. os.urandom and uuid.uuid4 need nothing."""
    random.seed()
    modules = sys.modules
    if "uuid" in modules:
        setattr(modules["uuid"], "_last_timestamp", None)
    if "ssl" in modules:
        modules["ssl"].RAND_add(os.urandom(32), 32.0)
    if "numpy.random" in modules:
        modules["numpy.random"].seed()
