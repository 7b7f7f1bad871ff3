"""Make a Python program a worker of a Tempool pool.

    import tempool

    @tempool.method
    def square(x):
        return x * x

    tempool.run()
"""

from .context import Context, Session, context
from .errors import Cancelled, Error, Fatal, HostError
from .worker import Worker

__version__ = "0.1.0"
__all__ = [
    "Cancelled", "Context", "Error", "Fatal", "HostError", "Session", "Worker",
    "context", "method", "on_start", "on_stop", "run",
]

_worker = Worker()
method = _worker.method
on_start = _worker.on_start
on_stop = _worker.on_stop
run = _worker.run
