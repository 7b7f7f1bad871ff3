import assert from 'node:assert/strict'
import fs from 'node:fs'
import { test } from 'node:test'
import * as frames from '../lib/frames.js'
import { start } from './host.js'

const json = (frame) => JSON.parse(frame.payload.toString())
const read = (name) => fs.readFileSync(new URL(name, import.meta.url), 'utf8')

test('host call vectors', async (t) => {
  const host = await start(t, read('performer.mjs').replace(/^import .*$/m, ''))
  const all = JSON.parse(read('../../vectors/hostcalls.json'))
  assert.ok(all.length)
  for (const v of all) {
    const id = host.request('perform', JSON.stringify(v.do))
    for (const step of v.host) {
      const asked = await host.expect(frames.HOST_CALL)
      assert.equal(asked.method, step.method, v.name)
      assert.deepEqual(asked.headers, { call: String(id) }, v.name)
      assert.deepEqual(asked.payload.length ? json(asked) : null, step.params, v.name)
      host.send(step.error ? frames.HOST_ERROR : frames.HOST_RESULT, { id: asked.id, payload: JSON.stringify(step.error ?? step.result) })
    }
    const answer = await host.read()
    assert.equal(answer.id, id, v.name)
    if (v.fails) assert.deepEqual([answer.type, json(answer).code], [frames.ERROR, v.fails], v.name)
    else assert.deepEqual([answer.type, json(answer)], [frames.RESPONSE, v.gives], v.name)
  }
})

/** Answers host calls from a session until call id is answered, and resolves to the answer. */
async function store(host, session, id) {
  for (;;) {
    const frame = await host.read()
    if (frame.type !== frames.HOST_CALL) {
      assert.deepEqual([frame.type, frame.id], [frames.RESPONSE, id], frame.payload.toString())
      return json(frame)
    }
    if (frame.method === 'session.update') {
      for (const [part, entries] of Object.entries(json(frame).patch)) {
        if (entries === null) session[part] = {}
        for (const [key, value] of Object.entries(entries ?? {})) {
          delete session[part][key]
          if (value !== null) session[part][key] = value
        }
      }
      session.version++
    } else assert.equal(frame.method, 'session.get')
    host.send(frames.HOST_RESULT, { id: frame.id, payload: JSON.stringify(session) })
  }
}

test('session data by key', async (t) => {
  const host = await start(t, `
    method('f', async () => {
      const s = context().session
      await s.set('a', 1); await s.set('b', [2]); await s.update({ c: 3 }); await s.set('when', new Date(0)); await s.delete('a')
      const seen = [await s.get('b'), await s.get('a') === undefined, await s.get('toString') === undefined, await s.has('c'), await s.has('a'),
        (await s.keys()).sort(), await s.entries(), await s.get('when'), await s.metadata.all()]
      seen.push(await s.change('n', async (n = 0) => n + 1), await s.change('n', (n = 0) => n + 1), await s.change('n', () => undefined) === undefined)
      for (const bad of [() => s.set(1, 2), () => s.set('x', { y: null }), () => s.change('x', () => { throw new RangeError() })]) {
        await bad().catch((e) => seen.push(e.name))
      }
      await s.clear()
      return [...seen, await s.all()]
    })
    run()`)
  const session = { id: 's', data: {}, metadata: { m: 1 }, programs: {}, version: 1 }
  const when = '1970-01-01T00:00:00.000Z'
  assert.deepEqual(await store(host, session, host.request('f')), [
    [2], true, true, true, false, ['b', 'c', 'when'], [['b', [2]], ['c', 3], ['when', when]], when, { m: 1 }, 1, 2, true,
    'TypeError', 'TypeError', 'RangeError', {}])
})

test('change rejects with Conflict after all attempts', async (t) => {
  const host = await start(t, `
    method('f', () => context().session.change('n', () => 1).catch((e) => [e.code, e instanceof tempool.Conflict, e instanceof tempool.HostError]))
    run()`)
  host.request('f')
  let tries = 0
  let frame
  while ((frame = await host.read()).type === frames.HOST_CALL) {
    if (frame.method === 'session.get') {
      host.send(frames.HOST_RESULT, { id: frame.id, payload: '{"data":{},"version":1}' })
      continue
    }
    tries++
    host.send(frames.HOST_ERROR, { id: frame.id, payload: '{"code":"version_conflict","message":"no"}' })
  }
  assert.deepEqual([json(frame), tries], [['version_conflict', true, true], 16])
})

test('session hooks run as calls of the session', async (t) => {
  const host = await start(t, `
    tempool.onSessionRelease((id) => context().session.set('seen', id))
    tempool.onSessionLoad(() => context().headers['tempool-session'])
    run()`)
  assert.deepEqual(host.hello.methods, ['session.load', 'session.release'])
  const session = { id: 's1', data: {}, metadata: {}, programs: {}, version: 1 }
  const headers = { 'tempool-session': 's1' }
  assert.equal(await store(host, session, host.request('session.release', '["s1"]', headers)), null)
  assert.deepEqual(session.data, { seen: 's1' })
  assert.equal(await store(host, session, host.request('session.load', '["s1"]', headers)), 's1')
})

test('the lease reset hook takes no arguments', async (t) => {
  const host = await start(t, `let kept = 1; tempool.onLeaseReset(() => { kept = 0 }); method('count', () => kept); run()`)
  assert.deepEqual(host.hello.methods, ['count', 'lease.reset'])
  const session = { id: 's1', data: {}, metadata: {}, programs: {}, version: 1 }
  assert.equal(await store(host, session, host.request('count', '[]', {})), 1)
  await store(host, session, host.request('lease.reset', '[]', {}))
  assert.equal(await store(host, session, host.request('count', '[]', {})), 0)
})

test('the hooks of a suspension take no arguments', async (t) => {
  const host = await start(t, `const seen = []; tempool.onSuspend(() => { seen.push('suspend') }); tempool.onResume(async () => { seen.push('resume') })
    method('recorded', () => seen); run()`)
  assert.deepEqual(host.hello.methods, ['recorded', 'worker.resume', 'worker.suspend'])
  const session = { id: 's1', data: {}, metadata: {}, programs: {}, version: 1 }
  await store(host, session, host.request('worker.suspend', '[]', {}))
  await store(host, session, host.request('worker.resume', '[]', {}))
  assert.deepEqual(await store(host, session, host.request('recorded', '[]', {})), ['suspend', 'resume'])
})

test('a notification reports its counters', async (t) => {
  const host = await start(t, `method('note', () => { context().count('api_calls', 3); throw new Error('no') }); run()`)
  host.send(frames.NOTIFY, { method: 'note' })
  const asked = await host.expect(frames.HOST_CALL)
  assert.deepEqual([asked.method, asked.headers, json(asked)], ['worker.count', {}, { api_calls: 3 }])
  host.send(frames.HOST_RESULT, { id: asked.id })
})

test('invalid counts throw', async (t) => {
  const host = await start(t, `
    method('f', () => {
      const bad = [['x', -1], ['x', 1.5], ['x', 2 ** 54], ['X', 1], ['', 1], ['x'.repeat(65), 1], ['a-b', 1], [5, 1], ['x', '1']]
      return bad.filter(([name, n]) => { try { context().count(name, n) } catch (e) { return e instanceof RangeError } }).length === bad.length
    })
    run()`)
  assert.equal(await host.call('f'), true)
})
