"""A worker that notes each key that it serves in a file of its process."""
import os
import time

import tempool

notes = -1


@tempool.method
def use(key):
    global notes
    if notes < 0:
        name = f"{os.getpid()}-{time.time_ns()}"
        notes = os.open(os.path.join(os.environ["KEYS"], name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(notes, f"{key}\n".encode())
    return key


tempool.run()
