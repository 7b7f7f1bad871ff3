"""A worker with one method for each type of answer."""
import os
import time

import tempool


@tempool.method
def square(x):
    return x * x


@tempool.method(raw=True)
def echo(body):
    return body


@tempool.method
def pid():
    return os.getpid()


@tempool.method
def count(n):
    for i in range(n):
        yield {"i": i}
    return "counted"


notes = []


@tempool.method
def remember(what=None):
    """Remembers what it gets, and returns all of it."""
    if what is not None:
        notes.append(what)
    return notes


@tempool.method
def visit():
    """Counts the visits of a session, and shows what is in it."""
    session = tempool.context().session
    session.change("visits", lambda n: (n or 0) + 1)
    session["last"] = {"pid": os.getpid()}
    return session.copy()


@tempool.method
def nap(seconds):
    """Returns when it began and when it ended."""
    began = time.monotonic()
    while time.monotonic() < began + seconds:
        time.sleep(0.001)
        tempool.context().check()
    return [os.getpid(), began, time.monotonic()]


@tempool.method
def fail():
    raise tempool.Error("no such thing", code="nothing", data={"n": 1})


@tempool.method
def die():
    os._exit(3)


tempool.run()
