// Responses: runs a handler and encodes its result or its error.

import { runIn } from './context.js'
import { Cancelled, TempoolError } from './errors.js'
import * as frames from './frames.js'

const empty = Buffer.alloc(0)

/** Encodes an ERROR payload of a code and a message. */
export function errorPayload(code, message) {
  return JSON.stringify({ code, message })
}

/** Answers a request that this worker has not begun, and that the host may send to another one. */
export const notBegun = JSON.stringify({ code: 'not_begun', message: 'the worker ends, and has not begun the call', not_begun: true })

/** Runs a handler and resolves to its response: {type, headers, payload, error}. It never rejects. sendChunk sends a piece of a stream, with headers or without. */
export async function respond(method, call, body, maxMessage, sendChunk) {
  try {
    let payload = await runIn(call, () => method.call(body))
    if (isStream(payload)) payload = await stream(method, call, payload, maxMessage, sendChunk)
    else payload = method.encode(payload)
    checkSize(payload, maxMessage, 'the result')
    return { type: frames.RESPONSE, headers: frames.encodeHeaders(call.responseHeaderFields()), payload }
  } catch (thrown) {
    const error = call.cancelled && isAbort(thrown) ? new Cancelled() : thrown // nothing of the program failed
    return { type: frames.ERROR, headers: headersOrNone(call), payload: exceptionPayload(error), error }
  }
}

/** Whether something was thrown because a signal fired, as fetch and the timers throw it. */
function isAbort(thrown) {
  return attempt(() => thrown.name === 'AbortError', false)
}

function isStream(value) {
  return value !== null && typeof value === 'object' && typeof value.next === 'function' &&
    (Symbol.asyncIterator in value || Symbol.iterator in value)
}

async function stream(method, call, chunks, maxMessage, sendChunk) {
  let headers = method.chunkHeaders // of the first one
  try {
    for (;;) {
      const { value, done } = await runIn(call, () => chunks.next())
      if (done) return value === undefined ? empty : method.encode(value)
      const chunk = method.encodeChunk(value)
      checkSize(chunk, maxMessage, 'a chunk')
      await sendChunk(chunk, headers)
      headers = undefined
      // Let a cancel be read, also during a generator that never waits.
      await new Promise(setImmediate)
      if (call.cancelled) throw new Cancelled()
    }
  } finally {
    await chunks.return?.()
  }
}

function checkSize(payload, maxMessage, what) {
  const size = Buffer.byteLength(payload)
  if (size > maxMessage) throw new TempoolError(`${what} has ${size} bytes, the limit is ${maxMessage}`, { code: 'too_large' })
}

function headersOrNone(call) {
  try {
    return frames.encodeHeaders(call.responseHeaderFields())
  } catch {
    return empty // invalid headers may be the error being reported
  }
}

/** Encodes anything thrown as the payload of an ERROR frame, truncated to its limit. It never throws. */
export function exceptionPayload(thrown) {
  const isError = attempt(() => thrown instanceof Error, false)
  const own = attempt(() => thrown instanceof TempoolError, false)
  const report = {
    code: (own && text(() => thrown.code)) || 'error',
    type: isError ? text(() => thrown.name, 'Error') : 'Error',
    message: isError ? text(() => thrown.message, 'the error has no readable message') : text(() => String(thrown), 'a thrown value that has no text'),
    traceback: isError ? text(() => thrown.stack) : undefined,
  }
  if (own) {
    const data = attempt(() => thrown.data, undefined)
    if (data !== undefined) report.data = jsonOrString(data)
    if (attempt(() => thrown.fatal, false)) report.fatal = true
  } else {
    report.unhandled = true
  }
  const payload = JSON.stringify(report)
  if (Buffer.byteLength(payload) <= frames.MAX_CONTROL) return payload
  const { code, type, message, traceback, fatal, unhandled } = report
  return JSON.stringify({ code: code.slice(0, 256), type: type.slice(0, 256), message: message.slice(0, 2000), traceback: traceback?.slice(0, 4000), fatal, unhandled })
}

/** Writes what a handler has thrown, and no caller gets, to stderr. It never throws. */
export function logThrown(thrown) {
  attempt(() => console.error(thrown), undefined) // console.error reads the properties of the program's objects
}

/** Returns what fn returns, or fallback if it throws: getters and proxies of the program may. */
function attempt(fn, fallback) {
  try {
    return fn()
  } catch {
    return fallback
  }
}

/** Returns the text that read returns; fallback if it throws. */
function text(read, fallback) {
  return attempt(() => {
    const value = read()
    return value === undefined ? fallback : String(value)
  }, fallback)
}

function jsonOrString(value) {
  const encoded = attempt(() => JSON.stringify(value), undefined)
  return encoded === undefined ? text(() => String(value), 'data that cannot be encoded as JSON') : JSON.parse(encoded)
}
