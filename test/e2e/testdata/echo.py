"""A worker that answers, and one method for each way of getting into trouble."""
import os
import subprocess
import sys

import tempool


@tempool.method(raw=True)
def echo(body):
    return body


@tempool.method
def grandchild():
    """Start a descendant that leaves the session, so that no process group holds it."""
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True).pid


@tempool.method
def paid(calls):
    tempool.context().count("api_calls", calls)


@tempool.method
def pid():
    return os.getpid()


@tempool.on_lease_reset
def reset():
    """Nothing is kept from call to call."""


tempool.run()
