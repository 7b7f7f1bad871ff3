// Test a worker's methods without a pool, and a client's program without workers:
//
//   import { TestWorker } from 'tempool/testing' // before the worker's module, whose run() then does nothing
//   import './worker.js'
//   assert.equal(await new TestWorker().call('square', { x: 12 }), 144)
//
//   const gateway = await FakeGateway.start()
//   gateway.on('hello', 'greet', 'first answer', crash(), ({ name }) => `Hello, ${name}!`)
//   const client = new Client(gateway.endpoint)

import { serveInProcess } from '../worker.js'

export { FakeGateway, crash } from './gateway.js'
export { MemorySessions } from './sessions.js'
export { TestWorker } from './worker.js'

serveInProcess()
