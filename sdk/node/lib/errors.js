// Errors that handlers can throw, and those that the SDK throws in handlers.

/** An error with a code of your own and optional data for the caller (anything JSON can represent). */
export class TempoolError extends Error {
  fatal = false

  constructor(message, { code = 'error', data } = {}) {
    super(message)
    this.name = new.target.name
    this.code = code
    this.data = data
  }
}

/** An error after which this process must not be used again: Tempool returns it to the caller and replaces the process. */
export class Fatal extends TempoolError {
  fatal = true
}

/** The caller cancelled the call or has disconnected. */
export class Cancelled extends TempoolError {
  constructor(message = 'the call was cancelled') {
    super(message, { code: 'cancelled' })
  }
}

/** The host rejected or failed a host call; code says why. */
export class HostError extends TempoolError {}

/** Another call changed the session first. */
export class Conflict extends HostError {}

/** The call's session does not exist. */
export class SessionNotFound extends HostError {}

/** The call's session has no program with that id. */
export class ProgramNotFound extends HostError {}

const hostErrors = new Map([['version_conflict', Conflict], ['session_not_found', SessionNotFound], ['program_not_found', ProgramNotFound]])

/** Returns the error for a host error. */
export function hostError(message, code, data) {
  if (code === 'cancelled') return new Cancelled(message)
  return new (hostErrors.get(code) ?? HostError)(message, { code, data })
}

/** The host violated the protocol. The connection cannot be used further. */
export class ProtocolError extends Error {}
