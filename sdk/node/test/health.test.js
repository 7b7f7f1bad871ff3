import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Worker } from '../lib/index.js'
import * as frames from '../lib/frames.js'
import { start } from './host.js'

const ping = 0x40000001
const json = (frame) => JSON.parse(frame.payload.toString())

test('a ping fails with what a hook throws', async (t) => {
  const host = await start(t, `
    let well = false
    tempool.onHealth(() => {})
    tempool.onHealth(async () => { if (!well) throw new RangeError('the GPU is gone') })
    method('recover', () => { well = true }); run()`)
  host.send(frames.PING, { id: ping })
  const failure = json(await host.expect(frames.ERROR, ping))
  assert.deepEqual([failure.type, failure.message], ['RangeError', 'the GPU is gone'])
  await host.call('recover')
  host.send(frames.PING, { id: ping + 1 })
  await host.expect(frames.PONG, ping + 1)
})

test('other calls continue beside a slow hook', async (t) => {
  const host = await start(t, `
    let go
    const gone = new Promise((resolve) => { go = resolve })
    tempool.onHealth(() => gone); method('end', () => go()); run()`)
  host.send(frames.PING, { id: ping })
  const call = host.request('end')
  const answers = [await host.read(), await host.read()]
  assert.deepEqual(answers.map(({ type, id }) => [type, id]).sort(), [[frames.PONG, ping], [frames.RESPONSE, call]].sort())
})

test('a worker reports itself unhealthy at once', async (t) => {
  const host = await start(t, `method('report', (reason) => tempool.unhealthy(reason)); run()`)
  for (const [reason, reported] of [['the GPU is gone', 'the GPU is gone'], ['x'.repeat(5000), 'x'.repeat(1000)], [{}, '[object Object]']]) {
    const call = host.request('report', JSON.stringify([reason]))
    const note = await host.expect(frames.NOTIFY, 0)
    assert.equal(note.method, 'worker.unhealthy')
    assert.deepEqual(json(note), { reason: reported })
    await host.expect(frames.RESPONSE, call)
  }
})

test('a report before the hello is refused', () => {
  assert.throws(() => new Worker().unhealthy('no'), /after run\(\)/)
})
