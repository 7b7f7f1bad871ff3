// The client and the fake gateway, over HTTP.

import assert from 'node:assert/strict'
import fs from 'node:fs'
import https from 'node:https'
import os from 'node:os'
import path from 'node:path'
import test from 'node:test'
import { once } from 'node:events'
import http from 'node:http'
import { Client, TempoolError, WorkerError } from '../lib/client/index.js'
import { FakeGateway, crash } from '../lib/testing/index.js'

async function start(t, options) {
  const gateway = await FakeGateway.start(options)
  t.after(() => gateway.close())
  return gateway
}

const code = (name, started) => (error) => error.code === name && (started === undefined || error.started === started)

test('a call sends its options', async (t) => {
  const gateway = await start(t)
  gateway.on('p', 'tools/call', ({ x }) => x * x)
  const pool = new Client([gateway.endpoint]).pool('p')
  assert.equal(await pool.call('tools/call', { x: 3 }, { session: 's', key: 'k', priority: 7, timeout: 9000, headers: { 'X-A': 'ö' } }), 9)
  const [{ session, headers, worker }] = gateway.calls
  assert.deepEqual([session, worker, headers['tempool-key'], headers['tempool-priority'], headers['x-a']], ['s', 'p/0', 'k', '7', 'ö'])
  assert.ok(headers['tempool-timeout'] > 5000 && headers['tempool-timeout'] <= 9000)
  for (const [options, what] of [[{ timeout: 0 }, /timeout/], [{ headers: { a: 'b\n' } }, /header a/], [{ key: 'k\0' }, /header Tempool-Key/]]) {
    await assert.rejects(pool.call('m', 1, options), (error) => error.code === 'invalid' && what.test(error.message))
  }
  await assert.rejects(pool.call(''), code('invalid', false))
  await assert.rejects(pool.call('m', 1n), code('invalid', false))
})

test('a call is repeated at the other gateway, which is avoided once it cannot be reached', async (t) => {
  const gateway = await start(t)
  gateway.on('p', 'm', 1)
  const gone = 'http://127.0.0.1:1'
  const pool = new Client(`${gone}, ${gateway.endpoint}`).pool('p')
  for (let n = 0; n < 4; n++) assert.equal(await pool.call('m'), 1)
  await assert.rejects(new Client(gone, { retries: 1 }).pool('p').call('m'), code('unavailable', false))
})

