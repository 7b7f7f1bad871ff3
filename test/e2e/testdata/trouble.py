"""A worker that sleeps and fails on request. It appends a line to the file NOTES when a call begins or ends."""
import collections
import os
import time

import tempool


def note(line):
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(line + "\n")


@tempool.method
def nap(seconds, name="somebody"):
    context = tempool.context()
    note(f"begin {name} {context.worker}")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if context.cancelled:
            note(f"cancel {name} {context.worker}")
            context.check()
        time.sleep(0.005)
    note(f"end {name} {context.worker}")
    return name


@tempool.method
def wait_for(release, name="somebody"):
    """Returns its name once the file release exists."""
    context = tempool.context()
    note(f"begin {name} {context.worker}")
    while not os.path.exists(release):
        context.check()
        time.sleep(0.005)
    note(f"end {name} {context.worker}")
    return name


@tempool.method
def hold(release, name="somebody"):
    """Returns once the file release exists, and ignores that its caller has left."""
    note(f"begin {name} {tempool.context().worker}")
    while not os.path.exists(release):
        time.sleep(0.005)


@tempool.method
def add(a, b):
    return {"sum": a + b}


@tempool.method
def fail(why):
    raise ValueError(why)


@tempool.method(raw=True)
def noise(body):
    return bytes(range(256))


calls = collections.Counter()


@tempool.method
def count(lease):
    calls[lease] += 1
    assert list(calls).index(lease) == len(calls) - 1, "a call under an older lease"
    return calls[lease]


@tempool.method
def die():
    os._exit(3)


tempool.run()
