// Call Tempool pools from any Node.js program:
//
//   import { Client } from 'tempool/client'
//   const client = new Client()
//   console.log(await client.pool('node').call('square', { x: 12 }))

import { randomBytes, randomUUID } from 'node:crypto'
import fs from 'node:fs'
import os from 'node:os'
import { Balancer } from './balancer.js'
import { Caller, callHeaders, deadlineOf, decode, segment } from './calls.js'
import { invalid } from './errors.js'
import { Lease } from './lease.js'
import { mapCalls } from './map.js'
import { Sessions } from './sessions.js'

export { Answer } from './calls.js'
export { TempoolError, WorkerError } from './errors.js'
export { Lease, Sessions }

/** the default address of an agent's gateway */
export const defaultEndpoint = 'http://127.0.0.1:7460'
const maxWait = 300_000 // ms; the gateways' limit for a checkout
const mapConcurrency = 8 // where the size of the pool is unknown
const maxMapConcurrency = 256

/**
 * A client of one or more gateways. endpoint is http://HOST:PORT, https://HOST:PORT or unix:/PATH, or several of them in an array or separated by
 * commas; the default is TEMPOOL_GATEWAY from the environment, else http://127.0.0.1:7460.
 *
 * Options: token or tokenFile; caFile, certFile and keyFile, or tls, the options of node:tls; what is not given comes from TEMPOOL_TOKEN,
 * TEMPOOL_TOKEN_FILE, TEMPOOL_CA_FILE, TEMPOOL_CERT_FILE and TEMPOOL_KEY_FILE. A token is sent over https, Unix sockets and loopback only. timeout in
 * ms is the default for each request, retries included. retries is how often a request that no worker has received is sent again.
 */
export class Client {
  constructor(endpoint, { token, tokenFile, caFile, certFile, keyFile, tls, timeout = 60_000, retries = 8 } = {}) {
    endpoint ??= process.env.TEMPOOL_GATEWAY || defaultEndpoint
    const endpoints = (typeof endpoint === 'string' ? endpoint.split(',') : endpoint).map((one) => one.trim().replace(/\/$/, '')).filter(Boolean)
    if (!endpoints.length) throw new TypeError(`no endpoint given; use for example ${defaultEndpoint}`)
    if (token !== undefined && tokenFile !== undefined) throw new TypeError('token and tokenFile are mutually exclusive')
    if (token === undefined && tokenFile === undefined) {
      token = process.env.TEMPOOL_TOKEN || undefined
      tokenFile = token ? undefined : process.env.TEMPOOL_TOKEN_FILE || undefined
    }
    if (tokenFile) token = fs.readFileSync(tokenFile, 'utf8').trim()
    if (tls && (caFile || certFile || keyFile)) throw new TypeError('tls cannot be combined with caFile, certFile and keyFile')
    if (!tls) {
      caFile ||= process.env.TEMPOOL_CA_FILE
      if (!certFile && !keyFile) [certFile, keyFile] = [process.env.TEMPOOL_CERT_FILE, process.env.TEMPOOL_KEY_FILE]
      if (keyFile && !certFile) throw new TypeError('keyFile without certFile')
      const file = (path) => (path ? fs.readFileSync(path) : undefined)
      tls = { ca: file(caFile), cert: file(certFile), key: file(keyFile || certFile) }
    }
    if (!Number.isInteger(retries) || retries < 0) throw new RangeError('retries must be an integer from 0')
    deadlineOf(timeout)
    this.timeout = timeout
    /** for this package */
    this.balancer = new Balancer(endpoints, token, tls, retries)
    /** sessions in the store that the pools of a host share */
    this.sessions = new Sessions(this)
  }

  /** The pool of this name; whether it exists is not checked. */
  pool(name) {
    return new Pool(this, name)
  }

  /** Resolves to all pools with their workers. */
  pools() {
    return this.read('/v1/pools')
  }

  /** Resolves to all workers with their state and metrics. */
  workers() {
    return this.read('/v1/workers')
  }

  /** Resolves to the decoded answer to a GET of a path, for routes without a method here. */
  async read(path) {
    const reply = await this.balancer.request({ method: 'GET', path, deadline: this.deadline(), idempotent: true })
    return decode(await reply.read())
  }

  /** For this package: the deadline of a request with this timeout; undefined means the client's timeout. */
  deadline(timeout = this.timeout) {
    return deadlineOf(timeout)
  }

