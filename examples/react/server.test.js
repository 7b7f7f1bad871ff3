// The server's own test: a fake gateway stands for the pool.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import test from 'node:test'

const { FakeGateway, crash } = await import(new URL(process.env.NODE_SDK_TESTING, import.meta.url))
const { WorkerError } = await import(new URL(process.env.NODE_SDK_CLIENT, import.meta.url))

test('pages and errors', async (t) => {
  const gateway = await FakeGateway.start()
  t.after(() => gateway.close())
  gateway.on('react', 'cart', ({ customer }) => `Cart of ${customer}`, crash(), new WorkerError('no items', { workerCode: 'bad_props' }))
  process.env.TEMPOOL_GATEWAY = gateway.endpoint
  process.env.PORT = '0'
  const { server } = await import('./server.js')
  if (!server.listening) await once(server, 'listening')
  t.after(() => server.close())
  const statuses = []
  for (let n = 0; n < 3; n++) {
    const response = await fetch(`http://127.0.0.1:${server.address().port}/?customer=Ada`)
    statuses.push(response.status)
    if (n === 0) assert.match(await response.text(), /Cart of Ada/)
  }
  assert.deepEqual(statuses, [200, 502, 400])
})
