// Make a Node.js program a worker of a Tempool pool:
//
//   import { method, run } from 'tempool'
//   method('square', ({ x }) => x * x)
//   run()

import { Worker, defaultWorker as worker } from './worker.js'

export { Context, context } from './context.js'
export { Cancelled, Conflict, Fatal, HostError, ProgramNotFound, SessionNotFound, TempoolError } from './errors.js'
export { Programs, Session } from './session.js'
export { Worker }

export const method = worker.method.bind(worker)
export const onStart = worker.onStart.bind(worker)
export const onStop = worker.onStop.bind(worker)
export const onSessionRelease = worker.onSessionRelease.bind(worker)
export const onSessionLoad = worker.onSessionLoad.bind(worker)
export const onLeaseReset = worker.onLeaseReset.bind(worker)
export const onSuspend = worker.onSuspend.bind(worker)
export const onResume = worker.onResume.bind(worker)
export const onHealth = worker.onHealth.bind(worker)
export const unhealthy = worker.unhealthy.bind(worker)
export const run = worker.run.bind(worker)
