import os
import socket
import sys
import time

import tempool


@tempool.method(raw=True)
def echo(body):
    return body


@tempool.method(name="tools/call")
def tools_call(**params):
    return params


@tempool.method
def pid():
    return os.getpid()


@tempool.method
def token():
    return os.environ.get("TOKEN", "")


if os.environ.get("TOKEN") == "wrong":
    sys.exit("no such token")

turns = 0


@tempool.method
def turn():
    """Returns the number of calls of turn that this process has served, including this one."""
    global turns
    turns += 1
    return turns


spoilt = False


@tempool.method
def spoil():
    """Makes later resets fail."""
    global spoilt
    spoilt = True


def reset():
    global turns
    if spoilt:
        raise tempool.Error("beyond repair")
    turns = 0


if "NO_RESET" not in os.environ:
    tempool.on_lease_reset(reset)


@tempool.method
def hold(path):
    """Runs until the file exists or the call is cancelled."""
    open(path + ".began", "w").close()
    while not os.path.exists(path):
        tempool.context().check()
        time.sleep(0.002)
    return "let go"


@tempool.method
def stubborn(path):
    """Runs until the file exists and ignores cancels."""
    open(path + ".began", "w").close()
    while not os.path.exists(path):
        time.sleep(0.002)
    return "let go"


def _get(socket_path, path):
    """Returns the status line of a GET over a Unix socket."""
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(socket_path)
        s.sendall(b"GET " + path.encode() + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return s.makefile("rb").readline().decode()


@tempool.method
def get_socket(socket_path, path):
    return _get(socket_path, path)


def _in_child(answer, orphaned):
    """Returns what a child answers, which has left this session and has an empty environment; its parent ends first if it is orphaned."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        if not orphaned or os.fork() == 0:
            code = "import os, sys; sys.path[:0] = %r; os.environ['ANSWER'] = '1'; exec(sys.argv[1])" % (sys.path,)
            os.set_inheritable(writing, True)
            os.execve(sys.executable, [sys.executable, "-c", code, answer % writing], {})
        os._exit(0)
    os.close(writing)
    if orphaned:
        os.waitpid(child, 0)
    with open(reading) as r:
        said = r.read()
    if not orphaned:
        os.waitpid(child, 0)
    return said


_ANSWER = """
import os, socket
s = socket.socket(socket.AF_UNIX)
s.connect(%r)
s.sendall(b"GET %s HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n")
os.write(%%d, s.makefile("rb").readline())
"""


@tempool.method
def get_socket_by_child(socket_path, path):
    return _in_child(_ANSWER % (socket_path, path), False)


@tempool.method
def get_socket_by_orphan(socket_path, path):
    return _in_child(_ANSWER % (socket_path, path), True)


@tempool.method
def fail():
    raise tempool.Error("it cannot be done", code="cannot", data={"why": "because"})


@tempool.method
def bug():
    raise KeyError("nobody catches this")


@tempool.method
def fatal():
    raise tempool.Fatal("broken beyond repair")


@tempool.method
def fatal_later(path):
    """Fails when the file exists."""
    hold(path)
    raise tempool.Fatal("broken beyond repair")


@tempool.method
def fatal_anyway(path):
    """Fails when the file exists, and ignores cancels."""
    stubborn(path)
    raise tempool.Fatal("broken beyond repair")


@tempool.method
def brief():
    """Takes so long that the next request is there before it ends."""
    time.sleep(0.002)


@tempool.method
def crash():
    os._exit(3)


@tempool.method
def hog(megabytes):
    """Holds memory until it is killed."""
    memory = b"x" * (megabytes << 20)
    while memory:
        time.sleep(1)


@tempool.method(raw=True)
def stream(body):
    for i in range(int(body)):
        yield b"piece %d\n" % i


@tempool.method
def stream_json(n):
    for i in range(n):
        yield {"piece": i}


@tempool.method(raw=True)
def stream_large(body):
    """Streams chunks of 64 KiB."""
    for _ in range(int(body)):
        yield b"x" * 65536


@tempool.method(raw=True)
def stream_then_crash(body):
    yield b"one piece\n"
    os._exit(3)


@tempool.method(raw=True)
def stream_held(body):
    """Streams a chunk, and another one when the file exists."""
    yield b"first\n"
    while not os.path.exists(body.decode()):
        tempool.context().check()
        time.sleep(0.002)
    yield b"last\n"


@tempool.method
def headers():
    context = tempool.context()
    context.response_headers["x-answer"] = "yes"
    context.response_headers["content-type"] = "text/plain"
    context.response_headers["x-content-type-options"] = "sniff"
    return {k: v for k, v in context.headers.items() if k != "tempool-timeout"}


@tempool.method(raw=True)
def large(body):
    return b"x" * int(body)


def suspend():
    """Runs until the file SUSPEND_UNTIL exists or the hook is cancelled."""
    hold(os.environ["SUSPEND_UNTIL"])


if "SUSPEND_UNTIL" in os.environ:
    tempool.on_suspend(suspend)


if "STOP_UNTIL" in os.environ:

    @tempool.on_stop
    def stop():
        """Runs until the file exists."""
        open(os.environ["STOP_UNTIL"] + ".began", "w").close()
        while not os.path.exists(os.environ["STOP_UNTIL"]):
            time.sleep(0.002)


released = []


@tempool.on_session_release
def release(id):
    if id == "stuck":
        raise tempool.Error("not this one", code="cannot")
    if id == "hang":
        hold(os.environ["RELEASED"])
    released.append([id, tempool.context().headers["tempool-session"]])
    if "RELEASED" in os.environ:
        with open(os.environ["RELEASED"] + ".txt", "a") as log:
            log.write(id + "\n")


@tempool.method(name="released")
def tell_released():
    return released


tempool.run(threads=int(os.environ.get("THREADS", "1")))
