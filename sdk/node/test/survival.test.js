import assert from 'node:assert/strict'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { test } from 'node:test'
import * as frames from '../lib/frames.js'
import { start } from './host.js'

const json = (frame) => JSON.parse(frame.payload.toString())

const thrown = `
  const broken = (name) => Object.defineProperty(new Error('x'), name, { get() { throw new Error('a getter') } })
  const kinds = {
    bare: () => Object.create(null),
    undefined: () => undefined,
    null: () => null,
    symbol: () => Symbol('s'),
    bigint: () => 5n,
    fn: () => () => 1,
    frozen: () => Object.freeze(new Error('cold')),
    text: () => ({ toString() { throw new Error('no text') } }),
    message: () => broken('message'), stack: () => broken('stack'), name: () => broken('name'),
    strange: () => Object.assign(new Error('m'), { message: Symbol('m'), stack: 5n, name: {} }),
    revoked: () => { const { proxy, revoke } = Proxy.revocable({}, {}); revoke(); return proxy },
    revokedError: () => { const { proxy, revoke } = Proxy.revocable(new Error('x'), {}); revoke(); return proxy },
    circular: () => { const e = new tempool.TempoolError('c', { data: {} }); e.data.self = e; return e },
    toJSON: () => new tempool.TempoolError('c', { data: { toJSON() { throw null } } }),
    code: () => Object.defineProperty(new tempool.TempoolError('c'), 'code', { get() { throw undefined } }),
    longCode: () => new tempool.TempoolError('c', { code: 'c'.repeat(200000), data: 'd'.repeat(200000) }),
    longName: () => Object.assign(new Error('n'), { name: 'n'.repeat(200000) }),
    rejected: () => Promise.reject(new Error('of a promise')),
  }
  process.on('unhandledRejection', () => {})
  method('throws', (kind) => { throw kinds[kind]() })
  method('rejects', async (kind) => { throw kinds[kind]() })
  method('streams', function* (kind) { yield 1; throw kinds[kind]() })
  method('names', () => Object.keys(kinds))
  method('ok', () => true)
  run()`

test('the worker survives everything that is thrown', async (t) => {
  const host = await start(t, thrown)
  for (const kind of await host.call('names')) {
    for (const method of ['throws', 'rejects']) {
      const failure = await host.call(method, kind)
      assert.equal(typeof failure.message, 'string', `${method} ${kind}`)
      assert.equal(typeof failure.code, 'string', `${method} ${kind}`)
    }
    const id = host.request('streams', JSON.stringify([kind]))
    await host.expect(frames.CHUNK, id)
    await host.expect(frames.ERROR, id)
    host.send(frames.NOTIFY, { method: 'throws', payload: JSON.stringify([kind]) })
    assert.equal(await host.call('ok'), true, kind)
  }
  assert.equal((await host.call('throws', 'frozen')).message, 'cold')
})

test('tracing that throws fails no call', async (t) => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tempool-'))
  t.after(() => fs.rmSync(folder, { recursive: true }))
  fs.mkdirSync(path.join(folder, '@opentelemetry', 'api'), { recursive: true })
  fs.writeFileSync(path.join(folder, '@opentelemetry', 'api', 'index.js'), `
    const broken = () => { throw new Error('tracing') }
    const span = { recordException: broken, end: broken }
    module.exports = {
      isSpanContextValid: () => true, createTraceState: broken, TraceFlags: { SAMPLED: 1 }, SpanKind: {}, SpanStatusCode: {},
      trace: { setSpanContext: (on) => on, setSpan: (on) => on, getTracer: () => ({ startSpan: (name) => (name === 'unstarted' ? broken() : span) }) },
      context: { active: () => ({}), with: (_, fn) => { fn(); broken() } },
    }`)
  const host = await start(t, `let n = 0
    for (const name of ['unstarted', 'count']) method(name, () => ++n)
    method('fail', () => { throw new Error('own') })
    run()`, { env: { NODE_PATH: folder } })
  const traceparent = (flags) => ({ traceparent: `00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-${flags}` })
  for (const [n, [name, headers]] of [['unstarted', traceparent('01')], ['count', traceparent('01')], ['count', traceparent('00')],
    ['count', { ...traceparent('01'), tracestate: 'a=b' }]].entries()) {
    const id = host.request(name, '', headers)
    assert.equal(json(await host.expect(frames.RESPONSE, id)), n + 1)
  }
  host.request('fail', '', traceparent('01'))
  assert.equal(json(await host.expect(frames.ERROR)).message, 'own')
})

test('results that cannot be sent fail only their call', async (t) => {
  const host = await start(t, `
    method('thenable', () => ({ get then() { throw Object.create(null) } }))
    method('json', () => ({ toJSON() { throw Object.create(null) } }))
    method('header', () => { context().responseHeaders.x = Symbol('x') })
    method('iterator', () => ({ [Symbol.iterator]() {}, get next() { throw null } }))
    method('returns', () => ({ [Symbol.iterator]() {}, next() { throw null }, return() { throw undefined } }))
    method('ok', () => true)
    run()`)
  for (const method of ['thenable', 'json', 'header', 'iterator', 'returns']) {
    const failure = await host.call(method)
    assert.equal(typeof failure.message, 'string', method)
    assert.equal(await host.call('ok'), true)
  }
})

test('output of any kind does not disturb the protocol', async (t) => {
  const host = await start(t, `
    const { spawnSync } = await import('node:child_process')
    const fs = await import('node:fs')
    method('f', () => {
      console.log('from node')
      fs.writeSync(1, Buffer.from([0, 0, 0, 1]))
      fs.writeSync(1, 'raw\\n')
      const { stdout } = spawnSync('sh', ['-c', 'echo from a child >&1; for f in 3 4 5 6 7; do echo leaked 2>/dev/null >&$f && echo open $f; done; true'], { stdio: ['ignore', 'pipe', 'inherit'] })
      fs.writeSync(1, stdout)
      return stdout.toString()
    })
    run()`)
  for (let i = 0; i < 3; i++) assert.equal(await host.call('f'), 'from a child\n')
  await host.logs(/from node/)
})
