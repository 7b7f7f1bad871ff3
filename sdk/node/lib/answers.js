// How a call ends on the wire: a response, or an error that says what happened.

import { within } from './context.js'
import { Cancelled, TempoolError } from './errors.js'
import * as frames from './frames.js'

const empty = Buffer.alloc(0)

/** The payload of an ERROR frame that needs no more than a code and a sentence. */
export function refusal(code, message) {
  return JSON.stringify({ code, message })
}

/** Runs a handler and resolves, always, to its answer: {type, headers, payload, error}. sendChunk sends a piece of a stream. */
export async function answer(method, call, body, maxMessage, sendChunk) {
  try {
    let payload = await within(call, () => method.call(body))
    if (isStream(payload)) payload = await stream(method, call, payload, maxMessage, sendChunk)
    else payload = method.encode(payload)
    fits(payload, maxMessage, 'the result')
    return { type: frames.RESPONSE, headers: frames.encodeHeaders(call.answerHeaders()), payload }
  } catch (error) {
    return { type: frames.ERROR, headers: headersAfterFailure(call), payload: failure(error), error }
  }
}

function isStream(value) {
  return value !== null && typeof value === 'object' && typeof value.next === 'function' &&
    (Symbol.asyncIterator in value || Symbol.iterator in value)
}

async function stream(method, call, chunks, maxMessage, sendChunk) {
  try {
    for (;;) {
      const { value, done } = await within(call, () => chunks.next())
      if (done) return value === undefined ? empty : method.encode(value)
      const chunk = method.encodeChunk(value)
      fits(chunk, maxMessage, 'a chunk')
      await sendChunk(chunk)
      // A generator that never waits would keep the cancel from being read.
      await new Promise(setImmediate)
      if (call.cancelled) throw new Cancelled()
    }
  } finally {
    await chunks.return?.()
  }
}

function fits(payload, maxMessage, what) {
  const size = Buffer.byteLength(payload)
  if (size > maxMessage) throw new TempoolError(`${what} has ${size} bytes, the host takes ${maxMessage}`, { code: 'too_large' })
}

function headersAfterFailure(call) {
  try {
    return frames.encodeHeaders(call.answerHeaders())
  } catch {
    return empty // the headers may be what the failure is about
  }
}

/** Anything thrown as the payload of an ERROR frame, cut to what fits into one. */
export function failure(thrown) {
  const error = thrown instanceof Error ? thrown : new Error(String(thrown))
  const report = {
    code: error instanceof TempoolError ? error.code : 'error',
    type: error.name,
    message: error.message,
    traceback: error.stack,
  }
  if (error instanceof TempoolError) {
    if (error.data !== undefined) report.data = data(error.data)
    if (error.fatal) report.fatal = true
  }
  const payload = JSON.stringify(report)
  if (Buffer.byteLength(payload) <= frames.MAX_CONTROL) return payload
  return JSON.stringify({ ...report, data: undefined, message: report.message.slice(0, 2000), traceback: report.traceback?.slice(0, 4000) })
}

function data(value) {
  try {
    JSON.stringify(value)
    return value
  } catch {
    return String(value)
  }
}
