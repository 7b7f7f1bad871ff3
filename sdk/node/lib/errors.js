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

/** The session was changed by somebody else meanwhile. */
export class Conflict extends HostError {}

/** The call's session has ended, or has not begun. */
export class SessionNotFound extends HostError {}

/** The call's session has no program of that id. */
export class ProgramNotFound extends HostError {}

const hostErrors = new Map([['version_conflict', Conflict], ['session_not_found', SessionNotFound], ['program_not_found', ProgramNotFound]])

/** The error for what the host said. */
export function hostError(message, code, data) {
  if (code === 'cancelled') return new Cancelled(message)
  return new (hostErrors.get(code) ?? HostError)(message, { code, data })
}

/** The bytes are not what the protocol allows. Nothing read after them can be trusted. */
export class ProtocolError extends Error {}
