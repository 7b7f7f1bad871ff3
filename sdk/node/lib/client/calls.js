// Calls on a pool, a worker or under a lease, and their answers.

import { TempoolError, WorkerError, invalid } from './errors.js'

const maxTimeout = 24 * 3600 * 1000 // ms; the gateways' limit for a call

/** A worker's answer: body (a Buffer), worker (its name), incarnation (the number of its process) and headers. */
export class Answer {
  constructor(body, headers) {
    this.body = body
    Object.assign(this, origin(headers))
  }

  /** The decoded body; undefined if it is empty. Throws WorkerError if it is not JSON. */
  json() {
    return decode(this.body)
  }
}

function origin(headers) {
  return { headers, worker: headers['tempool-worker'] ?? '', incarnation: Number(headers['tempool-incarnation'] ?? 0) }
}

/** Methods to make a call. Options: timeout in ms (queueing, retries and the answer included), signal, session, key, priority, headers. */
export class Caller {
  /**
   * Calls a method whose parameters and result are JSON, and resolves to the result. An array becomes the arguments of a Node.js worker's method, and
   * anything else its only argument; undefined and null no argument.
   */
  async call(method, params, options) {
    return (await this.exchange(method, encode(params), options)).json()
  }

  /** Calls a method with bytes or a string, and resolves to bytes. */
  async callRaw(method, body = '', options = {}) {
    return (await this.exchange(method, body, options)).body
  }

  /** Like callRaw, but resolves to the Answer, which names the worker. */
  async exchange(method, body = '', options = {}) {
    const reply = await this.send(method, body, options)
    return new Answer(await reply.read(), reply.headers)
  }

  /**
   * The values that the worker yields, as they arrive, and its result at the end if it has one. The call starts with the iteration, and leaving the
   * loop cancels it.
   */
  async *stream(method, params, options) {
    const decoder = new TextDecoder()
    let rest = '' // an incomplete line
    for await (const piece of this.streamRaw(method, encode(params), options)) {
      rest += decoder.decode(piece, { stream: true })
      if (!piece.includes(10)) continue
      const lines = rest.split('\n')
      rest = lines.pop()
      for (const line of lines) if (line) yield decode(line)
    }
    rest += decoder.decode()
    if (rest) yield decode(rest)
  }

  /** Like stream, with bytes in both directions: pieces as they arrive. */
  async *streamRaw(method, body = '', options = {}) {
    const reply = await this.send(method, body, options)
    yield* reply.pieces()
  }
}

/** The headers of a call. Throws for a value that is not a line of text. */
export function callHeaders({ session, key, priority, headers }) {
  const all = { 'Content-Type': 'application/json', ...headers, 'Tempool-Timeout': '' } // the timeout is set before each attempt
  if (session !== undefined) all['Tempool-Session'] = session
  if (key !== undefined) all['Tempool-Key'] = key
  if (priority !== undefined) all['Tempool-Priority'] = String(priority)
  for (const [name, value] of Object.entries(all)) {
    if (typeof value !== 'string' || /[^\t\x20-\x7e\x80-\uffff]/.test(value)) throw invalid(`header ${name} must be a line of text, not ${String(value).slice(0, 80)}`)
  }
  return all
}

/** The deadline of a request with this timeout, in performance.now() milliseconds. */
export function deadlineOf(timeout) {
  if (!(timeout > 0 && timeout <= maxTimeout)) throw invalid(`timeout must be above 0 and at most ${maxTimeout} ms, not ${timeout}`)
  return performance.now() + timeout
}

/** Quotes text for a path. A method may contain slashes. */
export function segment(text, what, slashes = false) {
  if (typeof text !== 'string' || !text) throw invalid(`${what} must be a non-empty string, not ${text}`)
  const quoted = encodeURIComponent(text)
  return slashes ? quoted.replaceAll('%2F', '/') : quoted
}

/** Encodes params as JSON; undefined as no body. */
export function encode(value) {
  if (value === undefined || value === null) return ''
  let text
  try {
    text = JSON.stringify(value)
  } catch (error) {
    throw new TempoolError(`cannot encode the parameters as JSON: ${error.message}`, { code: 'invalid', cause: error })
  }
  if (text === undefined) throw invalid(`cannot encode the parameters as JSON: a ${typeof value}`)
  return text
}

/** Decodes JSON; undefined for an empty body. */
export function decode(body) {
  if (!body.length) return undefined
  try {
    return JSON.parse(body.toString())
  } catch (error) {
    throw new WorkerError(`the answer is not JSON (${error.message}); use callRaw or streamRaw`, { cause: error })
  }
}
