"""Make a Python program a worker of a Tempool pool.

    import tempool

    @tempool.method
    def square(x):
        return x * x

    tempool.run()
"""

from .context import Context, context
from .errors import Cancelled, Conflict, Error, Fatal, HostError, ProgramNotFound, SessionNotFound
from .session import Programs, Session
from .worker import Worker

__version__ = "0.1.0"
__all__ = [
    "Cancelled", "Conflict", "Context", "Error", "Fatal", "HostError", "ProgramNotFound", "Programs", "Session", "SessionNotFound", "Worker",
    "context", "method", "on_health", "on_lease_reset", "on_resume", "on_session_load", "on_session_release", "on_start", "on_stop",
    "on_suspend", "run", "unhealthy",
]

_worker = Worker()
method = _worker.method
on_start = _worker.on_start
on_stop = _worker.on_stop
on_session_release = _worker.on_session_release
on_session_load = _worker.on_session_load
on_lease_reset = _worker.on_lease_reset
on_suspend = _worker.on_suspend
on_resume = _worker.on_resume
on_health = _worker.on_health
unhealthy = _worker.unhealthy
run = _worker.run
