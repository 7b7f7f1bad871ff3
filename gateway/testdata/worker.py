import os
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


@tempool.method
def fail():
    raise tempool.Error("it cannot be done", code="cannot", data={"why": "because"})


@tempool.method
def fatal():
    raise tempool.Fatal("broken beyond repair")


@tempool.method
def crash():
    os._exit(3)


@tempool.method(raw=True)
def stream(body):
    for i in range(int(body)):
        yield b"piece %d\n" % i


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
    return {k: v for k, v in context.headers.items() if k != "tempool-timeout"}


@tempool.method(raw=True)
def large(body):
    return b"x" * int(body)


released = []


@tempool.on_session_release
def release(id):
    if id == "stuck":
        raise tempool.Error("not this one", code="cannot")
    released.append([id, tempool.context().headers["tempool-session"]])


@tempool.method(name="released")
def tell_released():
    return released


tempool.run(threads=int(os.environ.get("THREADS", "1")))
