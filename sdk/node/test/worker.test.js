import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Worker, context } from '../lib/index.js'
import * as frames from '../lib/frames.js'
import { start } from './host.js'

const json = (frame) => JSON.parse(frame.payload.toString())

test('hello names the methods', async (t) => {
  const host = await start(t, `method('b/c', () => 1); method(function a() {}); run()`)
  assert.deepEqual(host.hello.methods, ['a', 'b/c'])
  assert.equal(host.hello.protocol, 1)
  assert.match(host.hello.sdk, /^node\//)
})

test('json type decides the arguments', async (t) => {
  const host = await start(t, `method('f', (...args) => args); method('later', async (x) => x + 1); method('nothing', () => {}); run()`)
  for (const [sent, want] of [['{"x":1}', [{ x: 1 }]], ['[1,2]', [1, 2]], ['5', [5]], ['null', []], ['', []], ['[[1]]', [[1]]]]) {
    assert.deepEqual(json(await host.expect(frames.RESPONSE, host.request('f', sent))), want, sent)
  }
  assert.equal(await host.call('later', 1), 2)
  assert.equal(await host.call('nothing'), null)
})

test('raw methods take and return bytes', async (t) => {
  const host = await start(t, `
    method('echo', { raw: true }, (b) => b); method('text', { raw: true }, () => 'ü')
    method('none', { raw: true }, () => {}); method('wrong', { raw: true }, () => 5); run()`)
  for (const body of [Buffer.alloc(0), Buffer.from([0, 255]), Buffer.alloc(700_000, 'x')]) {
    assert.ok(body.equals((await host.expect(frames.RESPONSE, host.request('echo', body))).payload))
  }
  assert.equal((await host.expect(frames.RESPONSE, host.request('text'))).payload.toString(), 'ü')
  assert.equal((await host.expect(frames.RESPONSE, host.request('none'))).payload.length, 0)
  assert.match(json(await host.expect(frames.ERROR, host.request('wrong'))).message, /raw method/)
})

test('exceptions become error frames', async (t) => {
  const host = await start(t, `
    class Odd extends Error { name = 'Odd' }
    method('bad', () => { throw new Odd('why') })
    method('thrown', () => { throw 'a string' })
    method('coded', () => { throw new tempool.TempoolError('no', { code: 'nope', data: { n: 1 } }) })
    method('fatal', async () => { throw new tempool.Fatal('gpu is gone') })
    method('nojson', () => 1n)
    method('func', () => () => 1)
    method('long', () => { throw new Odd('y'.repeat(200000)) })
    run()`)
  const bad = await host.call('bad')
  assert.deepEqual([bad.code, bad.type, bad.message], ['error', 'Odd', 'why'])
  assert.match(bad.traceback, /why\n +at /)
  assert.equal((await host.call('thrown')).message, 'a string')
  const coded = await host.call('coded')
  assert.deepEqual([coded.code, coded.data, coded.fatal], ['nope', { n: 1 }, undefined])
  assert.equal((await host.call('fatal')).fatal, true)
  assert.match((await host.call('nojson')).message, /BigInt/)
  assert.match((await host.call('func')).message, /as JSON/)
  assert.equal((await host.call('long')).message.length, 2000)
  for (const method of ['bad', 'thrown', 'nojson', 'long']) assert.equal((await host.call(method)).unhandled, true, method)
  for (const method of ['coded', 'fatal', 'missing']) assert.equal((await host.call(method)).unhandled, undefined, method)
  const missing = await host.call('missing')
  assert.equal(missing.code, 'method_not_found')
  assert.match(missing.message, /coded/)
  assert.equal(json(await host.expect(frames.ERROR, host.request('coded', '{'))).code, 'invalid_params')
})

test('a result above max_message is an error', async (t) => {
  const host = await start(t, `method('big', { raw: true }, () => 'ü'.repeat(51)); run()`, { maxMessage: 100 })
  assert.equal((await host.call('big')).code, 'too_large')
})

test('generators stream', async (t) => {
  const host = await start(t, `
    method('count', async function* (n) { for (let i = 0; i < n; i++) yield { i }; return 'done' })
    method('raw', { raw: true }, function* () { yield 'a'; yield Buffer.from('b') })
    method('breaks', function* () { yield 1; throw new Error('mid') })
    method('large', { raw: true }, function* () { for (let i = 0; i < 40; i++) yield Buffer.alloc(100000, i) })
    run()`)
  let id = host.request('count', '[2]')
  for (const [i, headers] of [{ 'content-type': 'application/x-ndjson' }, {}].entries()) {
    const chunk = await host.expect(frames.CHUNK, id)
    assert.equal(chunk.payload.toString(), `{"i":${i}}\n`)
    assert.deepEqual(chunk.headers, headers)
  }
  assert.equal((await host.expect(frames.RESPONSE, id)).payload.toString(), '"done"')
  id = host.request('raw')
  const raw = await host.expect(frames.CHUNK, id)
  assert.deepEqual([raw.payload.toString(), raw.headers], ['a', {}])
  assert.equal((await host.expect(frames.CHUNK, id)).payload.toString(), 'b')
  assert.equal((await host.expect(frames.RESPONSE, id)).payload.length, 0)
  id = host.request('breaks')
  await host.expect(frames.CHUNK, id)
  assert.equal(json(await host.expect(frames.ERROR, id)).message, 'mid')
  id = host.request('large')
  for (let i = 0; i < 40; i++) assert.equal((await host.expect(frames.CHUNK, id)).payload[99999], i)
  await host.expect(frames.RESPONSE, id)
})

test('context', async (t) => {
  const host = await start(t, `
    method('who', async () => {
      await null
      const c = context()
      c.count('api_calls'); c.count('api_calls', 2); c.responseHeaders.k = 'v'
      return [c.headers.a ?? null, c.worker, c.incarnation, c.deadline !== null && c.remaining > 0 && c.remaining <= 600_000, c.cancelled]
    })
    run()`, { env: { TEMPOOL_WORKER: 'node/3', TEMPOOL_INCARNATION: 'host:1:node/3:7:ab.cd' } })
  const frame = await host.expect(frames.RESPONSE, host.request('who', '', { a: 'b', 'tempool-timeout': '600000' }))
  assert.deepEqual(json(frame), ['b', 'node/3', 7, true, false])
  assert.deepEqual(frame.headers, { 'tempool-count-api_calls': '3', k: 'v' })
  assert.equal(json(await host.expect(frames.RESPONSE, host.request('who')))[3], false)
})

test('calls run concurrently, each with its own context', async (t) => {
  const host = await start(t, `
    let meet; const both = new Promise((resolve) => { meet = resolve }); let n = 0
    method('f', async () => { if (++n === 2) meet(); await both; return context().headers.me })
    run()`)
  const first = host.request('f', '', { me: 'a' })
  const second = host.request('f', '', { me: 'b' })
  const got = {}
  for (let i = 0; i < 2; i++) {
    const frame = await host.expect(frames.RESPONSE)
    got[frame.id] = json(frame)
  }
  assert.deepEqual(got, { [first]: 'a', [second]: 'b' })
})

test('a handler sees a cancel by polling and by its signal', async (t) => {
  const host = await start(t, `
    method('wait', () => new Promise((resolve) => context().signal.addEventListener('abort', () => resolve('left'))))
    method('forever', function* () { for (;;) yield 1 })
    run()`)
  let id = host.request('wait')
  host.send(frames.CANCEL, { id })
  assert.equal(json(await host.expect(frames.RESPONSE, id)), 'left')
  id = host.request('forever')
  await host.expect(frames.CHUNK, id)
  host.send(frames.CANCEL, { id })
  let frame
  while ((frame = await host.read()).type === frames.CHUNK);
  assert.equal(frame.type, frames.ERROR)
  assert.equal(json(frame).code, 'cancelled')
  host.send(frames.CANCEL, { id }) // too late: of no effect
  host.send(frames.PING, { id: 5 })
  await host.expect(frames.PONG, 5)
})

test('host calls', async (t) => {
  const host = await start(t, `
    method('f', async () => {
      const c = context()
      await c.session.set('n', await c.session.get('n') + 1)
      try { await c.host('forbidden') } catch (e) { return [e instanceof tempool.HostError, e.code, e.message] }
    })
    run()`)
  const id = host.request('f')
  const answer = async (name, type, value) => {
    const asked = await host.expect(frames.HOST_CALL)
    assert.equal(asked.method, name)
    assert.deepEqual(asked.headers, { call: String(id) })
    host.send(type, { id: asked.id, payload: JSON.stringify(value) })
    return asked.payload.length ? json(asked) : null
  }
  await answer('session.get', frames.HOST_RESULT, { data: { n: 1 } })
  assert.deepEqual(await answer('session.update', frames.HOST_RESULT, {}), { patch: { data: { n: 2 } } })
  await answer('forbidden', frames.HOST_ERROR, { code: 'unsupported', message: 'no' })
  assert.deepEqual(json(await host.expect(frames.RESPONSE, id)), [true, 'unsupported', 'no'])
})

test('garbage is collected when the host asks, if gc is exposed', async (t) => {
  const host = await start(t, `let asked = 0; globalThis.gc = () => asked++; method('get', () => asked); run()`)
  host.send(frames.NOTIFY, { method: 'tempool.gc' })
  assert.equal(await host.call('get'), 1)
  const bare = await start(t, `delete globalThis.gc; method('get', () => typeof globalThis.gc); run()`)
  bare.send(frames.NOTIFY, { method: 'tempool.gc' })
  assert.equal(await bare.call('get'), 'undefined')
  assert.doesNotMatch(bare.log, /tempool.gc/)
})

test('notifications get no response, and their errors are logged', async (t) => {
  const host = await start(t, `const seen = []; method('note', (x) => { seen.push(x); if (!x) throw new Error('zero') }); method('get', () => seen); run()`)
  host.send(frames.NOTIFY, { method: 'note', payload: '1' })
  host.send(frames.NOTIFY, { method: 'note', payload: '0' })
  host.send(frames.NOTIFY, { method: 'absent' })
  assert.deepEqual(await host.call('get'), [1, 0])
  host.socket.end()
  assert.equal(await host.wait(), 0)
  assert.match(host.log, /Error: zero/)
  assert.match(host.log, /absent/)
})

test('frames are split across reads', async (t) => {
  const host = await start(t, `method('echo', { raw: true }, (b) => b); run()`)
  const all = Array.from({ length: 50 }, (_, i) => frames.encode(frames.REQUEST, { id: i + 1, method: 'echo', payload: String(i) }))
  host.socket.write(Buffer.concat(all))
  for (let i = 0; i < 50; i++) assert.equal((await host.expect(frames.RESPONSE, i + 1)).payload.toString(), String(i))
  for (const byte of frames.encode(frames.REQUEST, { id: 99, method: 'echo', payload: 'slow' })) {
    await new Promise((resolve) => host.socket.write(Buffer.from([byte]), resolve))
  }
  assert.equal((await host.expect(frames.RESPONSE, 99)).payload.toString(), 'slow')
})

test('end of stream is a clean exit, after the stop hooks', async (t) => {
  const host = await start(t, `tempool.onStop(async () => { await null; console.log('bye') }); run()`)
  host.socket.end()
  assert.equal(await host.wait(), 0)
  assert.match(host.log, /bye/)
})

test('SIGTERM finishes the call in flight', async (t) => {
  const host = await start(t, `method('slow', async () => { await context().host('here'); await context().host('still here'); return 'whole' }); run()`)
  const id = host.request('slow')
  const asked = await host.expect(frames.HOST_CALL)
  host.child.kill('SIGTERM')
  host.send(frames.HOST_RESULT, { id: asked.id })
  host.send(frames.HOST_RESULT, { id: (await host.expect(frames.HOST_CALL)).id })
  assert.equal(json(await host.expect(frames.RESPONSE, id)), 'whole')
  assert.equal(await host.read(), null)
  assert.equal(await host.wait(), 0)
})

test('SIGTERM ends a worker that always has another call', async (t) => {
  const host = await start(t, `
    let call
    method('asks', () => { call = context(); return call.host('here') }); run()
    process.on('SIGTERM', () => setImmediate(() => call.host('stopping')))`)
  const first = host.request('asks')
  const asked = await host.expect(frames.HOST_CALL)
  host.child.kill('SIGTERM')
  const stopping = await host.expect(frames.HOST_CALL)
  const refused = await host.expect(frames.ERROR, host.request('asks'))
  assert.equal(json(refused).not_begun, true)
  host.send(frames.HOST_RESULT, { id: stopping.id })
  host.send(frames.HOST_RESULT, { id: asked.id })
  await host.expect(frames.RESPONSE, first)
  assert.equal(await host.read(), null)
  assert.equal(await host.wait(), 0)
})

test('SIGTERM ends an idle worker', async (t) => {
  const host = await start(t, `run()`)
  host.child.kill('SIGTERM')
  assert.equal(await host.read(), null)
  assert.equal(await host.wait(), 0)
})

test('process.exit ends the worker with its code', async (t) => {
  const host = await start(t, `method('leave', () => process.exit(7)); run()`)
  host.request('leave')
  assert.equal(await host.read(), null)
  assert.equal(await host.wait(), 7)
})

test('a protocol error is logged', async (t) => {
  for (const raw of [frames.encode(frames.RESPONSE, { id: 1 }), Buffer.from('0000000c63' + '00'.repeat(11), 'hex'), Buffer.alloc(16)]) {
    const host = await start(t, `run()`)
    host.socket.write(raw)
    assert.equal(await host.wait(), 1)
    assert.match(host.log, /protocol error/)
  }
})

test('children do not inherit the socket, and console.log goes to the log', async (t) => {
  const host = await start(t, `
    import { spawnSync } from 'node:child_process'
    method('f', () => {
      console.log('to the log')
      const code = 'let open = true; try { require("fs").readlinkSync("/proc/self/fd/3").startsWith("socket:") || (open = false) } catch { open = false }; console.log(process.env.TEMPOOL_FD ?? "none", open)'
      return spawnSync(process.execPath, ['-e', code]).stdout.toString()
    })
    run()`)
  assert.equal(await host.call('f'), 'none false\n')
  await host.logs(/to the log\n/)
})

test('start hooks run before ready, and a failing one fails the start', async (t) => {
  let host = await start(t, `let x = 0; tempool.onStart(async () => { await null; x = 1 }); method('get', () => x); run()`)
  assert.equal(await host.call('get'), 1)
  host = await start(t, `tempool.onStart(() => { throw new Error('no model') }); run()`, { hello: false })
  assert.equal(await host.wait(), 1)
  assert.match(host.log, /no model/)
})

test('invalid method names throw, and so does context outside of a call', () => {
  const worker = new Worker()
  const fn = () => 1
  worker.method('a', fn)
  assert.throws(() => worker.method('a', fn), /already defined/)
  assert.throws(() => worker.method('x'.repeat(1025), fn), RangeError)
  assert.throws(() => worker.method('b', 'not a function'), TypeError)
  assert.throws(() => context(), /in a method/)
})

test('a call that its caller aborted fails as cancelled, and is no error of the program', async (t) => {
  const host = await start(t, `
    import { setTimeout as sleep } from 'node:timers/promises'
    method('sleep', () => sleep(1e6, null, { signal: context().signal }))
    method('fails', async () => { await sleep(1e6, null, { signal: AbortSignal.timeout(1) }) })
    run()`)
  const id = host.request('sleep')
  host.send(frames.CANCEL, { id })
  const answer = JSON.parse((await host.expect(frames.ERROR, id)).payload.toString())
  assert.deepEqual([answer.code, answer.unhandled], ['cancelled', undefined])
  assert.equal((await host.call('fails')).unhandled, true) // an abort of its own
})
