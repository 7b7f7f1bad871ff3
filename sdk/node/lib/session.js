// The session of a call and its programs, in the host's session store: every worker of the pool sees the same.

import { Conflict } from './errors.js'

const attempts = 16 // of a change that conflicts with others

/**
 * A map in a session: data or metadata. Values are anything JSON can represent. Nothing is cached: each access is a host call. set, delete
 * and update are atomic; for a change that depends on the current value, such as counting, use change.
 */
export class Entries {
  #host
  #part

  constructor(host, part) {
    this.#host = host
    this.#part = part
  }

  /** Returns a copy as an object. */
  async all() {
    return (await this.#host('session.get'))[this.#part]
  }

  /** Returns the value of a key, or undefined. */
  async get(key) {
    const all = await this.all()
    return Object.hasOwn(all, key) ? all[key] : undefined
  }

  async has(key) {
    return Object.hasOwn(await this.all(), key)
  }

  async keys() {
    return Object.keys(await this.all())
  }

  async entries() {
    return Object.entries(await this.all())
  }

  /** Sets a key; null or undefined removes it. */
  async set(key, value) {
    checkKey(key)
    value = plain(value)
    // A patch would merge the two objects.
    if (isObject(value)) await this.change(key, () => value)
    else await this.#patch({ [key]: value })
  }

  /** Removes a key if it exists. */
  async delete(key) {
    checkKey(key)
    await this.#patch({ [key]: null })
  }

  /** Removes every key. */
  async clear() {
    await this.#patch(null)
  }

  /** Applies an object as a JSON merge patch (RFC 7396), atomically: null removes a key, and objects are merged. */
  async update(patch) {
    await this.#patch(patch)
  }

  /**
   * Sets a key to fn(current value or undefined), atomically, and resolves to the result: change('visits', (n = 0) => n + 1). fn may be
   * async. If another call changed the session first, fn runs again; after 16 attempts, change rejects with Conflict.
   */
  async change(key, fn) {
    checkKey(key)
    for (let attempt = 1; ; attempt++) {
      const session = await this.#host('session.get')
      const part = session[this.#part]
      const old = Object.hasOwn(part, key) ? part[key] : undefined
      const next = plain(await fn(structuredClone(old)))
      checkStorable(next)
      if (next === old || (next === null && old === undefined)) return next ?? undefined
      try {
        await this.#patch({ [key]: difference(old, next) }, session.version)
        return next ?? undefined
      } catch (error) {
        if (!(error instanceof Conflict) || attempt === attempts) throw error
        // A random backoff separates concurrent changes of one session.
        await new Promise((resolve) => setTimeout(resolve, Math.min(2 ** (attempt - 1), 100) * Math.random()))
      }
    }
  }

  #patch(patch, version) {
    return this.#host('session.update', { patch: { [this.#part]: patch }, version })
  }
}

/**
 * The session of a call: its data by key, with metadata, version and more. The first use creates the session. Host calls that fail reject
 * with HostError or a subclass.
 */
export class Session extends Entries {
  #host

  constructor(host) {
    super(host, 'data')
    this.#host = host
    /** the metadata, by key like the data */
    this.metadata = new Entries(host, 'metadata')
  }

  /** Resolves to the session: id, data, programs, metadata, version, created_at, last_accessed and ttl. */
  load() {
    return this.#host('session.get')
  }

  /**
   * Applies a JSON merge patch (RFC 7396) to data, metadata, programs and ttl atomically, and resolves to the new session. With version,
   * rejects with Conflict if the session has another version.
   */
  patch(patch, version) {
    return this.#host('session.update', { patch, version })
  }

  /** Extends the session's ttl, and resolves to the session. */
  touch() {
    return this.#host('session.touch')
  }

  /** Deletes the session. The next use creates a new one with the same id. */
  async end() {
    await this.#host('session.delete')
  }
}

/** Programs of the call's session: anything JSON can represent, shared by all workers of the pool. */
export class Programs {
  #host

  constructor(host) {
    this.#host = host
  }

  /** Stores a program under id and replaces an existing one. */
  async put(id, program) {
    await this.#host('programs.put', { id, program })
  }

  /** Resolves to the program; rejects with ProgramNotFound if there is none with this id. */
  get(id) {
    return this.#host('programs.get', { id })
  }

  /** Deletes the program if it exists. */
  async delete(id) {
    await this.#host('programs.delete', { id })
  }
}

function checkKey(key) {
  if (typeof key !== 'string') throw new TypeError(`session keys must be strings, not ${typeof key}`)
}

/** Returns the value as JSON represents it; null if it cannot. */
function plain(value) {
  const text = JSON.stringify(value)
  return text === undefined ? null : JSON.parse(text)
}

function isObject(value) {
  return value !== null && typeof value === 'object' && !Array.isArray(value)
}

/** Throws for a null in an object: in a merge patch, null removes a key. */
function checkStorable(value) {
  if (!isObject(value)) return
  for (const [key, member] of Object.entries(value)) {
    if (member === null) throw new TypeError(`a session cannot store null in an object (key ${key}): omit the key, or put the null in an array`)
    checkStorable(member)
  }
}

/** Returns the merge patch from old to next. */
function difference(old, next) {
  if (!isObject(next) || !isObject(old)) return next
  const patch = Object.create(null) // so that "__proto__" is a key like any other
  for (const key of Object.keys(old)) if (!Object.hasOwn(next, key)) patch[key] = null
  for (const [key, value] of Object.entries(next)) {
    const before = Object.hasOwn(old, key) ? old[key] : undefined
    if (value !== before) patch[key] = difference(before, value)
  }
  return patch
}
