// Calls the pool "called" through the gateways of its hosts, whose names, token and certificates are in the environment.
import assert from 'node:assert/strict'
import { Client, WorkerError } from '../../../sdk/node/lib/client/index.js'

const code = (name, started) => (error) => error.code === name && error.started === started
const client = new Client()
const pool = client.pool('called')
assert.equal(await pool.call('square', { x: 12 }), 144)
const zeros = Buffer.alloc(3_000_000)
assert.deepEqual(await pool.callRaw('echo', zeros), zeros)
const values = []
for await (const value of pool.stream('count', [3])) values.push(value)
assert.deepEqual(values, [{ i: 0 }, { i: 1 }, { i: 2 }, 'counted'])
for await (const { i } of pool.stream('count', [1_000_000])) if (i === 3) break

await assert.rejects(pool.call('fail'), (error) => error instanceof WorkerError && error.workerCode === 'nothing' && error.data.n === 1)
await assert.rejects(pool.call('missing'), (error) => error instanceof WorkerError && error.workerCode === 'method_not_found')
await assert.rejects(client.pool('absent').call('m'), (error) => error.code === 'forbidden' || error.code === 'pool_not_found')
await assert.rejects(pool.call('nap', [60], { signal: AbortSignal.timeout(100) }), { name: 'TimeoutError' })
await assert.rejects(pool.call('nap', [60], { timeout: 200 }), code('deadline_exceeded', true))
await assert.rejects(new Client(undefined, { token: 'wrong' }).pool('called').call('square', [1]), code('unauthorized', false))
const [gateway] = process.env.TEMPOOL_GATEWAY.split(',')
delete process.env.TEMPOOL_CA_FILE
await assert.rejects(new Client(gateway, { retries: 0 }).pool('called').call('square', [1]), code('unavailable', false))

const lease = await pool.lease({ ttl: 2000 })
const [pid] = await lease.call('nap', [2.5]) // longer than the ttl: it is renewed
assert.equal((await lease.call('nap', [0]))[0], pid)
await lease.notify('remember', ['first'])
assert.deepEqual(await lease.call('remember'), ['first'])
await assert.rejects(lease.call('die'), code('worker_crashed', true))
await assert.rejects(lease.call('square', [1]), code('lease_fenced', false))
assert.equal(await pool.call('square', [3]), 9)
const isBack = (worker) => worker.worker === lease.worker && worker.incarnation > lease.incarnation && worker.state === 'ready'
while (!(await pool.status()).workers.some(isBack)) await new Promise((resolve) => setTimeout(resolve, 50))

const began = performance.now()
const naps = await Promise.all(Array.from({ length: 50 }, () => pool.call('nap', [0.1])))
const took = performance.now() - began
assert.equal(new Set(naps.map(([worker]) => worker)).size, 10)
const overlap = Math.max(...naps.map(([, at]) => naps.filter(([, from, to]) => from <= at && at < to).length))
assert.ok(overlap >= 5, `at most ${overlap} calls ran at a time`)
console.log(`50 calls of 100 ms on 10 workers took ${Math.round(took)} ms; up to ${overlap} ran at a time`)

const results = []
for await (const { value } of pool.map('square', Array.from({ length: 200 }, (_, n) => [n]))) results.push(value)
assert.deepEqual(results, Array.from({ length: 200 }, (_, n) => n * n))
client.close()
