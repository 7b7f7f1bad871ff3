// The connection to the host: reads frames from a socket, writes frames to a pipe, and runs the calls.

import net from 'node:net'
import { Context } from './context.js'
import { HostError, ProtocolError, hostError } from './errors.js'
import * as frames from './frames.js'
import { collected } from './garbage.js'
import { errorPayload, exceptionPayload, logThrown, notBegun, respond } from './responses.js'
import { inSpan } from './tracing.js'

const empty = Buffer.alloc(0)
const maxHostCallId = 0x3fffffff

/** Serves one connection until the host closes it or stop() is called. */
export class Connection {
  maxMessage = frames.MAX_MESSAGE
  #socket
  #out
  #methods
  #onHealth
  #buffered = [] // data read and not yet decoded
  #size = 0 // bytes buffered
  #wanted = frames.HEAD // bytes needed before the next attempt to decode
  #calls = new Map() // id → Context of a call in flight
  #active = 0 // running calls and notifications
  #hostCallId = 0 // of the latest host call
  #hostCalls = new Map() // host call id → {resolve, reject}
  #stopping = false // if it is set, no call begins
  #closed = false

  /** Resolves when the connection ends; rejects with ProtocolError after a protocol violation. */
  done

  #end

  /** onHealth are functions that run in each ping. */
  constructor(fd, out, methods, onHealth) {
    this.#methods = methods
    this.#onHealth = onHealth
    this.done = new Promise((resolve, reject) => {
      this.#end = { resolve, reject }
    })
    this.#socket = new net.Socket({ fd, readable: true, writable: false })
    this.#out = new net.Socket({ fd: out, readable: false, writable: true })
    this.#out.setMaxListeners(0) // each blocked stream adds a listener
    this.#socket.on('data', (data) => this.#read(data))
    this.#socket.on('end', () => this.#finish(this.#size ? new ProtocolError('the stream ended within a frame') : null))
    this.#socket.on('close', () => this.#finish(null))
    this.#socket.on('error', () => this.#finish(null))
    this.#out.on('error', () => this.#finish(null)) // the host exited while the worker was writing
    this.#out.on('close', () => this.#finish(null))
    this.send(frames.HELLO, {
      payload: JSON.stringify({ protocol: frames.PROTOCOL, sdk: 'node/0.1.0', methods: [...methods.keys()].sort() }),
    })
  }

  /** Finishes the calls already received, then ends. */
  stop() {
    // Data that has arrived is read in this turn of the event loop and served before the end.
    setImmediate(() => {
      this.#stopping = true
      this.#endWhenIdle()
    })
  }

