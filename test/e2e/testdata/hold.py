"""A worker that allocates memory on request and keeps it."""
import tempool

held = []


@tempool.method
def hold(mebibytes):
    held.append(b"x" * (mebibytes << 20))
    return len(held)


tempool.run()
