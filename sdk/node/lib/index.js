// Make a Node.js program a worker of a Tempool pool:
//
//   import { method, run } from 'tempool'
//   method('square', ({ x }) => x * x)
//   run()

import { Worker } from './worker.js'

export { Context, Session, context } from './context.js'
export { Cancelled, Fatal, HostError, TempoolError } from './errors.js'
export { Worker }

const worker = new Worker()
export const method = worker.method.bind(worker)
export const onStart = worker.onStart.bind(worker)
export const onStop = worker.onStop.bind(worker)
export const run = worker.run.bind(worker)
