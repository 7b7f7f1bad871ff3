"""A worker with a child process in its own session (setsid), started before the worker is ready."""
import subprocess
import sys

import tempool

subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True)


@tempool.method(raw=True)
def echo(body):
    return body


tempool.run()
