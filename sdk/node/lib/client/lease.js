// Leases: exclusive use of one worker.

import { Caller, callHeaders, decode, encode, segment } from './calls.js'
import { TempoolError, WorkerError } from './errors.js'

const renewals = 3 // attempts within the ttl, so that one or two may fail
const renewTimeout = 10_000 // ms for one renewal, and at most half of what is left of the lease
const retryPause = 1000 // ms until a failed renewal is retried
const minPause = 20 // ms between two renewals
const maxReason = 1000 // bytes of a checkin's reason; a gateway takes 1024

/**
 * The exclusive right to one worker: all calls under it reach the same process. Pool.lease() returns one, and renews it in the background until it is
 * closed: with `await using`, at the end of the block. After a lost lease, every call rejects with code lease_fenced.
 */
export class Lease extends Caller {
  #client
  #gateway
  #ttl // as requested; undefined means the pool's
  #path
  #token
  #until // in performance.now() milliseconds; no time of the gateway's clock is used
  #lost
  #closed = null
  #timer
  #renewing = Promise.resolve()

  constructor(client, gateway, granted, ttl, began) {
    super()
    this.#client = client
    this.#gateway = gateway
    this.#ttl = ttl
    this.id = granted.id
    this.worker = granted.worker
    this.incarnation = granted.incarnation
    this.session = granted.session || undefined
    /** the gateway's complete answer, with the token */
    this.granted = granted
    this.#path = `/v1/leases/${segment(this.id, 'a lease id')}`
    this.#token = granted.token
    this.#until = began + granted.ttl_ms
    this.#schedule(this.#pause())
  }

  /** Milliseconds until the lease ends unless it is renewed, by this machine's clock; never below 0. */
  get remaining() {
    return Math.max(0, this.#until - performance.now())
  }

  /** Sends a notification, which the worker does not answer. Resolves when the gateway has forwarded it. */
  async notify(method, params, options) {
    await (await this.#asHolder('notify', method, encode(params), options)).read()
  }

  /** Extends the lease to its ttl from now. This happens in the background, too. */
  async renew() {
    const began = performance.now()
    const patience = Math.min(renewTimeout, Math.max(minPause, this.remaining / 2 || renewTimeout))
    const body = JSON.stringify(this.#ttl === undefined ? {} : { ttl_ms: this.#ttl })
    const reply = await this.#request('PUT', this.#path, { 'Content-Type': 'application/json' }, body, began + patience, true)
    this.#until = began + decode(await reply.read()).ttl_ms
  }

  /**
   * Checks the worker in. outcome is "ok", "error" (the worker is probed before it serves again) or "close" (its process is replaced); error is the
   * reason. After an error it may be repeated; after a success a second call does nothing.
   */
  close(outcome = 'ok', error = '') {
    this.#closed ??= this.#checkin(outcome, error).catch((failure) => {
      this.#closed = null
      throw failure
    })
    return this.#closed
  }

  /** Checks the worker in; used by `await using`. */
  async [Symbol.asyncDispose ?? Symbol.for('nodejs.asyncDispose')]() {
    if (!this.#lost) await this.close()
  }

  async #checkin(outcome, error) {
    clearTimeout(this.#timer)
    await this.#renewing
    const text = new TextDecoder('utf-8', { ignoreBOM: true }).decode(Buffer.from(String(error || '')).subarray(0, maxReason), { stream: true }) // whole characters
    const reason = text && `&error=${encodeURIComponent(text)}`
    const path = `${this.#path}?outcome=${segment(outcome, 'an outcome')}${reason}`
    await (await this.#request('DELETE', path, {}, '', this.#client.deadline(), true)).read()
  }

  /** For Caller. */
  send(method, body, options) {
    return this.#asHolder('call', method, body, options)
  }

  async #asHolder(verb, method, body, options = {}) {
    if (this.#lost) throw new TempoolError(`lease ${this.id} was lost: ${this.#lost.message}`, { code: 'lease_fenced', cause: this.#lost })
    if (this.#closed) throw new TempoolError(`lease ${this.id} was checked in`, { code: 'lease_fenced' })
    const path = `${this.#path}/${verb}/${segment(method, 'a method name', true)}`
    const headers = callHeaders({ session: this.session, key: this.granted.key, ...options })
    return this.#request('POST', path, headers, body, this.#client.deadline(options.timeout), false, options.signal)
  }

  /**
   * Sends a request to the lease's gateway, which may be another one than the gateway that granted it. While that one does not serve, another one of
   * the client does.
   */
  async #request(method, path, headers, body, deadline, idempotent, signal) {
    const request = { method, path, headers: { ...headers, 'Tempool-Lease-Token': this.#token }, body, deadline, idempotent, signal }
    const preferred = this.#gateway
    let only
    try {
      return await this.#client.balancer.request({ ...request, preferred })
    } catch (error) {
      if (error.code !== 'lease_not_found' || !error.endpoint || error.endpoint === preferred.endpoint) throw error
      only = await this.#client.balancer.at(error.endpoint)
    }
    const reply = await this.#client.balancer.request({ ...request, only }).catch((error) => {
      if (error instanceof WorkerError) this.#gateway = only
      throw error
    })
    this.#gateway = only // not before an answer of the worker: it may be unreachable from here
    return reply
  }

  #pause() {
    return Math.max(minPause, (this.#until - performance.now()) / renewals)
  }

  #schedule(pause) {
    if (this.#closed) return
    this.#timer = setTimeout(() => { this.#renewing = this.#renewInBackground() }, pause)
    this.#timer.unref() // a lease that nobody closes expires; it does not keep its program alive
  }

  async #renewInBackground() {
    try {
      await this.renew()
      this.#schedule(this.#pause())
    } catch (error) {
      if (['lease_fenced', 'lease_not_found'].includes(error.code) || performance.now() >= this.#until) this.#lost = error
      else this.#schedule(Math.min(retryPause, this.#pause()))
    }
  }
}
