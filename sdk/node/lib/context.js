// What a handler can know and do about the call it serves.

import { AsyncLocalStorage } from 'node:async_hooks'
import { Cancelled } from './errors.js'
import { Programs, Session } from './session.js'

const current = new AsyncLocalStorage()
const counterName = /^[a-z0-9_]{1,64}$/

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

  /**
   * Adds n, a whole number from 0, to a counter of this worker's metrics, such as "api_calls". Told to the host with the answer. A name has 1
   * to 64 of a-z, 0-9 and _. The host keeps 64 counters of a worker; what further ones count goes to "other".
   */
  count(name, n = 1) {
    if (!Number.isSafeInteger(n) || n < 0) throw new RangeError(`a count is a whole number from 0 to 2^53, not ${n}`)
    if (typeof name !== 'string' || !counterName.test(name)) throw new RangeError(`a counter's name has 1 to 64 of a-z, 0-9 and _: ${String(name).slice(0, 80)}`)
    this.#counts.set(name, Math.min((this.#counts.get(name) ?? 0) + n, Number.MAX_SAFE_INTEGER))
  }

  /** Asks the host; params and the result are anything JSON can hold. Rejects with HostError when it refuses. */
  host(method, params) {
    return this.#host(method, params)
  }

  /** The session of this call, kept by the host: every worker of the pool sees it. */
  get session() {
    return new Session(this.#host)
  }

  /** The programs of this call's session: put by one worker, got by any other. */
  get programs() {
    return new Programs(this.#host)
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

  /** For the connection: tells the host what a notification counted, which has no answer to tell it with. */
  async tellCounts() {
    if (this.#counts.size) await this.#host('worker.count', Object.fromEntries(this.#counts))
  }
}
