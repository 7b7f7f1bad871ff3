// The test kit: a worker's methods in process, and behind a fake gateway.

import assert from 'node:assert/strict'
import test from 'node:test'
import { FakeGateway, TestWorker } from '../lib/testing/index.js'
import { Client, WorkerError } from '../lib/client/index.js'
import * as tempool from '../lib/index.js'

const { method, context, TempoolError } = tempool
const order = []
tempool.onStart(() => order.push('start'))
tempool.onStop(() => order.push('stop'))
tempool.onHealth(() => { if (order.includes('sick')) throw new Error('the GPU is gone') })
method('square', ({ x }) => x * x)
method('add', (a, b) => a + b)
method('echo', { raw: true }, (body) => body)
method('count', async function* (n) {
  try {
    for (let i = 0; i < n; i++) yield { i }
    return 'counted'
  } finally {
    order.push('closed')
  }
})
method('fail', () => { throw new TempoolError('no such thing', { code: 'nothing', data: { n: 1 } }) })
method('visit', async () => {
  const { session, programs, headers } = context()
  context().count('visits', 2)
  await programs.put('p', { a: 1 })
  await programs.put('p', { b: 2 })
  return { visits: await session.change('visits', (n = 0) => n + 1), program: await programs.get('p'), x: headers['x-a'] }
})
method('wait', () => new Promise((_, reject) => context().signal.addEventListener('abort', () => reject(Object.assign(new Error('aborted'), { name: 'AbortError' })))))
await tempool.run() // returns: the test kit was imported first

async function collect(values) {
  const all = []
  for await (const value of values) all.push(value)
  return all
}

async function behaves(pool) {
  assert.equal(await pool.call('square', { x: 12 }), 144)
  assert.equal(await pool.call('add', [1, 2]), 3)
  assert.deepEqual(await pool.callRaw('echo', Buffer.from([0, 255])), Buffer.from([0, 255]))
  assert.deepEqual(await collect(pool.stream('count', [3])), [{ i: 0 }, { i: 1 }, { i: 2 }, 'counted'])
  const closed = order.length
  for await (const { i } of pool.stream('count', [1e9])) if (i === 2) break
  while (order.length === closed) await new Promise(setImmediate)
  await assert.rejects(pool.call('fail'), (error) => error instanceof WorkerError && error.workerCode === 'nothing' && error.data.n === 1 && !error.unhandled)
  await assert.rejects(pool.call('missing'), (error) => error instanceof WorkerError && error.code === 'method_not_found')
  const seen = await pool.call('visit', undefined, { session: 'ada', headers: { 'X-A': 'b' } })
  assert.deepEqual(seen.program, { b: 2 })
  assert.equal(seen.x, 'b')
  return seen.visits
}

test('a worker in process', async () => {
  const worker = new TestWorker()
  await worker.start()
  assert.equal(await behaves(worker), 1)
  assert.deepEqual(worker.counts, { visits: 2 })
  assert.equal(worker.sessions.get('ada').data.visits, 1)
  await assert.rejects(worker.call('wait', undefined, { timeout: 20 }), (error) => error.workerCode === 'cancelled' && !error.unhandled)
  const abort = new AbortController()
  const call = worker.call('wait', undefined, { signal: abort.signal })
  abort.abort(new Error('enough'))
  await assert.rejects(call, /enough/)
  await worker.checkHealth()
  order.push('sick')
  await assert.rejects(worker.checkHealth(), /GPU/)
  await worker.stop()
  assert.deepEqual([order[0], order.at(-1)], ['start', 'stop'])
})

test('behind a fake gateway', async (t) => {
  const gateway = await FakeGateway.start()
  t.after(() => gateway.close())
  const worker = new TestWorker()
  gateway.serve('p', worker)
  assert.equal(await behaves(new Client(gateway.endpoint).pool('p')), 1)
  gateway.on('p', 'square', { scripted: true }, new Error('boom'))
  const pool = new Client(gateway.endpoint).pool('p')
  assert.deepEqual(await pool.call('square'), { scripted: true })
  await assert.rejects(pool.call('square'), (error) => error.unhandled && error.type === 'Error' && error.message === 'boom')
  await assert.rejects(new Client(gateway.endpoint).pool('other').call('m'), { code: 'pool_not_found' })
})
