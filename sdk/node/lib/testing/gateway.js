// A gateway for tests, over real HTTP, whose answers the test scripts.

import { once } from 'node:events'
import http from 'node:http'
import { recoded } from '../client/endpoint.js'
import { TempoolError, WorkerError } from '../client/errors.js'
import { TempoolError as HandlerError } from '../errors.js'
import { MemorySessions } from './sessions.js'

const statuses = {
  invalid: 400, unauthorized: 401, forbidden: 403, not_found: 404, pool_not_found: 404, worker_not_found: 404, lease_not_found: 404,
  session_not_found: 404, method_not_found: 404, lease_fenced: 409, session_exists: 412, version_conflict: 412, payload_too_large: 413,
  queue_full: 429, rate_limited: 429, worker_crashed: 502, memory_limit_exceeded: 502, no_workers: 503, queue_timeout: 503, busy: 503,
  unavailable: 503, deadline_exceeded: 504,
}
const defaultTTL = 60_000 // ms

/**
 * The process ends in the middle of the call, as the answer of a script: the caller gets worker_crashed, leases on the worker are fenced, and its next
 * process has a higher incarnation. With started false, the call had not reached it.
 */
export function crash({ started = true } = {}) {
  return new TempoolError('the process ended during the call', { code: 'worker_crashed', started })
}

/**
 * A gateway on a loopback port. Pools exist once a test has scripted one of their methods or has them served by a TestWorker. Calls never wait: without
 * a free worker they fail with queue_timeout.
 */
export class FakeGateway {
  #server
  #token
  #size
  #pools = new Map() // name → {methods, workers: [{incarnation, lease}]}
  #seq = 0
  /** the calls that came in: {pool, worker, method, params, body, session, lease, headers} */
  calls = []
  sessions = new MemorySessions()

