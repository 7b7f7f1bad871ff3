// What a handler can know and do about the call it serves.

import { AsyncLocalStorage } from 'node:async_hooks'
import { Cancelled } from './errors.js'

const current = new AsyncLocalStorage()

/** The Context of the call that the running code belongs to, across awaits. Throws outside of a call. */
export function context() {
  const call = current.getStore()
  if (!call) throw new Error('tempool.context() works inside a method')
  return call
}

/** Runs fn as part of a call. */
export function within(call, fn) {
  return current.run(call, fn)
}

/** The number of this process in its worker's life, from 1; 0 when it is not known. */
function incarnation() {
  const parts = (process.env.TEMPOOL_INCARNATION ?? '').split(':')
  const number = parts.length >= 3 ? parts[parts.length - 2] : ''
  return /^\d+$/.test(number) ? Number(number) : 0
}

/** One call. Valid until the handler returns. */
export class Context {
  #counts = new Map()
  #abort
  #host

  constructor(frame, host) {
    /** headers of the request, such as tempool-session and traceparent */
    this.headers = frame.headers
    /** headers to send with the answer: strings */
    this.responseHeaders = {}
    this.worker = process.env.TEMPOOL_WORKER ?? ''
    this.incarnation = incarnation()
    const timeout = frame.headers['tempool-timeout'] ?? ''
    /** when the caller stops waiting, on the clock of performance.now(), in ms; null if it waits forever */
    this.deadline = /^\d+$/.test(timeout) ? performance.now() + Number(timeout) : null
    this.#host = host
  }

  /** Milliseconds until the deadline, never below 0; null if there is none. */
  get remaining() {
    return this.deadline === null ? null : Math.max(0, this.deadline - performance.now())
  }

  /** An AbortSignal that fires when nobody waits for the answer any more; give it to fetch and the like. */
  get signal() {
    this.#abort ??= new AbortController()
    return this.#abort.signal
  }

  /** Whether nobody waits for the answer any more. */
  get cancelled() {
    return this.signal.aborted
  }

  /** Throws Cancelled once the call is cancelled. */
  check() {
    if (this.cancelled) throw new Cancelled()
  }

  /** Adds n to a counter of this worker's metrics, such as "api_calls". Told to the host with the answer. */
  count(name, n = 1) {
    this.#counts.set(name, (this.#counts.get(name) ?? 0) + n)
  }

  /** Asks the host; params and the result are anything JSON can hold. Rejects with HostError when it refuses. */
  host(method, params) {
    return this.#host(method, params)
  }

  /** The session of this call, kept by the host: every worker of the pool sees it. */
  get session() {
    return new Session(this)
  }

  /** For the connection: the caller has gone. */
  cancel() {
    this.#abort ??= new AbortController()
    this.#abort.abort(new Cancelled())
  }

  /** For the connection: the headers of the answer. */
  answerHeaders() {
    const headers = { ...this.responseHeaders }
    for (const [name, n] of this.#counts) headers[`tempool-count-${name}`] = String(n)
    return headers
  }
}

/** A session's data. Each access asks the host, so it is never stale. */
export class Session {
  #call

  constructor(call) {
    this.#call = call
  }

  /** The whole session: id, data, programs, metadata, version and times. */
  load() {
    return this.#call.host('session.get')
  }

  async get(key) {
    return (await this.load()).data[key]
  }

  set(key, value) {
    return this.update({ [key]: value })
  }

  delete(key) {
    return this.update({ [key]: null })
  }

  /** Merges data into the session (null removes a key) and resolves to the new session. With version, only if it has that version still. */
  update(data, version) {
    return this.#call.host('session.update', version === undefined ? { patch: { data } } : { patch: { data }, version })
  }

  /** Extends the session's life. */
  touch() {
    return this.#call.host('session.touch')
  }

  /** Ends the session. */
  end() {
    return this.#call.host('session.delete')
  }

  /** Keeps a program (anything JSON can hold) in the session, for any worker to run. */
  putProgram(id, program) {
    return this.#call.host('programs.put', { id, program })
  }

  getProgram(id) {
    return this.#call.host('programs.get', { id })
  }

  deleteProgram(id) {
    return this.#call.host('programs.delete', { id })
  }
}
