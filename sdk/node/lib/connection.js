// The way to the host: frames in from a socket, frames out through a pipe, and the calls in between.

import net from 'node:net'
import { answer, refusal } from './answers.js'
import { Context } from './context.js'
import { HostError, ProtocolError, hostError } from './errors.js'
import * as frames from './frames.js'
import { collected } from './garbage.js'
import { Uploads } from './uploads.js'

const empty = Buffer.alloc(0)
const hostCallIds = 0x3fffffff

/** Serves one connection until the host closes it or stop() is called. */
export class Connection {
  maxMessage = frames.MAX_MESSAGE
  #socket
  #out // the socket itself if there is no pipe
  #methods
  #buffered = [] // pieces read and not yet decoded
  #size = 0 // bytes of them
  #wanted = frames.HEAD // bytes until the next frame may be whole
  #calls = new Map() // id → Context of a call that is not answered
  #active = 0 // calls and notifications that run
  #asked = 0
  #questions = new Map() // host call → {resolve, reject}
  #uploads = new Uploads()
  #stopping = false
  #closed = false

  /** Resolves when it is over; rejects with ProtocolError when the host broke the protocol. */
  done

  #end

  constructor(fd, out, methods) {
    this.#methods = methods
    this.done = new Promise((resolve, reject) => {
      this.#end = { resolve, reject }
    })
    this.#socket = new net.Socket({ fd, readable: true, writable: out === null })
    this.#out = out === null ? this.#socket : new net.Socket({ fd: out, readable: false, writable: true })
    this.#out.setMaxListeners(0) // each stream that waits for room listens
    this.#socket.on('data', (data) => this.#read(data))
    this.#socket.on('end', () => this.#finish(this.#size ? new ProtocolError('the stream ends in the middle of a frame') : null))
    this.#socket.on('close', () => this.#finish(null))
    this.#socket.on('error', () => this.#finish(null))
    this.#out.on('error', () => this.#finish(null)) // the host is gone in mid-answer: an end like any other
    this.#out.on('close', () => this.#finish(null))
    this.send(frames.HELLO, {
      payload: JSON.stringify({ protocol: frames.PROTOCOL, sdk: 'node/0.1.0', methods: [...methods.keys()].sort() }),
    })
  }

  /** Finishes the calls already received, then ends. */
  stop() {
    this.#stopping = true
    // What has arrived already is read in this turn of the event loop; it is served before the end.
    setImmediate(() => this.#endWhenIdle())
  }

  /** Sends one frame. Resolves when there is room for more. */
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
        if (frame.flags) this.#uploads.begin(frame)
        else this.#request(frame)
        return
      case frames.NOTIFY:
        this.#notified(frame)
        return
      case frames.CHUNK:
        if (this.#uploads.add(id, payload, this.maxMessage)) {
          this.send(frames.ERROR, { id, payload: refusal('too_large', `the request body exceeds ${this.maxMessage} bytes`) })
        }
        return
      case frames.END: {
        const whole = this.#uploads.end(id)
        if (whole) this.#request(whole)
        return
      }
      case frames.CANCEL:
        this.#calls.get(id)?.cancel()
        if (this.#uploads.drop(id)) this.send(frames.ERROR, { id, payload: refusal('cancelled', 'cancelled before it began') })
        return
      case frames.PING:
        this.send(frames.PONG, { id })
        return
      case frames.HOST_RESULT:
      case frames.HOST_ERROR:
        this.#answered(type, id, payload)
        return
      case frames.HELLO:
        this.maxMessage = welcome(payload)
        return
      default:
        throw new ProtocolError(`a frame of type ${type}, which only a worker sends`)
    }
  }

  async #request(frame) {
    const { id } = frame
    const method = this.#methods.get(frame.method)
    if (!method) {
      const known = [...this.#methods.keys()].sort().join(', ').slice(0, 1000) || 'none'
      this.send(frames.ERROR, { id, payload: refusal('method_not_found', `no method ${frame.method.slice(0, 100)} here; this worker has: ${known}`) })
      return
    }
    const call = new Context(frame, (name, params) => this.#ask(id, name, params))
    this.#calls.set(id, call)
    this.#active++
    const reply = await answer(method, call, frame.payload, this.maxMessage, (chunk) => this.send(frames.CHUNK, { id, payload: chunk }))
    this.#calls.delete(id)
    this.#active--
    this.send(reply.type, { id, headers: reply.headers, payload: reply.payload })
    if (this.#stopping) this.#endWhenIdle()
  }

  async #notified(frame) {
    const method = this.#methods.get(frame.method)
    if (!method) {
      if (!collected(frame.method)) console.error(`tempool: no method ${frame.method} here for a notification`)
      return
    }
    const call = new Context(frame, (name, params) => this.#ask(0, name, params))
    this.#active++
    const reply = await answer(method, call, frame.payload, this.maxMessage, () => undefined)
    if (reply.error) console.error(reply.error)
    try {
      await call.tellCounts()
    } catch (error) {
      console.error(error)
    }
    this.#active--
    if (this.#stopping) this.#endWhenIdle()
  }

  #ask(call, method, params) {
    return new Promise((resolve, reject) => {
      if (this.#closed) {
        reject(new HostError('the host closed the connection', { code: 'closed' }))
        return
      }
      const payload = params === undefined ? empty : Buffer.from(JSON.stringify(params))
      if (payload.length > this.maxMessage) throw new RangeError(`params of ${payload.length} bytes, the host takes ${this.maxMessage}`)
      this.#asked = (this.#asked % hostCallIds) + 1
      this.#questions.set(this.#asked, { resolve, reject })
      const headers = call ? frames.encodeHeaders({ call: String(call) }) : empty
      this.send(frames.HOST_CALL, { id: this.#asked, method, headers, payload })
    })
  }

  #answered(type, id, payload) {
    const question = this.#questions.get(id)
    if (!question) throw new ProtocolError(`an answer to host call ${id}, which was not made`)
    this.#questions.delete(id)
    let said
    try {
      said = payload.length ? JSON.parse(payload.toString()) : null
    } catch {
      question.reject(new HostError('the host answered with something that is not JSON', { code: 'host_error' }))
      return
    }
    if (type === frames.HOST_RESULT) question.resolve(said)
    else question.reject(hostError(said?.message ?? 'no reason given', said?.code, said?.data))
  }

  #endWhenIdle() {
    if (this.#active === 0) this.#finish(null)
  }

  #finish(error) {
    if (this.#closed) return
    this.#closed = true
    for (const { reject } of this.#questions.values()) reject(new HostError('the host closed the connection', { code: 'closed' }))
    for (const call of this.#calls.values()) call.cancel()
    // end() lets what is written reach the host before the pipe closes.
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

function welcome(payload) {
  let said
  try {
    said = JSON.parse(payload.toString())
  } catch {
    said = null
  }
  if (!Number.isInteger(said?.max_message)) throw new ProtocolError('a hello that is not JSON of its shape')
  if (said.protocol !== frames.PROTOCOL) {
    throw new ProtocolError(`the host speaks protocol ${said.protocol} and this SDK ${frames.PROTOCOL}: install the SDK of its release`)
  }
  return said.max_message
}
