// Spans of calls, where the program has OpenTelemetry's API (the package @opentelemetry/api). Nothing is loaded before the first call that names the
// span of its caller.

import { createRequire } from 'node:module'
import { ERROR } from './frames.js'

const traceparent = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/

let api // once searched: the API, or null without it

function load() {
  for (const from of [process.argv[1], import.meta.url]) {
    try {
      return createRequire(from)('@opentelemetry/api')
    } catch {
      // not there, or the program is not a file
    }
  }
  return null
}

/**
 * Runs respond, which resolves to a call's response, in a span of the call if the request names its caller's. A call whose caller does not sample its
 * trace gets none, since nobody would record it; respond then runs below the caller's. What the API throws is ignored.
 */
export function inSpan(request, respond) {
  const parent = request.headers.traceparent
  if (parent === undefined) return respond()
  if (api === undefined) api = load()
  const fields = api && traceparent.exec(parent)
  if (!fields) return respond()
  const [, traceId, spanId, flags] = fields
  const caller = { traceId, spanId, traceFlags: parseInt(flags, 16), isRemote: true }
  let answer
  const once = () => (answer ??= respond())
  let span
  try {
    if (!api.isSpanContextValid(caller)) return respond()
    const state = request.headers.tracestate
    if (state) caller.traceState = api.createTraceState(state)
    const below = api.trace.setSpanContext(api.context.active(), caller)
    if (caller.traceFlags & api.TraceFlags.SAMPLED) {
      span = api.trace.getTracer('tempool').startSpan(request.method, { kind: api.SpanKind.SERVER }, below)
    }
    api.context.with(span ? api.trace.setSpan(below, span) : below, once)
  } catch {
    // tracing fails no call
  }
  return span ? once().then((response) => end(span, response)) : once()
}

function end(span, response) {
  try {
    if (response.type === ERROR) fail(span, response.error)
    span.end()
  } catch {
    // tracing fails no call
  }
  return response
}

function fail(span, error) {
  const known = error instanceof Error ? error : new Error('a handler threw a value that is not an Error')
  span.recordException(known)
  span.setStatus({ code: api.SpanStatusCode.ERROR, message: known.message })
}