  /** Sends one frame. Resolves when the buffer has room for more. */
  send(type, fields) {
    const frame = frames.encode(type, fields)
    if (this.#closed || this.#out.write(frame)) return undefined
    return new Promise((resolve) => {
      const go = () => {
        this.#out.off('drain', go)
        this.#out.off('close', go)
        resolve()
      }
      this.#out.on('drain', go)
      this.#out.on('close', go)
    })
  }

  #read(data) {
    if (this.#closed) return
    this.#buffered.push(data)
    this.#size += data.length
    if (this.#size < this.#wanted) return
    const all = this.#buffered.length === 1 ? data : Buffer.concat(this.#buffered, this.#size)
    let at = 0
    try {
      for (let frame; (frame = frames.decode(all, at, this.maxMessage)); at += frame.size) this.#handle(frame)
    } catch (error) {
      this.#finish(error)
      return
    }
    const rest = at === 0 ? all : all.subarray(at)
    this.#buffered = rest.length ? [rest] : []
    this.#size = rest.length
    this.#wanted = rest.length < frames.HEAD ? frames.HEAD : 4 + rest.readUInt32BE(0)
  }

  #handle(frame) {
    const { type, id, payload } = frame
    switch (type) {
      case frames.REQUEST:
        this.#request(frame)
        return
      case frames.NOTIFY:
        this.#notification(frame)
        return
      case frames.CANCEL:
        this.#calls.get(id)?.cancel()
        return
      case frames.PING:
        this.#ping(id)
        return
      case frames.HOST_RESULT:
      case frames.HOST_ERROR:
        this.#hostCallEnded(type, id, payload)
        return
      case frames.HELLO:
        this.maxMessage = maxMessageOf(payload)
        return
      default:
        throw new ProtocolError(`unexpected frame of type ${type}: only workers send it`)
    }
  }

  async #ping(id) {
    try {
      for (const hook of this.#onHealth) await hook()
    } catch (error) {
      this.send(frames.ERROR, { id, payload: exceptionPayload(error) })
      return
    }
    this.send(frames.PONG, { id })
  }

  async #request(frame) {
    const { id } = frame
    if (this.#stopping) { // else others would keep the worker from its end
      this.send(frames.ERROR, { id, payload: notBegun })
      return
    }
    const method = this.#methods.get(frame.method)
    if (!method) {
      const known = [...this.#methods.keys()].sort().join(', ').slice(0, 1000) || 'none'
      this.send(frames.ERROR, { id, payload: errorPayload('method_not_found', `method ${frame.method.slice(0, 100)} not found; this worker has: ${known}`) })
      return
    }
    const call = new Context(frame, (name, params) => this.#hostCall(id, name, params))
    this.#calls.set(id, call)
    this.#active++
    const response = await inSpan(frame, () => respond(method, call, frame.payload, this.maxMessage, (chunk, headers) => this.send(frames.CHUNK, { id, headers, payload: chunk })))
    this.#calls.delete(id)
    this.#active--
    this.send(response.type, { id, headers: response.headers, payload: response.payload })
    if (this.#stopping) this.#endWhenIdle()
  }

  async #notification(frame) {
    const method = this.#methods.get(frame.method)
    if (!method) {
      if (!collected(frame.method)) console.error(`tempool: notification for unknown method ${frame.method} dropped`)
      return
    }
    const call = new Context(frame, (name, params) => this.#hostCall(0, name, params))
    this.#active++
    const response = await respond(method, call, frame.payload, this.maxMessage, () => undefined)
    if (response.type === frames.ERROR) logThrown(response.error)
    try {
      await call.reportCounts()
    } catch (error) {
      logThrown(error)
    }
    this.#active--
    if (this.#stopping) this.#endWhenIdle()
  }

  #hostCall(call, method, params) {
    return new Promise((resolve, reject) => {
      if (this.#closed) {
        reject(new HostError('the host closed the connection', { code: 'closed' }))
        return
      }
      const payload = params === undefined ? empty : Buffer.from(JSON.stringify(params))
      if (payload.length > this.maxMessage) throw new RangeError(`params of ${payload.length} bytes exceed the limit of ${this.maxMessage}`)
      this.#hostCallId = (this.#hostCallId % maxHostCallId) + 1
      this.#hostCalls.set(this.#hostCallId, { resolve, reject })
      const headers = call ? frames.encodeHeaders({ call: String(call) }) : empty
      this.send(frames.HOST_CALL, { id: this.#hostCallId, method, headers, payload })
    })
  }

  #hostCallEnded(type, id, payload) {
    const hostCall = this.#hostCalls.get(id)
    if (!hostCall) throw new ProtocolError(`result for unknown host call ${id}`)
    this.#hostCalls.delete(id)
    let message
    try {
      message = payload.length ? JSON.parse(payload.toString()) : null
    } catch {
      hostCall.reject(new HostError('the host sent a result that is not JSON', { code: 'host_error' }))
      return
    }
    if (type === frames.HOST_RESULT) hostCall.resolve(message)
    else hostCall.reject(hostError(message?.message ?? 'unknown error', message?.code, message?.data))
  }

  #endWhenIdle() {
    if (this.#active === 0) this.#finish(null)
  }

  #finish(error) {
    if (this.#closed) return
    this.#closed = true
    for (const { reject } of this.#hostCalls.values()) reject(new HostError('the host closed the connection', { code: 'closed' }))
    for (const call of this.#calls.values()) call.cancel()
    // end() flushes buffered writes before the pipe closes.
    if (error) {
      this.#destroy()
      this.#end.reject(error)
    } else if (this.#out.destroyed) {
      this.#destroy()
      this.#end.resolve()
    } else {
      this.#out.end(() => {
        this.#destroy()
        this.#end.resolve()
      })
    }
  }

  #destroy() {
    this.#socket.destroy()
    this.#out.destroy()
  }
}

/** Decodes the host's hello and returns its max_message. */
function maxMessageOf(payload) {
  let message
  try {
    message = JSON.parse(payload.toString())
  } catch {
    message = null
  }
  if (!Number.isInteger(message?.max_message)) throw new ProtocolError('malformed hello')
  if (message.protocol !== frames.PROTOCOL) {
    throw new ProtocolError(`the host has protocol version ${message.protocol}, this SDK has ${frames.PROTOCOL}: install the SDK of the host's release`)
  }
  return message.max_message
}
