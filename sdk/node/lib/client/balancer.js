// Balances requests over gateways, and retries them.

import { setTimeout as sleep } from 'node:timers/promises'
import { Endpoint } from './endpoint.js'
import { TempoolError } from './errors.js'

const minBackoff = 50 // ms between attempts
const maxBackoff = 2000
const rosterTimeout = 10_000 // ms

/**
 * Sends requests to the endpoints in turn and avoids unreachable ones for a while. It retries a request only if no worker has received it, or if it
 * is idempotent.
 */
export class Balancer {
  #endpoints
  #others = new Map() // gateways that an answer named, by endpoint
  #token
  #tls
  #retries
  #next

  constructor(endpoints, token, tls, retries) {
    this.#token = token
    this.#tls = tls
    this.#retries = retries
    this.#endpoints = endpoints.map((endpoint) => new Endpoint(endpoint, token, tls))
    this.#next = Math.floor(Math.random() * endpoints.length)
  }

  /**
   * Resolves to the Endpoint of an address, configured or not. Rejects for one that may not get the token: a worker's own answer can look like an
   * error that names any address, so only those of the roster count.
   */
  async at(endpoint) {
    const known = this.#endpoints.find((one) => one.endpoint === endpoint) ?? this.#others.get(endpoint)
    if (known) return known
    if (this.#token && !(await this.#roster()).includes(endpoint)) {
      throw new TempoolError(`the gateway at ${endpoint} is not in the roster, so it does not get the token; add it to the client's endpoints`, { code: 'unavailable' })
    }
    const other = new Endpoint(endpoint, this.#token, this.#tls)
    this.#others.set(endpoint, other)
    return other
  }

  /** The endpoints of the hosts that have workers, as a configured gateway lists them; none if it does not. */
  async #roster() {
    try {
      const reply = await this.request({ method: 'GET', path: '/v1/workers', deadline: performance.now() + rosterTimeout, idempotent: true })
      return JSON.parse((await reply.read()).toString()).map((worker) => worker.endpoint)
    } catch {
      return []
    }
  }

  /**
   * Sends a request to the endpoint only, or to the endpoint preferred and to another one only while that is unavailable, or to the next one in turn.
   * Retries it until the deadline in performance.now() milliseconds, or until retryUntil. A function as body returns that of each attempt. Resolves to the Reply, or rejects with the last error.
   */
  async request({ method, path, headers = {}, body = '', deadline, retryUntil = deadline, idempotent = false, only, preferred, signal }) {
    const order = only ? [only] : [...new Set([preferred ?? [], this.#order()].flat())]
    const refused = new Set()
    let backoff = minBackoff
    let retries = this.#retries
    let own // the last sign that the preferred one does not serve
    for (;;) {
      const left = deadline - performance.now()
      if (left <= 0) throw new TempoolError('deadline exceeded before the call was sent', { code: 'deadline_exceeded' })
      if ('Tempool-Timeout' in headers) headers['Tempool-Timeout'] = String(Math.max(1, Math.floor(left)))
      const gateway = first(order, refused)
      const content = typeof body === 'function' ? body() : body
      let failure
      try {
        return await gateway.request(method, path, headers, typeof content === 'string' ? Buffer.from(content) : content, deadline, signal)
      } catch (error) {
        if (!(error instanceof TempoolError) || (error.started && !idempotent)) throw error
        failure = error
      }
      let counts = true
      if (preferred && gateway !== preferred) {
        if (failure.endpoint === preferred.endpoint) {
          failure = own ?? new TempoolError(`the gateway at ${preferred.endpoint} does not serve: ${failure.message}`, { code: 'unavailable' })
        }
        counts = failure.code !== 'unavailable' // the retries are those of the preferred one
      } else if (failure.code === 'unavailable') own = failure
      if (!failure.temporary || (counts && retries-- === 0)) throw failure
      refused.add(gateway)
      if (refused.size < order.length && (!preferred || failure.code === 'unavailable')) continue // try another endpoint at once
      refused.clear()
      const wait = Math.max(failure.retryAfter ?? 0, backoff * (0.5 + Math.random() / 2))
      backoff = Math.min(2 * backoff, maxBackoff)
      if (performance.now() + wait >= retryUntil) throw failure
      await sleep(wait, undefined, { signal }).catch(() => signal.throwIfAborted())
    }
  }

  /** The endpoints, starting with the next one in turn. */
  #order() {
    this.#next = (this.#next + 1) % this.#endpoints.length
    return [...this.#endpoints.slice(this.#next), ...this.#endpoints.slice(0, this.#next)]
  }

  close() {
    for (const endpoint of [...this.#endpoints, ...this.#others.values()]) endpoint.close()
  }
}

/** The first endpoint that neither refused this request nor is down, if there is one. */
function first(order, refused) {
  const now = performance.now()
  const rank = (one) => (refused.has(one) ? 1e15 : 0) + (one.downUntil > now ? one.downUntil : 0)
  return order.reduce((best, one) => (rank(one) < rank(best) ? one : best))
}