  /** Starts one. size is the number of workers of each pool; with token, requests need it. */
  static async start({ size = 1, token } = {}) {
    const gateway = new FakeGateway()
    gateway.#size = size
    gateway.#token = token
    gateway.#server = http.createServer((request, response) => gateway.#serve(request, response))
    gateway.#server.listen(0, '127.0.0.1')
    await once(gateway.#server, 'listening')
    gateway.endpoint = `http://127.0.0.1:${gateway.#server.address().port}`
    return gateway
  }

  /**
   * Scripts the answers of a method: each call gets the next, and the last one stays. An answer is a value, an error (a TempoolError of the client is
   * the gateway's, any other one the worker's), a stream (an iterator), or a function of (params, call) that returns or throws one.
   */
  on(pool, method, ...answers) {
    if (!answers.length) throw new TypeError('on() needs at least one answer')
    this.#pool(pool).methods.set(method, answers)
    return this
  }

  /** Has a pool's calls run by a TestWorker. */
  serve(pool, worker) {
    this.#pool(pool).served = worker
    return this
  }

  /** Ends the leases of a pool, as if they had expired: the next request under one fails with lease_fenced. */
  fence(pool) {
    for (const worker of this.#pool(pool).workers) worker.lease = null
  }

  /** The leases of a pool: {id, holder, worker, …}. */
  leases(pool) {
    return this.#pool(pool).workers.map((worker) => live(worker)).filter(Boolean)
  }

  async close() {
    this.#server.closeAllConnections?.()
    this.#server.close()
    await once(this.#server, 'close')
  }

  [Symbol.asyncDispose ?? Symbol.for('nodejs.asyncDispose')]() {
    return this.close()
  }

  #pool(name) {
    if (!this.#pools.has(name)) {
      this.#pools.set(name, { name, methods: new Map(), workers: Array.from({ length: this.#size }, (_, n) => ({ name: `${name}/${n}`, n, incarnation: 1, lease: null })) })
    }
    return this.#pools.get(name)
  }

  async #serve(request, response) {
    try {
      const pieces = []
      for await (const piece of request) pieces.push(piece)
      if (this.#token && request.headers.authorization !== `Bearer ${this.#token}`) fail('unauthorized', 'missing or invalid bearer token')
      await this.#route(request, response, Buffer.concat(pieces))
    } catch (error) {
      if (response.headersSent) response.destroy() // a stream breaks off
      else refuse(response, error)
    }
  }

  async #route(request, response, body) {
    const { pathname } = new URL(request.url, this.endpoint)
    const [, , kind, id, verb, ...rest] = pathname.split('/').map(decodeURIComponent)
    const json = () => (body.length ? JSON.parse(body.toString()) : undefined)
    if (kind === 'leases') {
      const [pool, n, incarnation, seq] = id.split('.')
      const worker = this.#pools.get(pool)?.workers[n] ?? fail('lease_not_found', `lease ${id} was never granted`)
      const lease = live(worker)
      if (lease?.id !== id) fail('lease_fenced', `lease ${pool}.${n}.${incarnation}.${seq} has ended`)
      if (lease.token && request.headers['tempool-lease-token'] !== lease.token) fail('forbidden', 'the token of the lease is missing or wrong')
      if (verb === 'call') return this.#call(this.#pool(pool), worker, rest.join('/'), request, response, body, lease)
      if (verb === 'notify') {
        this.#record(this.#pool(pool), worker, rest.join('/'), request, body, lease)
        return answer(response, undefined, 202)
      }
      if (request.method === 'DELETE') worker.lease = null
      else renew(lease, json()?.ttl_ms || lease.ttl_ms)
      return answer(response, shown(lease))
    }
    if (kind === 'sessions') return this.#session(request, response, id, json())
    if (kind === 'workers') return answer(response, [...this.#pools.values()].flatMap((pool) => status(pool).workers))
    if (kind !== 'pools') fail('not_found', `there is no route ${pathname}`)
    if (!id) return answer(response, [...this.#pools.values()].map(status))
    const pool = this.#pools.get(id) ?? fail('pool_not_found', `pool ${id} is not running`)
    if (!verb) return answer(response, status(pool))
    if (verb === 'leases') return this.#grant(pool, response, json())
    const named = verb === 'workers' ? pool.workers[rest.shift()] ?? fail('worker_not_found', `pool ${id} has no such worker`) : undefined
    if (named) rest.shift() // "call"
    const worker = (named ? [named] : pool.workers).find((one) => !live(one)) ?? fail('queue_timeout', 'no worker is free')
    return this.#call(pool, worker, rest.join('/'), request, response, body)
  }

  #grant(pool, response, { holder, token, ttl_ms: ttl, session, request_id: request }) {
    const again = pool.workers.map(live).find((lease) => lease?.request === request && lease.token === token)
    if (again) return answer(response, shown(again), 201)
    const worker = pool.workers.find((one) => !live(one)) ?? fail('queue_timeout', 'no worker is free')
    const lease = {
      id: `${pool.name}.${worker.n}.${worker.incarnation}.${++this.#seq}`, worker: worker.name, incarnation: worker.incarnation, seq: this.#seq,
      holder, session, endpoint: this.endpoint, granted_at: new Date().toISOString(), token, request,
    }
    renew(lease, ttl || defaultTTL)
    worker.lease = lease
    return answer(response, shown(lease), 201)
  }

  #record(pool, worker, method, request, body, lease) {
    const headers = recoded(request.headers, 'latin1', 'utf8')
    const text = body.toString()
    let params
    try {
      params = text ? JSON.parse(text) : undefined
    } catch {
      params = undefined // bytes
    }
    const call = {
      pool: pool.name, worker: worker.name, method, params, body, headers, session: headers['tempool-session'], lease: lease?.id,
    }
    this.calls.push(call)
    return call
  }

  async #call(pool, worker, method, request, response, body, lease) {
    const call = this.#record(pool, worker, method, request, body, lease)
    response.setHeader('Tempool-Worker', worker.name)
    response.setHeader('Tempool-Incarnation', String(worker.incarnation))
    try {
      const script = pool.methods.get(method)
      if (!script && pool.served) return await this.#callServed(pool.served, call, response)
      if (!script) throw new WorkerError(`method ${method} not found`, { code: 'method_not_found', workerCode: 'method_not_found' })
      const next = script.length > 1 ? script.shift() : script[0]
      const value = typeof next === 'function' ? await next(call.params, call) : next
      if (value instanceof Error) throw value
      if (value === null || typeof value !== 'object' || typeof value.next !== 'function') return answer(response, value)
      response.setHeader('Content-Type', 'application/x-ndjson')
      for await (const one of value) await write(response, `${JSON.stringify(one)}\n`)
      return response.end()
    } catch (error) {
      if (error.code === 'worker_crashed' && error instanceof TempoolError && error.started) {
        worker.incarnation++
        worker.lease = null
      }
      throw error
    }
  }

  async #callServed(worker, { method, body, session, headers }, response) {
    const forwarded = Object.fromEntries(Object.entries(headers).filter(([name]) => /^(x-|traceparent$|tracestate$|content-type$)/.test(name)))
    const cancel = new AbortController()
    response.on('close', () => cancel.abort())
    const timeout = Number(headers['tempool-timeout']) || undefined
    for await (const piece of worker.streamRaw(method, body, { session, timeout, headers: forwarded, signal: cancel.signal })) await write(response, piece)
    response.end()
  }

  #session({ method, headers }, response, id, body) {
    const version = /^"(\d+)"$/.test(headers['if-match'] ?? '') ? Number(RegExp.$1) : undefined
    const missing = () => fail('session_not_found', `session ${id} does not exist`)
    if (method === 'POST') return answer(response, this.sessions.put(`anonymous-${++this.#seq}`, body), 201)
    if (method === 'GET') return answer(response, this.sessions.get(id) ?? missing())
    if (method === 'PATCH') return answer(response, this.sessions.patch(id, body, version))
    if (method === 'DELETE') return this.sessions.delete(id) ? answer(response, undefined, 204) : missing()
    if (headers['if-none-match'] && this.sessions.get(id)) fail('session_exists', `session ${id} exists`)
    return answer(response, this.sessions.put(id, body, version))
  }
}

