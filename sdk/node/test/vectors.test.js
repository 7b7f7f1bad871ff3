// The client against sdk/vectors/client.json: a server that answers what a vector says.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import fs from 'node:fs'
import http from 'node:http'
import test from 'node:test'
import { Client, TempoolError } from '../lib/client/index.js'

const vectors = JSON.parse(fs.readFileSync(new URL('../../vectors/client.json', import.meta.url)))

async function serve(t, answers) {
  const asked = []
  const server = http.createServer((request, response) => {
    request.resume()
    request.on('end', async () => {
      const { status, headers = {}, body, pieces, pieces_hex: hex, cut } = answers[asked.length] ?? { status: 500, body: 'one request too many' }
      asked.push(request)
      const utf8 = Object.entries(headers).map(([name, value]) => [name, Buffer.from(value).toString('latin1')])
      response.writeHead(status, { 'Tempool-Worker': 'p/0', 'Tempool-Incarnation': '3', ...Object.fromEntries(utf8) })
      if (body !== undefined) {
        response.end(body)
        return
      }
      for (const piece of pieces ?? hex.map((text) => Buffer.from(text, 'hex'))) {
        await new Promise((resolve) => response.write(piece, resolve))
      }
      if (cut) response.destroy()
      else response.end()
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => {
    server.closeAllConnections()
    server.close()
  })
  return { endpoint: `http://127.0.0.1:${server.address().port}`, asked }
}

const actions = {
  call: async (pool) => ({ gives: (await pool.call('square', { x: 12 })) ?? null }),
  async exchange(pool, _, { header }) {
    const answer = await pool.exchange('square', '', { headers: { 'X-Name': header } })
    return { gives: answer.headers['x-name'] }
  },
  async stream(pool, gives) {
    for await (const value of pool.stream('count')) gives.push(value)
    return { gives }
  },
  async lease(pool, _, { granted_ms: granted, renewed_ms: renewed }) {
    const lease = await pool.lease()
    near(lease.remaining, granted)
    await lease.renew()
    near(lease.remaining, renewed)
    return {}
  },
}

function near(got, want) {
  assert.ok(got <= want && got > want - 60_000, `${got} ms remain of ${want}`)
}

assert.ok(vectors.length > 20)
for (const vector of vectors) {
  test(vector.name, async (t) => {
    const { endpoint, asked } = await serve(t, vector.answers)
    const client = new Client(endpoint, { timeout: 120_000 })
    t.after(() => client.close())
    const got = []
    let failure
    let result
    try {
      result = await actions[vector.do](client.pool('p'), got, vector)
    } catch (error) {
      failure = error
    }
    assert.equal(asked.length, vector.requests)
    assert.equal(Buffer.from(asked[0].headers['x-name'] ?? '', 'latin1').toString(), vector.header ?? '')
    if (!vector.fails) {
      assert.equal(failure, undefined)
      assert.deepEqual(result.gives, vector.gives)
      return
    }
    assert.ok(failure instanceof TempoolError, String(failure?.stack))
    if (vector.gives) assert.deepEqual(got, vector.gives)
    const { retry_after_ms: retryAfter, worker_code: workerCode, ...same } = vector.fails
    for (const [name, want] of Object.entries({ ...same, retryAfter, workerCode: workerCode ?? undefined })) {
      if (want !== undefined) assert.deepEqual(failure[name], want, name)
    }
  })
}
