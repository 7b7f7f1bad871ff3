"""A worker that exits with the code it gets, and does not stop in time if OBSTINATE is set."""
import os
import time

import tempool


@tempool.on_stop
def stop():
    if os.environ.get("OBSTINATE"):
        time.sleep(3600)


@tempool.method
def leave(code):
    os._exit(code)


tempool.run()
