"""A worker that leaks LEAK megabytes per call."""
import os

import tempool

kept = []


@tempool.method(raw=True)
def leak(body):
    kept.append(bytearray(b"x" * 1_000_000 * int(os.environ["LEAK"])))
    return body


tempool.run()
