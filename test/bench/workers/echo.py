"""A worker that answers with what it gets."""
import os
import time

import tempool


@tempool.method(raw=True)
def echo(body):
    return body


@tempool.method(raw=True)
def cut(_):
    """Tells who it is, and never comes to an end."""
    yield str(os.getpid())
    time.sleep(1000)


tempool.run()