test('aborting cancels a call and a stream', async (t) => {
  const closed = []
  const server = http.createServer((request, response) => {
    response.on('close', () => closed.push(request.url))
    if (request.url.endsWith('stream')) response.write('1\n')
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => server.close())
  const pool = new Client(`http://127.0.0.1:${server.address().port}`).pool('p')
  const abort = new AbortController()
  const call = pool.call('m', null, { signal: abort.signal })
  await once(server, 'request')
  abort.abort(new Error('enough'))
  await assert.rejects(call, /enough/)
  await assert.rejects(pool.call('m', null, { signal: abort.signal }), /enough/)
  for await (const value of pool.stream('stream')) {
    assert.equal(value, 1)
    break // closes the connection
  }
  while (closed.length < 2) await new Promise(setImmediate)
})

test('a lease reaches one worker, is renewed, and is fenced by a crash', async (t) => {
  const gateway = await start(t, { size: 2 })
  gateway.on('p', 'm', 1, crash(), 2)
  const pool = new Client(gateway.endpoint).pool('p')
  const lease = await pool.lease({ ttl: 6000, holder: 'me' })
  assert.deepEqual(gateway.leases('p').map(({ holder }) => holder), ['me'])
  assert.equal(await lease.call('m'), 1)
  await lease.notify('note', [1])
  for (let left = lease.remaining; lease.remaining <= left; await new Promise((resolve) => setTimeout(resolve, 20))) { // until it is renewed
    left = lease.remaining
    assert.ok(left > 0)
  }
  assert.equal(gateway.leases('p').length, 1)
  await assert.rejects(lease.call('m'), code('worker_crashed', true))
  await assert.rejects(lease.call('m'), code('lease_fenced', false))
  await assert.rejects(lease.close(), code('lease_fenced'))
  const next = await pool.lease()
  assert.equal(next.incarnation, 2)
  assert.equal(await next.call('m'), 2)
  await next[Symbol.asyncDispose ?? Symbol.for('nodejs.asyncDispose')]()
  assert.deepEqual(gateway.leases('p'), [])
  await assert.rejects(next.call('m'), code('lease_fenced', false))
  await pool.lease()
  gateway.fence('p')
  assert.deepEqual(gateway.leases('p'), [])
})

test('a lease stays with its gateway until another one has reached its worker', async (t) => {
  const checkins = []
  const other = http.createServer((request, response) => {
    if (request.method === 'DELETE') checkins.push(request.url.split('&error=')[1])
    response.statusCode = request.url.includes('/call/') || checkins.length === 1 ? 500 : 200
    response.end(JSON.stringify({ code: 'worker_error', started: true }))
  }).listen(0, '127.0.0.1')
  await once(other, 'listening')
  t.after(() => other.close())
  const referrals = [`http://127.0.0.1:${other.address().port}`, 'http://127.0.0.1:1'].map((endpoint) => (
    { code: 'lease_not_found', started: false, host: 'b', endpoint }))
  const server = http.createServer((request, response) => {
    const referral = request.url.includes('/call/') && referrals.pop()
    response.statusCode = referral ? 404 : 200
    response.end(JSON.stringify(referral || { id: 'p.0.1.7', ttl_ms: 60_000 }))
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => server.close())
  const lease = await new Client(`http://127.0.0.1:${server.address().port}`, { retries: 0 }).pool('p').lease()
  await assert.rejects(lease.call('m'), code('unavailable', false))
  await lease.renew()
  for (let n = 0; n < 2; n++) await assert.rejects(lease.call('m'), code('worker_error', true))
  const closing = () => lease.close('error', `x${'😀'.repeat(300)}`)
  await assert.rejects(closing(), code('worker_error'))
  for (let n = 0; n < 2; n++) await closing() // once more; then nothing
  const most = encodeURIComponent(`x${'😀'.repeat(249)}`) // whole characters in 1000 bytes; a gateway takes 1024
  assert.deepEqual(checkins, [most, most])
})

test('a lease with a fraction in its ttl outlives a gateway that does not answer', async (t) => {
  const asked = []
  let own
  const endpoints = await Promise.all([0, 1].map(async (n) => {
    const server = http.createServer(async (request, response) => {
      own ??= n
      const body = Buffer.concat(await request.toArray())
      if (body.length) asked.push([n === own, JSON.parse(body).ttl_ms])
      if (n !== own || asked.length === 1) response.end(JSON.stringify({ id: 'p.0.1.7', ttl_ms: 6000 }))
    }).listen(0, '127.0.0.1')
    await once(server, 'listening')
    t.after(() => {
      server.closeAllConnections()
      server.close()
    })
    return `http://127.0.0.1:${server.address().port}`
  }))
  const lease = await new Client(endpoints).pool('p').lease({ ttl: 6000.5 })
  while (asked.length < 3) {
    assert.ok(lease.remaining > 0)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
  assert.deepEqual(asked, [[true, 6000], [true, 6000], [false, 6000]])
  await lease.close()
})

test('another gateway serves a lease whose own does not, and a busy worker is no freer there', async (t) => {
  const served = []
  let own
  let refuse = () => {}
  const endpoints = await Promise.all([0, 1].map(async (n) => {
    const server = http.createServer((request, response) => {
      own ??= n
      const refusal = refuse(n === own)
      if (refusal) response.statusCode = 503
      else served.push(`${request.method} ${request.url}`)
      response.end(JSON.stringify(refusal ? { ...refusal, started: false } : { id: 'p.0.1.7', ttl_ms: 60_000 }))
    }).listen(0, '127.0.0.1')
    await once(server, 'listening')
    t.after(() => server.close())
    return `http://127.0.0.1:${server.address().port}`
  }))
  const lease = await new Client(endpoints, { retries: 1 }).pool('p').lease()
  for (const refusals of [[{ code: 'busy', retry_after_ms: 1 }], [{ code: 'unavailable' }]]) {
    refuse = (first) => (first ? refusals.pop() : { code: 'lease_not_found', endpoint: endpoints[own] })
    await lease.call('m')
  }
  refuse = (first) => (first ? { code: 'unavailable' } : { code: 'lease_not_found', endpoint: endpoints[own] })
  await assert.rejects(lease.call('m'), code('unavailable', false))
  refuse = (first) => first && { code: 'unavailable' }
  await lease.call('m')
  await lease.renew()
  await lease.close('ok', null)
  assert.deepEqual(served.map((one) => one.split(' ')[0]), ['POST', 'POST', 'POST', 'POST', 'PUT', 'DELETE'])
  assert.equal(served.at(-1), 'DELETE /v1/leases/p.0.1.7?outcome=ok')
})

test('one gateway only has a checkout wait for a worker', async (t) => {
  const waits = []
  const endpoints = await Promise.all([0, 1].map(async () => {
    const server = http.createServer(async (request, response) => {
      const { wait_ms: wait } = JSON.parse(Buffer.concat(await request.toArray()))
      waits.push(wait > 0)
      setTimeout(() => {
        response.statusCode = 503
        response.end(JSON.stringify({ code: 'queue_timeout', started: false }))
      }, wait && wait + 2) // timers may be early
    }).listen(0, '127.0.0.1')
    await once(server, 'listening')
    t.after(() => server.close())
    return `http://127.0.0.1:${server.address().port}`
  }))
  await assert.rejects(new Client(endpoints).pool('p').lease({ wait: 200 }), code('queue_timeout', false))
  assert.deepEqual(waits, [true, false])
})

test('map yields results in order, or as they end, with their errors', async (t) => {
  const gateway = await start(t)
  const waiting = []
  let most = 0
  gateway.on('p', 'm', async (n) => {
    most = Math.max(most, waiting.push(n))
    if (waiting.length === 4) waiting.held?.()
    if (n === 0 && most < 4) await new Promise((resolve) => { waiting.held = resolve }) // until three others have come
    waiting.pop()
    if (n === 2) throw new WorkerError('two', { workerCode: 'two' })
    return n * 10
  })
  const pool = new Client(gateway.endpoint).pool('p')
  const progress = []
  const results = []
  for await (const result of pool.map('m', [1, 2, 3, 4], { concurrency: 1, onProgress: (done) => progress.push(done) })) results.push(result)
  assert.deepEqual(results.map(({ index, item, ok, value }) => [index, item, ok, value]), [[0, 1, true, 10], [1, 2, false, undefined], [2, 3, true, 30], [3, 4, true, 40]])
  assert.equal(results[1].error.workerCode, 'two')
  assert.deepEqual(progress, [1, 2, 3, 4])
  assert.equal(most, 1)
  for await (const result of pool.map('m', [1], {})) assert.ok(result.ok)
  await assert.rejects(async () => { for await (const _ of pool.map('m', [1], { concurrency: 0 })); }, code('invalid'))
})

test('map has as many calls open as it may behind a slow one, and ends with the error of onProgress', async (t) => {
  const gateway = await start(t, { size: 2 })
  let others = 0
  let enough
  gateway.on('p', 'm', async (n) => {
    if (n === 0) await new Promise((resolve) => { enough = resolve; setTimeout(resolve, 20_000).unref() })
    else if (++others === 4) enough()
    return others
  })
  const pool = new Client(gateway.endpoint).pool('p')
  const values = []
  for await (const { value } of pool.map('m', [0, 1, 2, 3, 4], { concurrency: 2 })) values.push(value)
  assert.equal(values[0], 4)
  const broken = () => { throw new Error('no progress') }
  await assert.rejects(async () => { for await (const _ of pool.map('m', [1, 2], { onProgress: broken })); }, /no progress/)
})

test('map yields what has ended while its source waits, and can be aborted then', { timeout: 30_000 }, async (t) => {
  const gateway = await start(t)
  gateway.on('p', 'm', (n) => n + 1)
  const pool = new Client(gateway.endpoint).pool('p')
  for (const ordered of [true, false]) {
    let answer
    const answered = new Promise((resolve) => { answer = resolve })
    const items = async function* () {
      yield 0
      yield await answered
      await new Promise(() => {})
    }
    const abort = new AbortController()
    const values = []
    await assert.rejects(async () => {
      for await (const { value } of pool.map('m', items(), { concurrency: 3, ordered, signal: abort.signal })) {
        if (values.push(value) === 1) answer(value)
        else setTimeout(() => abort.abort(new Error('enough')), 10)
      }
    }, /enough/)
    assert.deepEqual(values, [1, 2])
  }
})

test('fifty calls overlap, ten at a time, and one that leaves early cancels the rest', async (t) => {
  const gateway = await start(t, { size: 10 })
  let open = 0
  let most = 0
  const waiting = []
  gateway.on('p', 'm', async () => {
    most = Math.max(most, ++open)
    if (open < 10) await new Promise((resolve) => waiting.push(resolve))
    for (const wake of waiting.splice(0)) wake()
    open--
    return open
  })
  const pool = new Client(gateway.endpoint).pool('p')
  let seen = 0
  for await (const { ok } of pool.map('m', Array.from({ length: 50 }, (_, n) => n), { concurrency: 10, ordered: false })) seen += Number(ok)
  assert.deepEqual([seen, most], [50, 10])
  gateway.on('p', 'hang', () => new Promise(() => {}))
  gateway.on('p', 'first', 1)
  const items = (function* () { for (let n = 0; ; n++) yield n })()
  gateway.on('p', 'm', 1)
  for await (const { index } of pool.map('m', items, { concurrency: 3 })) if (index === 7) break
  assert.equal(items.next().done, true)
})

test('sessions', async (t) => {
  const gateway = await start(t)
  const { sessions } = new Client(gateway.endpoint).pool('p')
  await assert.rejects(sessions.get('ada'), code('session_not_found'))
  assert.equal((await sessions.put('ada', { data: { n: 1 }, create: true })).version, 1)
  await assert.rejects(sessions.put('ada', { create: true }), code('session_exists'))
  assert.deepEqual((await sessions.patch('ada', { data: { n: null, m: 2 } }, 1)).data, { m: 2 })
  await assert.rejects(sessions.patch('ada', { data: {} }, 1), code('version_conflict'))
  assert.ok((await sessions.new({ data: {} })).id)
  await sessions.delete('ada')
  await sessions.delete('ada')
})

test('a token goes over https and loopback; certificates are checked', async (t) => {
  const gateway = await start(t, { token: 'secret' })
  gateway.on('p', 'm', 1)
  await assert.rejects(new Client(gateway.endpoint).pool('p').call('m'), code('unauthorized', false))
  assert.equal(await new Client(gateway.endpoint, { token: 'secret' }).pool('p').call('m'), 1)
  const tls = new URL('../../python/tests/tls/', import.meta.url).pathname
  const pem = fs.readFileSync(`${tls}server.pem`)
  let token
  const authority = fs.readFileSync(`${tls}authority.pem`)
  const server = https.createServer({ cert: pem, key: pem, ca: authority, requestCert: true }, (request, response) => {
    token = request.headers.authorization
    response.end('1')
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => server.close())
  const endpoint = `https://127.0.0.1:${server.address().port}`
  process.env.TEMPOOL_CERT_FILE = `${tls}client.pem` // with its key
  t.after(() => delete process.env.TEMPOOL_CERT_FILE)
  assert.throws(() => new Client(endpoint, { keyFile: `${tls}client.pem` }), /without certFile/)
  const trusted = new Client(endpoint, { caFile: `${tls}authority.pem`, token: 'secret' })
  t.after(() => trusted.close())
  assert.equal(await trusted.pool('p').call('m'), 1)
  assert.equal(token, 'Bearer secret')
  await assert.rejects(new Client(endpoint, { retries: 0, token: 'secret' }).pool('p').call('m'), code('unavailable', false))
})

test('a Unix socket', async (t) => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tempool-'))
  const server = http.createServer((_, response) => response.end('1')).listen(path.join(folder, 'g.sock'))
  await once(server, 'listening')
  t.after(() => {
    server.closeAllConnections()
    server.close()
    fs.rmSync(folder, { recursive: true })
  })
  assert.equal(await new Client(`unix:${folder}/g.sock`).pool('p').call('m'), 1)
})

test('headers that are too large for the gateway are called so', async (t) => {
  const server = http.createServer((_, response) => response.writeHead(431).end('431 Request Header Fields Too Large')).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => {
    server.closeAllConnections()
    server.close()
  })
  await assert.rejects(new Client(`http://127.0.0.1:${server.address().port}`, { retries: 0 }).pool('p').call('m'), (error) =>
    error.code === 'payload_too_large' && !error.started && /line and headers are too large.*64 KiB/.test(error.message))
})

test('arguments of the client', () => {
  for (const endpoint of ['', 'ftp://a', 'http://u:p@a', 'http://a/b', 'unix:x', 'nonsense']) {
    assert.throws(() => new Client(endpoint ? endpoint : []), TypeError, endpoint)
  }
  assert.throws(() => new Client('http://a', { token: 'a', tokenFile: 'b' }), TypeError)
  assert.throws(() => new Client('http://a', { retries: -1 }), RangeError)
  assert.throws(() => new Client('http://a', { timeout: -1 }), TempoolError)
})
