// What every worker does when its host is short of memory and says so.

const METHOD = 'tempool.gc' // a notification; a method of this name that the program defines is called instead

/** Collects garbage if the notification asks for that, and says whether it does. Without node's --expose-gc there is nothing to call. */
export function collected(name) {
  if (name !== METHOD) return false
  globalThis.gc?.()
  return true
}