/** The lease of a worker, if it has not expired. */
function live(worker) {
  return worker.lease && performance.now() < worker.lease.until ? worker.lease : null
}

function renew(lease, ttl) {
  lease.ttl_ms = ttl
  lease.until = performance.now() + ttl
}

function shown({ until, token, request, ...lease }) {
  return { ...lease, expires_at: new Date(Date.now() + until - performance.now()).toISOString() }
}

function status(pool) {
  const workers = pool.workers.map((one) => ({ worker: one.name, state: live(one) ? 'busy' : 'ready', incarnation: one.incarnation }))
  return { pool: pool.name, size: workers.length, ready: workers.length, workers }
}

function fail(code, message) {
  throw new TempoolError(message, { code })
}

function answer(response, value, code = 200) {
  response.writeHead(code, { 'Content-Type': 'application/json' }).end(value === undefined ? '' : JSON.stringify(value))
}

/** Writes a piece of a stream, and waits while its reader is slow. */
async function write(response, piece) {
  if (!response.write(piece)) await Promise.race([once(response, 'drain'), once(response, 'close')])
}

function refuse(response, error) {
  const own = error instanceof TempoolError
  const code = own ? error.code : 'worker_error'
  const status = (own && error.status) || statuses[code] || 500
  const problem = { type: 'about:blank', title: code, status, detail: error.message, code, started: own ? error.started : true, retry_after_ms: own ? error.retryAfter : undefined }
  if (error instanceof WorkerError) {
    const { workerCode, type, traceback, data, fatal, unhandled } = error
    problem.worker_error = { code: workerCode, type, message: error.message, traceback, data, fatal, unhandled }
  } else if (!own) {
    const { code: workerCode = 'error', data, fatal } = error instanceof HandlerError ? error : {}
    problem.worker_error = { code: workerCode, type: error.name, message: error.message, data, fatal, unhandled: !(error instanceof HandlerError) }
  }
  response.writeHead(status, { 'Content-Type': 'application/problem+json' }).end(JSON.stringify(problem))
}
