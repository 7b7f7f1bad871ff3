"""A worker that leaks a megabyte per call."""
import tempool

kept = []


@tempool.method(raw=True)
def leak(body):
    kept.append(bytearray(b"x" * 1_000_000))
    return body


tempool.run()
