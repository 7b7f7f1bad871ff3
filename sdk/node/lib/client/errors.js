// The errors of the client.

// Temporary errors: the same request can succeed later or through another gateway. Not "suspended": that lasts until an operator ends it.
const retryable = new Set([
  'busy', 'degraded', 'draining', 'starting', 'failed', 'continuing',
  'no_workers', 'queue_full', 'queue_timeout', 'rate_limited', 'unavailable', 'worker_crashed',
])

/**
 * A failed request. code is the same in every part of Tempool. started says whether a worker may have received the call: only a call that was not
 * started is safe to repeat. retryAfter is the milliseconds to wait before a retry, undefined if unknown. status is the HTTP status, 0 without an
 * answer.
 */
export class TempoolError extends Error {
  constructor(message, { code = 'error', started = false, retryAfter, status = 0, cause } = {}) {
    super(message, cause === undefined ? undefined : { cause })
    this.name = new.target.name
    this.code = code
    this.started = started
    this.retryAfter = retryAfter
    this.status = status
    this.endpoint = undefined // of the gateway that has the lease, if it is another one
  }

  /** Whether the same request can succeed later. */
  get temporary() {
    return retryable.has(this.code)
  }
}

/**
 * The worker received the call and returned an error. workerCode, type (the error's class), traceback, data, fatal and unhandled come from the
 * worker. Only clients with the right read get the traceback.
 */
export class WorkerError extends TempoolError {
  constructor(message, { workerCode, type, traceback, data, fatal = false, unhandled = false, ...rest } = {}) {
    super(message, { code: 'worker_error', started: true, ...rest })
    Object.assign(this, { workerCode, type, traceback, data, fatal, unhandled })
  }
}

/** Returns the error for an HTTP error: a problem document (RFC 9457) with Tempool's members. */
export function errorOf(status, headers, body) {
  let problem
  try {
    problem = JSON.parse(body.toString())
  } catch {
    problem = null
  }
  if (typeof problem?.code !== 'string') {
    if (status === 431) {
      return new TempoolError("the request's line and headers are too large: a gateway accepts 64 KiB", { code: 'payload_too_large', status })
    }
    return new TempoolError(`the answer is not from a Tempool gateway, or was cut off: status ${status}`, { code: 'unavailable', started: true, status })
  }
  const { code, detail, title, started = true, worker_error: failure } = problem
  const seconds = /^\d+$/.test(headers['retry-after'] ?? '') ? Number(headers['retry-after']) * 1000 : undefined
  const fields = { code, started, retryAfter: problem.retry_after_ms || seconds, status }
  const message = detail || title || `status ${status}`
  if (code !== 'worker_error' && code !== 'method_not_found') {
    const error = new TempoolError(message, fields)
    error.endpoint = problem.endpoint || undefined
    return error
  }
  const { code: workerCode, type, traceback, data, fatal, unhandled } = failure ?? {}
  return new WorkerError(message, { ...fields, workerCode, type, traceback, data, fatal: Boolean(fatal), unhandled: Boolean(unhandled) })
}

/** Returns the error of a malformed request. */
export function invalid(message) {
  return new TempoolError(message, { code: 'invalid' })
}
