"""The exceptions of the client, one class for each code."""

from __future__ import annotations

import json
from typing import Any, List, Mapping, Optional

# Temporary errors: the same request can succeed later or through another gateway. Not "suspended": that lasts until an operator ends it.
RETRYABLE = frozenset([
    "busy", "degraded", "draining", "starting", "failed", "continuing",
    "no_workers", "queue_full", "queue_timeout", "rate_limited", "unavailable", "worker_crashed",
])


class TempoolError(Exception):
    """A failed request. code is the same in every part of Tempool.

    started is whether a worker may have received the call; only calls that were not started are safe to retry. retry_after is the number
    of seconds to wait before a retry, None if unknown. status is the HTTP status, 0 without an answer.
    """

    def __init__(self, message: str, code: str = "error", started: bool = False, retry_after: Optional[float] = None, status: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.started = started
        self.retry_after = retry_after
        self.status = status
        self.endpoint: Optional[str] = None  # of the gateway that has the lease, if it is another one
        self.gateways: List[str] = []  # endpoints of gateways that serve the pool while this one does not


class PoolNotFound(TempoolError):
    """The pool does not exist."""


class LeaseNotFound(TempoolError):
    """The lease does not exist, or is on another host."""


class LeaseFenced(TempoolError):
    """The lease has ended or was replaced: check out again."""


class QueueFull(TempoolError):
    """The pool's queue is full."""


class QueueTimeout(TempoolError):
    """No worker became free within the queue timeout."""


class NoWorkers(TempoolError):
    """The pool has no worker that can serve the call."""


class RateLimited(TempoolError):
    """The pool's rate limit was exceeded."""


class Busy(TempoolError):
    """The worker is leased to another holder."""


class DeadlineExceeded(TempoolError):
    """The call's timeout passed before its answer arrived."""


class WorkerCrashed(TempoolError):
    """The worker's process ended, or its answer was cut off; started is whether the call may have had an effect."""


class MemoryLimitExceeded(WorkerCrashed):
    """The worker was killed during the call for exceeding limits.memory."""


class WorkerError(TempoolError):
    """The worker received the call and returned an error.

    worker_code, type (the exception's class), traceback, data, fatal and unhandled come from the worker; None or False if it did not
    send them. Only clients with the right read get the traceback.
    """

    worker_code: Any = None
    type: Optional[str] = None
    traceback: Optional[str] = None
    data: Any = None
    fatal = False
    unhandled = False


class MethodNotFound(WorkerError):
    """The worker has no such method."""


class PayloadTooLarge(TempoolError):
    """The request or the answer exceeds the pool's size limit."""


class Invalid(TempoolError):
    """The request is invalid on any gateway."""


class Unauthorized(TempoolError):
    """The token is missing, invalid or lacks the permission."""


class Unavailable(TempoolError):
    """No gateway is reachable, or its backend does not answer."""


class SessionNotFound(TempoolError):
    """The session does not exist or has expired."""


class SessionExists(TempoolError):
    """A session with this id already exists."""


class VersionConflict(TempoolError):
    """The session has another version: read it again and retry the change."""


class StoreFull(TempoolError):
    """The session store is full."""


_CLASSES = {
    "pool_not_found": PoolNotFound, "lease_not_found": LeaseNotFound, "lease_fenced": LeaseFenced, "queue_full": QueueFull,
    "queue_timeout": QueueTimeout, "no_workers": NoWorkers, "rate_limited": RateLimited, "busy": Busy, "deadline_exceeded": DeadlineExceeded,
    "worker_crashed": WorkerCrashed, "memory_limit_exceeded": MemoryLimitExceeded, "worker_error": WorkerError, "method_not_found": MethodNotFound, "payload_too_large": PayloadTooLarge, "invalid": Invalid,
    "unauthorized": Unauthorized, "forbidden": Unauthorized, "unavailable": Unavailable, "session_not_found": SessionNotFound,
    "session_exists": SessionExists, "version_conflict": VersionConflict, "store_full": StoreFull,
}


def error_of(status: int, reason: str, headers: Mapping[str, str], body: bytes) -> TempoolError:
    """Returns the exception for an HTTP error: a problem document (RFC 9457) with Tempool's members."""
    try:
        problem = json.loads(body)
        code = problem["code"]
    except (ValueError, KeyError, TypeError):
        if status == 431:
            return PayloadTooLarge("the request's line and headers are too large: a gateway accepts 64 KiB", "payload_too_large", status=status)
        return Unavailable(
            "the answer is not from a Tempool gateway, or was cut off: %d %s" % (status, reason), "unavailable", True, status=status)
    retry_after = problem["retry_after_ms"] / 1000 if problem.get("retry_after_ms") else None
    if retry_after is None and (headers.get("Retry-After") or "").isdigit():
        retry_after = float(headers["Retry-After"])
    error = _CLASSES.get(code, TempoolError)(problem.get("detail") or reason, code, problem.get("started", True), retry_after, status)
    error.endpoint = problem.get("endpoint") or None
    error.gateways = [peer["endpoint"] for peer in problem.get("gateways") or [] if isinstance(peer, dict) and peer.get("endpoint")]
    failure = problem.get("worker_error")
    if isinstance(error, WorkerError) and isinstance(failure, dict):
        error.worker_code, error.type, error.traceback = failure.get("code"), failure.get("type"), failure.get("traceback")
        error.data, error.fatal = failure.get("data"), bool(failure.get("fatal"))
        error.unhandled = bool(failure.get("unhandled"))
    return error
