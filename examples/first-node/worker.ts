import { context, method, run } from 'tempool'
import { setTimeout as sleep } from 'node:timers/promises'

export const greet = method('greet', ({ name }: { name: string }) => `Hello, ${name}!`)
export const count = method('count', function* (n: number) { for (let i = 0; i < n; i++) yield i })
export const think = method('think', (ms: number) => sleep(ms, 'done', { signal: context().signal }))
run()
