// The session of a call, and the programs in it: kept by the host, so that every worker of the pool sees the same.

import { Conflict } from './errors.js'

const attempts = 16 // of a change that others keep getting in the way of

/**
 * One part of a session, by key; values are what JSON can hold. Nothing is kept here: each access asks the host. set, delete and update
 * are atomic; for a change that depends on what is there, such as counting, use change.
 */
export class Entries {
  #host
  #part

  constructor(host, part) {
    this.#host = host
    this.#part = part
  }

  /** All of it, as an object of your own. */
  async all() {
    return (await this.#host('session.get'))[this.#part]
  }

  /** What key is set to; undefined if it is not. */
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

  /** Sets key to value, whatever it was before; null or undefined removes it. */
  async set(key, value) {
    checkKey(key)
    value = plain(value)
    // A patch would merge an object into the one that is there.
    if (isObject(value)) await this.change(key, () => value)
    else await this.#patch({ [key]: value })
  }

  /** Removes key; nothing happens if it is not there. */
  async delete(key) {
    checkKey(key)
    await this.#patch({ [key]: null })
  }

  /** Removes every key. */
  async clear() {
    await this.#patch(null)
  }

  /** Merges an object into what is there, as a JSON merge patch (RFC 7396), at once: null removes a key, and an object is merged into the one that is there. */
  async update(patch) {
    await this.#patch(patch)
  }

  /**
   * Sets key to fn(what it was set to, or undefined), atomically, and resolves to that: change('visits', (n = 0) => n + 1). fn may be
   * async. It runs again when another call has changed the session meanwhile; after many times, change rejects with Conflict.
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
        // Those who change one session at once must not stay in step.
        await new Promise((resolve) => setTimeout(resolve, Math.min(2 ** (attempt - 1), 100) * Math.random()))
      }
    }
  }

  #patch(patch, version) {
    return this.#host('session.update', { patch: { [this.#part]: patch }, version })
  }
}

/**
 * The session of a call: its data by key, and what else belongs to it. It begins with its first use. What asks the host rejects with
 * HostError, or one of its kinds, when the host refuses.
 */
export class Session extends Entries {
  #host

  constructor(host) {
    super(host, 'data')
    this.#host = host
    /** its metadata, by key like its data */
    this.metadata = new Entries(host, 'metadata')
  }

  /** The whole session: id, data, programs, metadata, version, created_at, last_accessed and ttl. */
  load() {
    return this.#host('session.get')
  }

  /**
   * Applies a JSON merge patch (RFC 7396) to data, metadata, programs and ttl at once, and resolves to the new session. With version, only
   * if the session has that version still: rejects with Conflict if not.
   */
  patch(patch, version) {
    return this.#host('session.update', { patch, version })
  }

  /** Extends its life, and resolves to it. */
  touch() {
    return this.#host('session.touch')
  }

  /** Ends it. One with the same id begins with the next use. */
  async end() {
    await this.#host('session.delete')
  }
}

/** Programs of the call's session: anything JSON can hold, put by one worker and got by any other. */
export class Programs {
  #host

  constructor(host) {
    this.#host = host
  }

  /** Keeps a program under id, in place of the one before. */
  async put(id, program) {
    await this.#host('programs.put', { id, program })
  }

  /** The program; rejects with ProgramNotFound if the session has none of this id. */
  get(id) {
    return this.#host('programs.get', { id })
  }

  /** Forgets the program; nothing happens if there is none. */
  async delete(id) {
    await this.#host('programs.delete', { id })
  }
}

function checkKey(key) {
  if (typeof key !== 'string') throw new TypeError(`a session's keys are strings, not ${typeof key}`)
}

/** value as JSON will hold it; null for what it does not. */
function plain(value) {
  const text = JSON.stringify(value)
  return text === undefined ? null : JSON.parse(text)
}

function isObject(value) {
  return value !== null && typeof value === 'object' && !Array.isArray(value)
}

/** Refuses what a merge patch cannot set: null inside of an object means to remove. */
function checkStorable(value) {
  if (!isObject(value)) return
  for (const [key, member] of Object.entries(value)) {
    if (member === null) throw new TypeError(`a session cannot keep null in an object (at ${key}): leave the key out, or put the null into an array`)
    checkStorable(member)
  }
}

/** The merge patch that makes next of old. */
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