  /** Closes idle connections, which keep no program alive. It does not check in leases. */
  close() {
    this.balancer.close()
  }

  [Symbol.dispose ?? Symbol.for('nodejs.dispose')]() {
    this.close()
  }
}

/** A pool: each call goes to a free worker and waits for one if necessary. */
class Pool extends Caller {
  #client
  #path

  constructor(client, name) {
    super()
    this.#client = client
    this.name = name
    this.#path = `/v1/pools/${segment(name, 'a pool name')}`
    /** sessions of this pool's calls */
    this.sessions = new Sessions(client, name)
  }

  /** The worker with this number, from 0, for calls that must reach this one; each waits in the queue until the worker is free. */
  worker(number) {
    if (!Number.isInteger(number) || number < 0) throw invalid(`a worker's number must be an integer from 0, not ${number}`)
    return new PoolWorker((...call) => this.#sendTo(`${this.#path}/workers/${number}`, ...call), number)
  }

  /** Resolves to the pool: pool, size, ready, workers (each with state and metrics). */
  status() {
    return this.#client.read(this.#path)
  }

  /**
   * Calls a method once for each item (an iterable, async or not, of params), and yields a result for each: {index, item, ok: true, value}, or
   * {index, item, ok: false, error}. concurrency is how many calls run at a time; the default is twice the number of the pool's workers. ordered:
   * false yields results as calls end. onProgress(done) is called after each call. The other options are those of a call; timeout is for each.
   */
  async *map(method, items, { ordered = true, concurrency, onProgress, ...options } = {}) {
    if (concurrency !== undefined && !(concurrency >= 1)) throw invalid(`concurrency must be at least 1, not ${concurrency}`)
    concurrency ??= await this.#usualConcurrency()
    const call = (item, signal) => this.call(method, item, { ...options, signal })
    yield* mapCalls(call, items, { concurrency, ordered, onProgress, signal: options.signal })
  }

  async #usualConcurrency() {
    const size = await this.status().then((status) => status.workers.length, () => 0) // the token may not have the right read
    return Math.min(2 * size || mapConcurrency, maxMapConcurrency)
  }

  /**
   * Waits for a free worker and checks it out, for calls that must reach the same process. ttl in ms is how long the lease lives after its last
   * renewal; the default is the pool's lease.ttl. holder is shown as the worker's holder; the default is this machine and process. wait in ms bounds
   * the wait for a worker; the default is the client's timeout, 0 means no wait. key is that of the calls under the lease.
   */
  async lease({ ttl, holder, session, key, wait = this.#client.timeout, signal } = {}) {
    if (ttl !== undefined && !(ttl >= 1)) throw invalid(`ttl must be at least 1 ms, not ${ttl}`)
    ttl &&= Math.floor(ttl)
    wait = Math.min(wait, maxWait)
    const began = performance.now()
    const token = randomBytes(24).toString('base64url') // the lease's secret: its owner can use the lease
    holder ??= `${os.hostname()}:${process.pid}`
    const request = { token, holder, session, key, request_id: randomUUID(), ttl_ms: ttl }
    const body = () => JSON.stringify({ ...request, wait_ms: Math.floor(Math.max(0, began + wait - performance.now())) })
    const reply = await this.#client.balancer.request({
      method: 'POST', path: `${this.#path}/leases`, headers: { 'Content-Type': 'application/json' }, body,
      deadline: began + wait + this.#client.timeout, retryUntil: began + wait, signal,
    })
    const granted = { ...decode(await reply.read()), token, key }
    return new Lease(this.#client, reply.gateway, granted, ttl, performance.now()) // as old as the answer, not as the wait
  }

  /** For Caller. */
  send(...call) {
    return this.#sendTo(this.#path, ...call)
  }

  async #sendTo(path, method, body, options = {}) {
    return this.#client.balancer.request({
      method: 'POST', path: `${path}/call/${segment(method, 'a method name', true)}`, headers: callHeaders(options), body,
      deadline: this.#client.deadline(options.timeout), signal: options.signal,
    })
  }
}

/** One worker of a pool. A call rejects with worker_not_found if the pool has no such worker. */
class PoolWorker extends Caller {
  constructor(send, number) {
    super()
    this.send = send
    this.number = number
  }
}
