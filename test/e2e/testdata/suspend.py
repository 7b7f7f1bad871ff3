"""A worker whose calls take as long as their callers say, and whose hooks of a suspension do what the environment says."""
import os
import subprocess
import sys
import time

import tempool


def note(word):
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(word + "\n")


@tempool.method
def work(milliseconds):
    time.sleep(milliseconds / 1000)
    return os.getpid()


@tempool.method
def linger(folder):
    """Write the file begun in the folder, and return once there is the file release."""
    open(os.path.join(folder, "begun"), "w").close()
    while not os.path.exists(os.path.join(folder, "release")):
        tempool.context().check()
        time.sleep(0.01)


@tempool.method
def descend():
    """Start a process in a session of its own that counts forever, and return its PID."""
    count = "import time\nfor n in range(1 << 60): time.sleep(0.01)"
    return subprocess.Popen([sys.executable, "-c", count], start_new_session=True).pid


def behave(hook):
    note(hook)
    action = os.environ.get(hook, "")
    if action == "fail":
        raise ValueError("the model is in use")
    while action == "hang" and not tempool.context().cancelled and not os.path.exists(os.environ["NOTES"] + ".release"):
        time.sleep(0.01)


if os.environ.get("NOTES"):
    tempool.on_suspend(lambda: behave("suspend"))
    tempool.on_resume(lambda: behave("resume"))

tempool.run()
