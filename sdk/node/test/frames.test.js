import assert from 'node:assert/strict'
import fs from 'node:fs'
import { test } from 'node:test'
import { ProtocolError } from '../lib/errors.js'
import * as frames from '../lib/frames.js'

const vectors = (name) => JSON.parse(fs.readFileSync(new URL(`../../vectors/${name}`, import.meta.url), 'utf8'))

test('good vectors decode and encode', () => {
  const all = vectors('frames.json')
  assert.ok(all.length)
  for (const v of all) {
    const raw = Buffer.from(v.hex, 'hex')
    const { size, payload, ...frame } = frames.decode(raw, 0, v.max_message)
    assert.deepEqual(frame, { type: v.type, flags: v.flags, id: v.id, method: v.method, headers: v.headers }, v.name)
    assert.equal(payload.toString('hex'), v.payload, v.name)
    assert.equal(size, raw.length, v.name)
    const again = frames.encode(v.type, { ...frame, payload, headers: frames.encodeHeaders(frame.headers) })
    assert.equal(again.toString('hex'), v.hex, v.name)
    assert.equal(frames.decode(raw.subarray(0, -1), 0, v.max_message), null, 'not yet whole')
  }
})

test('malformed vectors are rejected with a reason', () => {
  const all = vectors('malformed.json')
  assert.ok(all.length)
  for (const v of all) {
    const decode = () => frames.decode(Buffer.from(v.hex, 'hex'), 0, v.max_message)
    // A stream that continues could still complete a frame that is cut off, so that is not an error here but "not yet".
    if (v.reason === 'cut off') assert.equal(decode(), null, v.name)
    else assert.throws(decode, (e) => e instanceof ProtocolError && e.message.includes(v.reason), v.name)
  }
})

test('invalid headers are not encoded', () => {
  for (const headers of [{ '': 'v' }, { k: 'v'.repeat(65536) }, { a: 'v'.repeat(40000), b: 'v'.repeat(40000) }]) {
    assert.throws(() => frames.encodeHeaders(headers), RangeError)
  }
})
