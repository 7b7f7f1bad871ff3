"""A worker that returns its input."""
import os
import time

import tempool


@tempool.method(raw=True)
def echo(body):
    return body


@tempool.method(raw=True)
def cut(_):
    """Streams its PID and then blocks."""
    yield str(os.getpid())
    time.sleep(1000)


tempool.run()
