"""A worker that echoes its input, with other methods for failures."""
import os

import tempool


@tempool.method(raw=True)
def echo(body):
    return body


@tempool.method
def paid(calls):
    tempool.context().count("api_calls", calls)


@tempool.method
def pid():
    return os.getpid()


@tempool.on_lease_reset
def reset():
    """Keep nothing: calls leave no state behind."""


tempool.run()
