// Many calls of one method, a bounded number at a time.

import { setMaxListeners } from 'node:events'

const window = 4 // how many times the concurrency may have ended and wait for their turn

/**
 * Yields {index, item, ok: true, value} or {index, item, ok: false, error} for each item; in the order of the items if ordered, else as calls end.
 * call(item, signal) makes one call. A consumer that leaves early cancels the calls in flight.
 */
export async function* mapCalls(call, items, { concurrency, ordered, onProgress, signal }) {
  const source = items[Symbol.asyncIterator]?.() ?? items[Symbol.iterator]()
  const cancel = new AbortController()
  setMaxListeners(0, cancel.signal) // each call in flight listens
  let wake = () => {} // the loop
  const abort = () => {
    cancel.abort(signal.reason)
    wake()
  }
  if (signal?.aborted) abort()
  signal?.addEventListener('abort', abort, { once: true })
  const running = new Set()
  const finished = new Map() // index → result
  let failure // of onProgress or the source
  const start = async (index, item) => {
    let result
    try {
      result = { index, item, ok: true, value: await call(item, cancel.signal) }
    } catch (error) {
      result = { index, item, ok: false, error }
    }
    finished.set(index, result)
  }
  let taken = 0
  let yielded = 0
  let done = 0
  let asking = false // the source, which may take its time
  let exhausted = false
  const fill = async () => { // starts calls while there are items and room
    asking = true
    try {
      while (running.size < concurrency && taken - yielded < window * concurrency) {
        const next = await source.next()
        exhausted = Boolean(next.done)
        if (exhausted || cancel.signal.aborted) break
        const one = start(taken++, next.value).then(() => {
          running.delete(one)
          try {
            onProgress?.(++done)
          } catch (error) {
            failure ??= { error }
          }
          wake()
        })
        running.add(one)
      }
    } catch (error) {
      failure ??= { error }
    }
    asking = false
    wake()
  }
  try {
    for (;;) {
      signal?.throwIfAborted()
      if (failure) throw failure.error
      if (!asking && !exhausted) fill()
      const index = ordered ? yielded : finished.keys().next().value
      const result = finished.get(index)
      if (result) {
        finished.delete(index)
        yielded++
        yield result
      } else if (running.size || asking) {
        await new Promise((resolve) => { wake = resolve })
      } else {
        return
      }
    }
  } finally {
    signal?.removeEventListener('abort', abort)
    cancel.abort()
    const returned = source.return?.()
    if (asking) Promise.resolve(returned).catch(() => {}) // it may wait for what the source was asked for
    else await returned
    await Promise.all(running)
  }
}
