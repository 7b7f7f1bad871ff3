"""A worker that echoes its input, with other methods for failures."""
import os
import subprocess
import sys

import tempool


@tempool.method(raw=True)
def echo(body):
    return body


@tempool.method
def grandchild():
    """Start a child process in its own session, outside the process group of the worker."""
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True).pid


@tempool.method
def paid(calls):
    tempool.context().count("api_calls", calls)


@tempool.method
def pid():
    return os.getpid()


@tempool.on_lease_reset
def reset():
    """Keep nothing: calls leave no state behind."""


tempool.run()
