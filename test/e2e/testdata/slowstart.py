"""A worker that is not ready before the file GATE exists."""
import os
import time

import tempool

while not os.path.exists(os.environ["GATE"]):
    time.sleep(0.01)


@tempool.method(raw=True)
def echo(body):
    return body


tempool.run()
