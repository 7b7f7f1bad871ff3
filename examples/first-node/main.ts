import { Client } from 'tempool/client'
import type * as Worker from './worker.js'

const pool = new Client().pool<typeof Worker>('first-node')
console.log(await pool.call('greet', { name: 'Ada' }))
for await (const n of pool.stream('count', 3)) console.log(n)

const abort = AbortSignal.timeout(100)
await pool.call('think', 60_000, { signal: abort }).catch((error) => console.log('aborted:', error.name))

for await (const result of pool.map('greet', [{ name: 'Bob' }, { name: 'Eve' }])) console.log(result.ok ? result.value : result.error)

{
  await using lease = await pool.lease() // one process for several calls
  console.log(await lease.call('greet', { name: 'again' }), lease.worker === (await lease.exchange('count', '0')).worker)
}
