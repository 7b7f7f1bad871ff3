"""What can go wrong, each kind with a class of its own."""

import json

# Refusals that may pass by themselves, so that the same request can succeed later or through another gateway.
PASSING = frozenset([
    "busy", "degraded", "draining", "suspended", "starting", "failed", "continuing",
    "no_workers", "queue_full", "queue_timeout", "rate_limited", "unavailable", "worker_crashed",
])


class TempoolError(Exception):
    """A request that failed, with a code that is the same word in every part of Tempool.

    started tells whether a worker may have seen the call; only calls that were not started are safe to send again. retry_after is
    how many seconds to wait before that makes sense, None where that is not known. status is the HTTP status, 0 where there was no answer.
    """

    def __init__(self, message, code="error", started=False, retry_after=None, status=0):
        super().__init__(message)
        self.code = code
        self.started = started
        self.retry_after = retry_after
        self.status = status
        self.endpoint = None  # of the gateway that has the lease in question, if it is another


class PoolNotFound(TempoolError):
    """There is no pool of this name."""


class LeaseNotFound(TempoolError):
    """There is no such lease, or it is another host's."""


class LeaseFenced(TempoolError):
    """The lease has ended or was superseded: check out again."""


class QueueFull(TempoolError):
    """As many calls wait for the pool as may."""


class QueueTimeout(TempoolError):
    """No worker came free within the time that a call may wait."""


class NoWorkers(TempoolError):
    """The pool has no worker that could serve now."""


class RateLimited(TempoolError):
    """The pool's workers have had as many calls as they may for now."""


class Busy(TempoolError):
    """The worker is somebody else's for now."""


class DeadlineExceeded(TempoolError):
    """The call's time was over before it was answered."""


class WorkerCrashed(TempoolError):
    """The worker's process ended, or an answer broke off; started tells whether the call may have had an effect."""


class WorkerError(TempoolError):
    """The worker's own answer: it read the call and failed.

    worker_code, type (the exception's class), traceback, data and fatal are the worker's words; None or False where it said nothing.
    """

    worker_code = type = traceback = data = None
    fatal = False


class PayloadTooLarge(TempoolError):
    """The request or the answer is larger than the pool allows."""


class Invalid(TempoolError):
    """The request itself is wrong, and would be wherever it is sent."""


class Unauthorized(TempoolError):
    """The gateway wants a token that it knows."""


class Unavailable(TempoolError):
    """No gateway could be reached, or what is behind it does not answer."""


class SessionNotFound(TempoolError):
    """There is no session of this id, or it has expired."""


class SessionExists(TempoolError):
    """There is a session of this id already."""


class VersionConflict(TempoolError):
    """The session has another version than the change was meant for: read it again."""


class StoreFull(TempoolError):
    """The session store holds as many sessions as it may."""


_KINDS = {
    "pool_not_found": PoolNotFound, "lease_not_found": LeaseNotFound, "lease_fenced": LeaseFenced, "queue_full": QueueFull,
    "queue_timeout": QueueTimeout, "no_workers": NoWorkers, "rate_limited": RateLimited, "busy": Busy, "deadline_exceeded": DeadlineExceeded,
    "worker_crashed": WorkerCrashed, "worker_error": WorkerError, "payload_too_large": PayloadTooLarge, "invalid": Invalid,
    "unauthorized": Unauthorized, "forbidden": Unauthorized, "unavailable": Unavailable, "session_not_found": SessionNotFound,
    "session_exists": SessionExists, "version_conflict": VersionConflict, "store_full": StoreFull,
}


def error_of(status, reason, headers, body):
    """The exception for an HTTP answer that is an error: a problem as in RFC 9457 with Tempool's members."""
    try:
        told = json.loads(body)
        code = told["code"]
    except (ValueError, KeyError, TypeError):
        return Unavailable(
            "what answered was no gateway of Tempool, or its answer was cut short: %d %s" % (status, reason), "unavailable", True, status=status)
    retry_after = told["retry_after_ms"] / 1000 if told.get("retry_after_ms") else None
    if retry_after is None and (headers.get("Retry-After") or "").isdigit():
        retry_after = float(headers["Retry-After"])
    error = _KINDS.get(code, TempoolError)(told.get("detail") or reason, code, told.get("started", True), retry_after, status)
    error.endpoint = told.get("endpoint") or None
    failure = told.get("worker_error")
    if isinstance(error, WorkerError) and isinstance(failure, dict):
        error.worker_code, error.type, error.traceback = failure.get("code"), failure.get("type"), failure.get("traceback")
        error.data, error.fatal = failure.get("data"), bool(failure.get("fatal"))
    return error
