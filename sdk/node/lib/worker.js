// The Worker: registers methods and hooks, and serves them with run().

import fs from 'node:fs'
import path from 'node:path'
import { Connection } from './connection.js'
import { ProtocolError, TempoolError } from './errors.js'
import { encodeHeaders, MAX_METHOD, NOTIFY } from './frames.js'
import { logThrown } from './responses.js'

const howToStart = (program) => `\
This program is a Tempool worker: Tempool starts it, do not run it by hand.
Name it in a pool.toml, for example

    [pool]
    name = "node"
    command = ["node", "${program}"]

and start the pool with: tempool pool start -f pool.toml
`

const empty = Buffer.alloc(0)
const maxReason = 1000 // characters
let inProcess = false

/** For tempool/testing: run() returns at once from now on. */
export function serveInProcess() {
  inProcess = true
}

/** Methods and hooks of one worker. The functions of the package use a default Worker. */
export class Worker {
  #methods = new Map()
  #onStart = []
  #onStop = []
  #onHealth = []
  #connection = null

  /**
   * Makes fn callable by the pool's clients: method(fn), method(name, fn) or method(name, { raw: true }, fn).
   *
   * The payload is JSON: an array becomes the arguments of fn, null or an empty payload no arguments, any other value the only argument.
   * The result, or what its promise resolves to, is sent as JSON; undefined as null. With raw, fn takes a Buffer and returns a Buffer or a
   * string. A generator, async or not, streams the values it yields: JSON, one value per line, or bytes.
   */
  method(name, options, fn) {
    if (typeof name === 'function') [name, options, fn] = [name.name, {}, name]
    else if (typeof options === 'function') [options, fn] = [{}, options]
    if (typeof fn !== 'function') throw new TypeError('method requires a function')
    const size = Buffer.byteLength(name)
    if (size < 1 || size > MAX_METHOD) throw new RangeError(`a method name must have 1 to ${MAX_METHOD} bytes: ${name.slice(0, 40)}`)
    if (this.#methods.has(name)) throw new Error(`method ${name} is already defined`)
    this.#methods.set(name, options.raw ? rawMethod(fn) : jsonMethod(name, fn))
    return fn
  }

  /** fn, which may be async, runs before the worker reports ready. If it throws, the start fails. */
  onStart(fn) {
    this.#onStart.push(fn)
  }

  /** fn, which may be async, runs when the worker stops, after its last call. */
  onStop(fn) {
    this.#onStop.push(fn)
  }

  /** fn, which may be async, runs in each health check of kind "rpc". If it throws, the check fails with its reason. */
  onHealth(fn) {
    this.#onHealth.push(fn)
  }

  /**
   * Reports this worker unhealthy, which counts at once as a failed health check: the worker gets no new call until a check passes, and
   * after health.max_failures in a row Tempool replaces the process. Within 5 seconds several reports count once. Throws before run() serves.
   */
  unhealthy(reason) {
    if (!this.#connection) throw new Error('call unhealthy() after run() has started; before that, throw an error in an onStart hook')
    this.#connection.send(NOTIFY, { method: 'worker.unhealthy', payload: JSON.stringify({ reason: String(reason).slice(0, maxReason) }) })
  }

  /**
   * fn(id), which may be async, runs before a session migrates from this worker to another, as a call of that session. Write state that
   * this process caches for the session to context().session. If fn throws, the migration is cancelled.
   */
  onSessionRelease(fn) {
    this.method('session.release', fn)
  }

  /**
   * fn(id), which may be async, runs after a session has migrated to this worker, before its next call, as a call of that session. Warm up
   * caches here. If fn throws, the migration is undone.
   */
  onSessionLoad(fn) {
    this.method('session.load', fn)
  }

  /**
   * fn(), which may be async, runs when a lease expires without a checkin, if the spec has lease.on_expiry = "reset". Reset the state that
   * the client left behind. If fn throws, Tempool replaces this process.
   */
  onLeaseReset(fn) {
    this.method('lease.reset', fn)
  }

  /**
   * fn(), which may be async, runs when an operator suspends this worker, after its last call: release what others could use meanwhile. It has
   * the spec's health.timeout; then the worker is suspended while fn keeps running, and fn is cancelled when the worker resumes.
   */
  onSuspend(fn) {
    this.method('worker.suspend', fn)
  }

  /**
   * fn(), which may be async, runs when a suspended worker resumes, before its next call. It is cancelled after the spec's health.timeout.
   */
  onResume(fn) {
    this.method('worker.resume', fn)
  }

  /** For tempool/testing: what run() serves. */
  parts() {
    return { methods: this.#methods, onStart: this.#onStart, onStop: this.#onStop, onHealth: this.#onHealth }
  }

  /**
   * Serves calls until Tempool stops this worker, then exits the process. Calls run concurrently, up to the spec's max_inflight. Where
   * tempool/testing was imported first, it does nothing.
   */
  async run() {
    if (inProcess) return
    if (process.env.TEMPOOL_TEMPLATE) {
      process.stderr.write('tempool: a Node.js program cannot fork, because its runtime has several threads; remove start.fork\n')
      process.exit(2)
    }
    const fd = descriptor('TEMPOOL_FD')
    const out = descriptor('TEMPOOL_OUT')
    if (fd === null || out === null) {
      process.stderr.write(howToStart(path.basename(process.argv[1] ?? 'worker.mjs')))
      process.exit(2)
    }
    let code = 0
    try {
      for (const hook of this.#onStart) await hook()
    } catch (error) {
      logThrown(error)
      process.exit(1)
    }
    let connection
    process.on('SIGTERM', () => connection.stop()) // before the hello: the host may send SIGTERM right after it
    connection = this.#connection = new Connection(fd, out, this.#methods, this.#onHealth)
    try {
      await connection.done
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error
      console.error(`tempool: protocol error from the host: ${error.message}`)
      code = 1
    }
    for (const hook of this.#onStop) {
      try {
        await hook()
      } catch (error) {
        logThrown(error)
        code = 1
      }
    }
    process.exit(code)
  }
}

/** The worker of the package's functions. */
export const defaultWorker = new Worker()

const jsonLines = encodeHeaders({ 'content-type': 'application/x-ndjson' })

function jsonMethod(name, fn) {
  return {
    call(body) {
      if (!body.length) return fn()
      let params
      try {
        params = JSON.parse(body.toString())
      } catch (error) {
        throw new TempoolError(`${name}: invalid JSON in the payload: ${error.message}`, { code: 'invalid_params' })
      }
      if (Array.isArray(params)) return fn(...params)
      return params === null ? fn() : fn(params)
    },
    encode: toJSON,
    encodeChunk: (value) => toJSON(value) + '\n',
    chunkHeaders: jsonLines,
  }
}

function toJSON(value) {
  if (value === undefined) return 'null'
  const text = JSON.stringify(value)
  if (text === undefined) throw new TypeError(`cannot encode the result as JSON: a ${typeof value}`)
  return text
}

function rawMethod(fn) {
  return { call: fn, encode: toBytes, encodeChunk: toBytes }
}

function toBytes(value) {
  if (value === undefined || value === null) return empty
  if (typeof value === 'string' || value instanceof Uint8Array) return value
  throw new TypeError(`a raw method must return a Buffer, a string or nothing, not ${typeof value}`)
}

/** Reads the number of an open descriptor from the environment, or null, and removes the variable so that children do not inherit it. */
function descriptor(name) {
  const text = process.env[name] ?? ''
  delete process.env[name]
  if (!/^\d+$/.test(text)) return null
  try {
    fs.fstatSync(Number(text))
  } catch {
    return null
  }
  return Number(text)
}
