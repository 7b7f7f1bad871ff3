// The Context of a call: its headers, deadline, session and host calls.

import { AsyncLocalStorage } from 'node:async_hooks'
import { Cancelled } from './errors.js'
import { Programs, Session } from './session.js'

const current = new AsyncLocalStorage()
const counterName = /^[a-z0-9_]{1,64}$/

/** Returns the Context of the current call, also across awaits. Throws outside of a call. */
export function context() {
  const call = current.getStore()
  if (!call) throw new Error('tempool.context() must be called in a method')
  return call
}

/** Runs fn as part of a call. */
export function runIn(call, fn) {
  return current.run(call, fn)
}

/** Returns the incarnation of this process, from 1; 0 if unknown. */
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
    /** headers to send with the response: strings */
    this.responseHeaders = {}
    this.worker = process.env.TEMPOOL_WORKER ?? ''
    this.incarnation = incarnation()
    const timeout = frame.headers['tempool-timeout'] ?? ''
    /** when the caller stops waiting, in performance.now() milliseconds; null without a deadline */
    this.deadline = /^\d+$/.test(timeout) ? performance.now() + Number(timeout) : null
    this.#host = host
  }

  /** Milliseconds until the deadline, never below 0; null if there is none. */
  get remaining() {
    return this.deadline === null ? null : Math.max(0, this.deadline - performance.now())
  }

  /** An AbortSignal that fires when the caller cancels the call, for example for fetch. */
  get signal() {
    this.#abort ??= new AbortController()
    return this.#abort.signal
  }

  /** Whether the caller cancelled the call. */
  get cancelled() {
    return this.signal.aborted
  }

  /** Throws Cancelled once the call is cancelled. */
  check() {
    if (this.cancelled) throw new Cancelled()
  }

  /**
   * Adds n, an integer from 0, to a counter in this worker's metrics, such as "api_calls". The host gets it with the response. A name has 1
   * to 64 characters of a-z, 0-9 and _. The host has 64 counters per worker and adds further names to "other".
   */
  count(name, n = 1) {
    if (!Number.isSafeInteger(n) || n < 0) throw new RangeError(`a count must be an integer from 0 to 2^53, not ${n}`)
    if (typeof name !== 'string' || !counterName.test(name)) throw new RangeError(`a counter name must have 1 to 64 characters of a-z, 0-9 and _: ${String(name).slice(0, 80)}`)
    this.#counts.set(name, Math.min((this.#counts.get(name) ?? 0) + n, Number.MAX_SAFE_INTEGER))
  }

  /** Makes a host call. params and the result are anything JSON can represent. Rejects with HostError if it fails. */
  host(method, params) {
    return this.#host(method, params)
  }

  /** The session of this call, in the host's session store, visible to every worker of the pool. */
  get session() {
    return new Session(this.#host)
  }

  /** The programs of this call's session, visible to every worker of the pool. */
  get programs() {
    return new Programs(this.#host)
  }

  /** For the connection: cancels the call. */
  cancel() {
    this.#abort ??= new AbortController()
    this.#abort.abort(new Cancelled())
  }

  /** For the connection: returns the headers of the response, as an object. */
  responseHeaderFields() {
    const headers = { ...this.responseHeaders }
    for (const [name, n] of this.#counts) headers[`tempool-count-${name}`] = String(n)
    return headers
  }

  /** For the connection: sends the counters of a notification, which has no response, as a host call. */
  async reportCounts() {
    if (this.#counts.size) await this.#host('worker.count', Object.fromEntries(this.#counts))
  }
}
