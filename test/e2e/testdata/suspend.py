"""A worker whose calls take as long as their callers say."""
import os
import time

import tempool


@tempool.method
def work(milliseconds):
    time.sleep(milliseconds / 1000)
    return os.getpid()


tempool.run()
