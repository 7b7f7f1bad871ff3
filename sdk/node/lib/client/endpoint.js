// One gateway and its connections.

import http from 'node:http'
import https from 'node:https'
import { isIP } from 'node:net'
import { TempoolError, errorOf } from './errors.js'

const connectTimeout = 3000 // ms
const grace = 5000 // ms after a call's deadline in which the gateway itself, which gets its timeout, can report that it was exceeded
const idleTimeout = 60_000 // ms until an idle connection is closed; the gateway's timeout is longer
const maxIdle = 64 // idle connections
const maxDown = 30_000 // ms

/** Headers with values of another encoding: on the wire they are UTF-8, but node:http writes and reads ISO 8859-1. */
export function recoded(headers, from, to) {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, typeof value === 'string' ? Buffer.from(value, from).toString(to) : value]))
}

/** A gateway at http://HOST:PORT, https://HOST:PORT or unix:/PATH. Throws TypeError for anything else. */
export class Endpoint {
  downUntil = 0 // in performance.now() milliseconds; others are preferred until then
  #failures = 0 // to connect or to answer, since its last answer
  #transport
  #options
  #headers = {}

  constructor(endpoint, token, tls) {
    this.endpoint = endpoint
    const { socketPath, url } = parse(endpoint)
    const secure = url?.protocol === 'https:'
    this.#transport = secure ? https : http
    const agent = new this.#transport.Agent({ keepAlive: true, timeout: idleTimeout, maxFreeSockets: maxIdle, ...(secure ? tls : {}) })
    const host = url?.hostname.replace(/^\[|\]$/g, '')
    this.#options = socketPath ? { socketPath, agent } : { host, port: url.port || (secure ? 443 : 80), agent }
    if (token && (socketPath || secure || isLoopback(host))) this.#headers.Authorization = `Bearer ${token}`
  }

  /**
   * Sends a request and resolves to the Reply, whose body the caller reads or closes. deadline is in performance.now() milliseconds. Rejects
   * with the TempoolError that the answer reports, or with the signal's reason. Without an answer, started is false only if nothing was sent.
   */
  request(method, path, headers, body, deadline, signal) {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) {
        reject(signal.reason)
        return
      }
      const request = this.#transport.request({
        ...this.#options, method, path, headers: { ...recoded({ ...headers, ...this.#headers }, 'utf8', 'latin1'), 'Content-Length': body.length },
      })
      const exchange = { signal, expired: false, connected: false }
      const abort = () => request.destroy(signal.reason instanceof Error ? signal.reason : new Error('aborted'))
      const timer = setTimeout(() => {
        exchange.expired = true
        request.destroy()
      }, Math.max(0, deadline - performance.now()) + ('Tempool-Timeout' in headers ? grace : 0))
      const connecting = setTimeout(() => request.destroy(new Error(`no connection within ${connectTimeout} ms`)), connectTimeout)
      exchange.end = () => {
        clearTimeout(timer)
        clearTimeout(connecting)
        signal?.removeEventListener('abort', abort)
      }
      signal?.addEventListener('abort', abort, { once: true })
      const connected = () => {
        clearTimeout(connecting)
        exchange.connected = true
      }
      request.on('socket', (socket) => {
        if (request.reusedSocket) connected()
        else socket.once(this.#transport === https ? 'secureConnect' : 'connect', connected)
      })
      request.on('error', (error) => {
        exchange.end()
        reject(this.#failure(error, exchange))
      })
      request.on('close', exchange.end)
      request.on('response', (response) => {
        this.#failures = this.downUntil = 0
        const reply = new Reply(this, response, exchange)
        if (response.statusCode < 300) resolve(reply)
        else reply.read().then((text) => reject(errorOf(response.statusCode, response.headers, text)), reject)
      })
      request.end(body)
    })
  }

  #failure(error, { signal, expired, connected }) {
    if (signal?.aborted) return signal.reason
    if (expired || !connected) { // that of one without an answer outlasts the pause before a failed renewal is retried
      this.downUntil = performance.now() + Math.min(maxDown, (expired ? 2000 : 500) * 2 ** Math.min(++this.#failures, 6))
    }
    if (expired) return new TempoolError(`deadline exceeded: no answer from the gateway at ${this.endpoint}`, { code: 'deadline_exceeded', started: connected })
    if (!connected) {
      return new TempoolError(`cannot connect to the gateway at ${this.endpoint}: ${textOf(error)}; is an agent running there?`, { code: 'unavailable', cause: error })
    }
    return new TempoolError(`the gateway at ${this.endpoint} closed the connection before it answered: ${textOf(error)}`, { code: 'unavailable', started: true, cause: error })
  }

  close() {
    this.#options.agent.destroy()
  }
}

/** An answer whose body has not been read yet. */
export class Reply {
  #response
  #exchange

  constructor(gateway, response, exchange) {
    this.gateway = gateway
    this.headers = recoded(response.headers, 'latin1', 'utf8')
    this.#response = response
    this.#exchange = exchange
  }

  /** The body in pieces as they arrive. Leaving it early closes the connection, and so cancels the call. */
  async *pieces() {
    try {
      yield* this.#response
    } catch (error) {
      const { signal, expired } = this.#exchange
      if (signal?.aborted) throw signal.reason
      if (expired) throw new TempoolError('deadline exceeded before the answer was complete', { code: 'deadline_exceeded', started: true })
      throw new TempoolError(`the answer was cut off because its worker or gateway ended: ${textOf(error)}`, { code: 'worker_crashed', started: true, cause: error })
    } finally {
      this.#exchange.end()
    }
  }

  /** Resolves to the whole body. */
  async read() {
    const pieces = []
    for await (const piece of this.pieces()) pieces.push(piece)
    return Buffer.concat(pieces)
  }

  /** Closes the connection unless the answer was read completely. */
  close() {
    this.#exchange.end()
    this.#response.destroy()
  }
}

function parse(endpoint) {
  if (endpoint.startsWith('unix:')) {
    const socketPath = endpoint.slice('unix:'.length).replace(/^\/\//, '')
    if (!socketPath.startsWith('/')) throw new TypeError(`invalid endpoint "${endpoint}": write unix:/PATH`)
    return { socketPath }
  }
  let url
  try {
    url = new URL(endpoint)
  } catch {
    url = null
  }
  if (url?.username || url?.password) throw new TypeError(`invalid endpoint at ${url.hostname}: it has a user or a password; give the token as token, tokenFile or TEMPOOL_TOKEN`)
  if (!/^https?:$/.test(url?.protocol) || url.pathname !== '/' || url.search || url.hash) {
    throw new TypeError(`invalid endpoint "${endpoint.split(/[?#]/)[0]}": write http://HOST:PORT, https://HOST:PORT or unix:/PATH`)
  }
  return { url }
}

function isLoopback(host) {
  return host === 'localhost' || host === '::1' || (isIP(host) === 4 && host.startsWith('127.'))
}

/** The message of an error; of several attempts to connect, that of the first. */
function textOf(error) {
  return error.message || error.errors?.[0]?.message || error.code || String(error)
}
