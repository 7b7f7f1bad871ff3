// Responses: runs a handler and encodes its result or its error.

import { runIn } from './context.js'
import { Cancelled, TempoolError } from './errors.js'
import * as frames from './frames.js'

const empty = Buffer.alloc(0)

/** Encodes an ERROR payload of a code and a message. */
export function errorPayload(code, message) {
  return JSON.stringify({ code, message })
}

/** Runs a handler and resolves to its response: {type, headers, payload, error}. It never rejects. sendChunk sends a piece of a stream. */
export async function respond(method, call, body, maxMessage, sendChunk) {
  try {
    let payload = await runIn(call, () => method.call(body))
    if (isStream(payload)) payload = await stream(method, call, payload, maxMessage, sendChunk)
    else payload = method.encode(payload)
    checkSize(payload, maxMessage, 'the result')
    return { type: frames.RESPONSE, headers: frames.encodeHeaders(call.responseHeaderFields()), payload }
  } catch (error) {
    return { type: frames.ERROR, headers: headersOrNone(call), payload: exceptionPayload(error), error }
  }
}

function isStream(value) {
  return value !== null && typeof value === 'object' && typeof value.next === 'function' &&
    (Symbol.asyncIterator in value || Symbol.iterator in value)
}

async function stream(method, call, chunks, maxMessage, sendChunk) {
  try {
    for (;;) {
      const { value, done } = await runIn(call, () => chunks.next())
      if (done) return value === undefined ? empty : method.encode(value)
      const chunk = method.encodeChunk(value)
      checkSize(chunk, maxMessage, 'a chunk')
      await sendChunk(chunk)
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

/** Encodes anything thrown as the payload of an ERROR frame, truncated to its limit. */
export function exceptionPayload(thrown) {
  const error = thrown instanceof Error ? thrown : new Error(String(thrown))
  const report = {
    code: error instanceof TempoolError ? error.code : 'error',
    type: error.name,
    message: error.message,
    traceback: error.stack,
  }
  if (error instanceof TempoolError) {
    if (error.data !== undefined) report.data = jsonOrString(error.data)
    if (error.fatal) report.fatal = true
  }
  const payload = JSON.stringify(report)
  if (Buffer.byteLength(payload) <= frames.MAX_CONTROL) return payload
  return JSON.stringify({ ...report, data: undefined, message: report.message.slice(0, 2000), traceback: report.traceback?.slice(0, 4000) })
}

function jsonOrString(value) {
  try {
    JSON.stringify(value)
    return value
  } catch {
    return String(value)
  }
}
