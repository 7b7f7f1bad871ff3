"""A worker that holds BALLAST megabytes and takes LOAD seconds to load."""
import json  # noqa: F401 - the imports of a usual program
import os
import socket  # noqa: F401
import time

import tempool

ballast = b"\1" * (int(os.environ["BALLAST"]) << 20)
time.sleep(float(os.environ["LOAD"]))


@tempool.method
def pid():
    return os.getpid()


tempool.run()
