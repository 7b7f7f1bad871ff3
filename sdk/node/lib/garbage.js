// Frees memory when the host asks for it.

const METHOD = 'tempool.gc' // a notification; a method of this name in the program replaces it

/** Runs the garbage collector if name is METHOD and node runs with --expose-gc. Returns whether name is METHOD. */
export function collected(name) {
  if (name !== METHOD) return false
  globalThis.gc?.()
  return true
}
