"""A worker that starts slowly."""
import time

import tempool

time.sleep(1)


@tempool.method(raw=True)
def echo(body):
    return body


tempool.run()
