"""Call Tempool pools from any Python program.

    from tempool.client import Client

    with Client() as client:
        print(client.pool("python").call("square", {"x": 12}))

A Client uses HTTP to the gateways of agents, needs only the standard library, and is safe for use by many threads.
"""

from .calls import Answer, Stream
from .client import Client, Pool, Worker
from .errors import (
    Busy, DeadlineExceeded, Invalid, LeaseFenced, LeaseNotFound, MemoryLimitExceeded, MethodNotFound, NoWorkers, PayloadTooLarge, PoolNotFound, QueueFull, QueueTimeout,
    RateLimited, SessionExists, SessionNotFound, StoreFull, TempoolError, Unauthorized, Unavailable, VersionConflict, WorkerCrashed, WorkerError,
)
from .lease import Lease
from .map import Result
from .sessions import Sessions

__all__ = [
    "Answer", "Busy", "Client", "DeadlineExceeded", "Invalid", "Lease", "LeaseFenced", "LeaseNotFound", "MemoryLimitExceeded", "MethodNotFound", "NoWorkers", "PayloadTooLarge", "Pool",
    "PoolNotFound", "QueueFull", "QueueTimeout", "RateLimited", "Result", "SessionExists", "SessionNotFound", "Sessions", "StoreFull", "Stream",
    "TempoolError", "Unauthorized", "Unavailable", "VersionConflict", "Worker", "WorkerCrashed", "WorkerError",
]
