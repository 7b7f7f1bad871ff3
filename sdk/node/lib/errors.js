// What a handler may throw to say more than "it failed", and what the SDK throws into handlers.

/** A failure with a code of your own and, if you like, data for the caller (anything JSON can hold). */
export class TempoolError extends Error {
  fatal = false

  constructor(message, { code = 'error', data } = {}) {
    super(message)
    this.name = new.target.name
    this.code = code
    this.data = data
  }
}

/** A failure after which this process should not be used again: Tempool answers the caller, then replaces the worker. */
export class Fatal extends TempoolError {
  fatal = true
}

/** Nobody waits for this call any more. */
export class Cancelled extends TempoolError {
  constructor(message = 'the call was cancelled') {
    super(message, { code: 'cancelled' })
  }
}

/** The host refused or failed what this worker asked of it; code says why. */
export class HostError extends TempoolError {}

/** The bytes are not what the protocol allows. Nothing read after them can be trusted. */
export class ProtocolError extends Error {}
