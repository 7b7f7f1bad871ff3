// A worker's methods in the process of a test.

import { randomUUID } from 'node:crypto'
import { Caller, callHeaders } from '../client/calls.js'
import { WorkerError } from '../client/errors.js'
import { Context } from '../context.js'
import { hostError } from '../errors.js'
import * as frames from '../frames.js'
import { respond } from '../responses.js'
import { defaultWorker } from '../worker.js'
import { MemorySessions } from './sessions.js'

/**
 * Calls the methods of a Worker, by default that of the package's functions, as a pool would: JSON goes in and out, errors are those that a client
 * gets, sessions are in memory. start() and stop() run its hooks.
 */
export class TestWorker extends Caller {
  #worker
  #maxMessage
  /** the store of its calls' sessions */
  sessions
  /** what its calls have counted, by name */
  counts = {}

  constructor({ worker = defaultWorker, maxMessage = frames.MAX_MESSAGE, sessions = new MemorySessions() } = {}) {
    super()
    this.#worker = worker.parts()
    this.#maxMessage = maxMessage
    this.sessions = sessions
  }

  /** Runs the onStart hooks. */
  async start() {
    for (const hook of this.#worker.onStart) await hook()
  }

  /** Runs the onStop hooks. */
  async stop() {
    for (const hook of this.#worker.onStop) await hook()
  }

  /** Runs the onHealth hooks; rejects if the worker is unhealthy. */
  async checkHealth() {
    for (const hook of this.#worker.onHealth) await hook()
  }

  /** For Caller: an answer like that of a gateway. */
  async send(name, body, options = {}) {
    const method = this.#worker.methods.get(name)
    if (!method) throw workerError({ code: 'method_not_found', message: `method ${name} not found; this worker has: ${[...this.#worker.methods.keys()].join(', ')}` })
    const { signal, timeout, session = `temporary-${randomUUID()}` } = options
    const headers = Object.fromEntries(Object.entries(callHeaders(options)).map(([key, value]) => [key.toLowerCase(), value]))
    if (headers['content-type'] === 'application/json') delete headers['content-type'] // as gateways do
    headers['tempool-timeout'] = timeout === undefined ? '' : String(timeout)
    const call = new Context({ headers }, (hostMethod, params) => this.#hostCall(session, hostMethod, params))
    const queue = new Queue()
    const cancel = () => call.cancel()
    if (signal?.aborted) throw signal.reason
    const timer = timeout === undefined ? undefined : setTimeout(cancel, timeout)
    signal?.addEventListener('abort', cancel, { once: true })
    const answer = respond(method, call, Buffer.from(body), this.#maxMessage, (chunk) => queue.put(Buffer.from(chunk))).finally(() => {
      clearTimeout(timer)
      signal?.removeEventListener('abort', cancel)
      queue.end()
    })
    await Promise.race([answer, queue.first])
    const finished = async () => {
      const response = await answer
      for (const [key, value] of Object.entries(frames.decodeHeaders(response.headers))) {
        if (key.startsWith('tempool-count-')) this.counts[key.slice(14)] = (this.counts[key.slice(14)] ?? 0) + Number(value)
      }
      signal?.throwIfAborted()
      if (response.type === frames.ERROR) throw workerError(JSON.parse(response.payload.toString()))
      return Buffer.from(response.payload)
    }
    const pieces = async function* () {
      try {
        yield* queue.all()
        const last = await finished()
        if (last.length) yield last
      } finally {
        cancel()
      }
    }
    const read = async () => {
      const all = []
      for await (const piece of pieces()) all.push(piece)
      return Buffer.concat(all)
    }
    return { headers: { 'tempool-worker': call.worker || 'test/0', 'tempool-incarnation': String(call.incarnation || 1) }, pieces, read }
  }

  async #hostCall(session, method, params) {
    if (method === 'worker.count') {
      for (const [key, n] of Object.entries(params)) this.counts[key] = (this.counts[key] ?? 0) + n
      return undefined
    }
    try {
      return structuredClone(this.sessions.hostCall(session, method, params)) ?? null
    } catch (error) {
      throw hostError(error.message, error.code)
    }
  }
}

function workerError({ code, message, type, traceback, data, fatal, unhandled }) {
  return new WorkerError(message, { code: code === 'method_not_found' ? code : 'worker_error', workerCode: code, type, traceback, data, fatal, unhandled })
}

/** The pieces of a stream; the worker waits until each is read. */
class Queue {
  #pieces = []
  #ended = false
  #wake
  #first

  constructor() {
    this.first = new Promise((resolve) => { this.#first = resolve })
  }

  put(piece) {
    this.#first()
    return new Promise((taken) => {
      this.#pieces.push({ piece, taken })
      this.#wake?.()
    })
  }

  end() {
    this.#ended = true
    this.#wake?.()
  }

  async *all() {
    for (;;) {
      const next = this.#pieces.shift()
      if (next) {
        try {
          yield next.piece
        } finally {
          next.taken()
        }
      } else if (this.#ended) {
        return
      } else {
        await new Promise((resolve) => { this.#wake = resolve })
      }
    }
  }
}
