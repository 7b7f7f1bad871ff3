"""A worker that does not stop in time if OBSTINATE is set."""
import os
import time

import tempool


@tempool.on_stop
def stop():
    if os.environ.get("OBSTINATE"):
        time.sleep(3600)


tempool.run()
