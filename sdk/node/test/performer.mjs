// A worker whose method perform does what a vector of sdk/vectors/hostcalls.json says.

import { context, method, run } from '../lib/index.js'

method('perform', (what, ...args) => {
  const { session, programs } = context()
  const [part, verb] = what.split('.')
  if (part === 'programs') return programs[verb](...args)
  const entries = { data: session, metadata: session.metadata }[part]
  if (!entries) return session[what](...args)
  if (verb === 'increment') return entries.change(args[0], (n = 0) => n + 1)
  return entries[verb](...args)
})
run()
