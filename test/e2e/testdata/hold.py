"""A worker that holds as much memory as it is told to."""
import tempool

held = []


@tempool.method
def hold(mebibytes):
    held.append(b"x" * (mebibytes << 20))
    return len(held)


tempool.run()
