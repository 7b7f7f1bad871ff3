// The worker: a set of methods, and run(), which serves them.

import fs from 'node:fs'
import path from 'node:path'
import { Connection } from './connection.js'
import { ProtocolError, TempoolError } from './errors.js'
import { MAX_METHOD } from './frames.js'

const howToStart = (program) => `\
This program is a Tempool worker: it is started by Tempool, not by hand.
Name it in a pool.toml, for example

    [pool]
    name = "node"
    command = ["node", "${program}"]

and start the pool with: ctl pool create -f pool.toml
`

const empty = Buffer.alloc(0)

/** Methods and hooks of one worker. The functions of the package use one that is made for you. */
export class Worker {
  #methods = new Map()
  #onStart = []
  #onStop = []

  /**
   * Makes fn callable by the pool's clients: method(fn), method(name, fn) or method(name, { raw: true }, fn).
   *
   * The payload is JSON: fn is called with the decoded value as its one argument, or, if it is an array, with its items; without
   * arguments for null or nothing. What fn returns, or its promise resolves to, is sent as JSON; undefined as null. With raw, fn
   * takes a Buffer and returns a Buffer or a string. A generator, async or not, streams what it yields: JSON values one a line, or bytes.
   */
  method(name, options, fn) {
    if (typeof name === 'function') [name, options, fn] = [name.name, {}, name]
    else if (typeof options === 'function') [options, fn] = [{}, options]
    if (typeof fn !== 'function') throw new TypeError('method needs a function')
    const size = Buffer.byteLength(name)
    if (size < 1 || size > MAX_METHOD) throw new RangeError(`a method name has 1 to ${MAX_METHOD} bytes: ${name.slice(0, 40)}`)
    if (this.#methods.has(name)) throw new Error(`method ${name} is defined twice`)
    this.#methods.set(name, options.raw ? rawMethod(fn) : jsonMethod(name, fn))
    return fn
  }

  /** fn, which may be async, runs before the worker says that it is ready. A failure fails the start. */
  onStart(fn) {
    this.#onStart.push(fn)
  }

  /** fn, which may be async, runs when the worker has been asked to stop and its last call is done. */
  onStop(fn) {
    this.#onStop.push(fn)
  }

  /**
   * fn(id), which may be async, runs when a session is about to leave this worker for another, as a call of that session: whatever this
   * process keeps of the session beside the store belongs into context().session now. A failure keeps the session here.
   */
  onSessionRelease(fn) {
    this.method('session.release', fn)
  }

  /**
   * fn(id), which may be async, runs when a session has come to this worker, before its next call, as a call of that session: warm up here
   * what its calls will need. A failure lets the session go back to where it came from.
   */
  onSessionLoad(fn) {
    this.method('session.load', fn)
  }

  /**
   * fn(), which may be async, runs when a lease has expired whose holder went silent, where the spec says lease.on_expiry = "reset": forget
   * what that client left behind. A failure has this process replaced.
   */
  onLeaseReset(fn) {
    this.method('lease.reset', fn)
  }

  /** Serves until Tempool ends this worker, then exits the process. Calls run at once, as the spec's max_inflight lets them come. */
  async run() {
    const fd = descriptor('TEMPOOL_FD')
    const out = descriptor('TEMPOOL_OUT')
    if (fd === null) {
      process.stderr.write(howToStart(path.basename(process.argv[1] ?? 'worker.mjs')))
      process.exit(2)
    }
    let code = 0
    try {
      for (const hook of this.#onStart) await hook()
    } catch (error) {
      console.error(error)
      process.exit(1)
    }
    let connection
    process.on('SIGTERM', () => connection.stop()) // before the hello, after which the host may want it
    connection = new Connection(fd, out, this.#methods)
    try {
      await connection.done
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error
      console.error(`tempool: the host broke the protocol: ${error.message}`)
      code = 1
    }
    for (const hook of this.#onStop) {
      try {
        await hook()
      } catch (error) {
        console.error(error)
        code = 1
      }
    }
    process.exit(code)
  }
}

function jsonMethod(name, fn) {
  return {
    call(body) {
      if (!body.length) return fn()
      let params
      try {
        params = JSON.parse(body.toString())
      } catch (error) {
        throw new TempoolError(`${name}: the payload is not JSON: ${error.message}`, { code: 'invalid_params' })
      }
      if (Array.isArray(params)) return fn(...params)
      return params === null ? fn() : fn(params)
    },
    encode: toJSON,
    encodeChunk: (value) => toJSON(value) + '\n',
  }
}

function toJSON(value) {
  if (value === undefined) return 'null'
  const text = JSON.stringify(value)
  if (text === undefined) throw new TypeError(`the result is not JSON: a ${typeof value}`)
  return text
}

function rawMethod(fn) {
  return { call: fn, encode: toBytes, encodeChunk: toBytes }
}

function toBytes(value) {
  if (value === undefined || value === null) return empty
  if (typeof value === 'string' || value instanceof Uint8Array) return value
  throw new TypeError(`a raw method returns a Buffer, a string or nothing, not ${typeof value}`)
}

/** The number of an open descriptor, taken out of the environment so that no child takes itself for the worker; null without one. */
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
