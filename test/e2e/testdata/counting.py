"""A worker that counts the calls it has answered where a SIGKILL cannot take the count away: one byte in a file for each."""
import os

import tempool

tally = os.open(os.path.join(os.environ["TALLY"], str(os.getpid())), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


@tempool.method(raw=True)
def echo(body):
    os.write(tally, b".")
    return body


tempool.run()
