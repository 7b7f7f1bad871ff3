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
    "after_fork", "before_fork", "context", "method", "on_health", "on_lease_reset", "on_resume", "on_session_load", "on_session_release", "on_start", "on_stop",
    "on_suspend", "run", "unhealthy",
]

#: the Worker of this module's functions
default_worker = Worker()
method = default_worker.method
on_start = default_worker.on_start
on_stop = default_worker.on_stop
on_session_release = default_worker.on_session_release
on_session_load = default_worker.on_session_load
on_lease_reset = default_worker.on_lease_reset
on_suspend = default_worker.on_suspend
on_resume = default_worker.on_resume
on_health = default_worker.on_health
before_fork = default_worker.before_fork
after_fork = default_worker.after_fork
unhealthy = default_worker.unhealthy
run = default_worker.run
