// A session store in memory, for tests: what hosts and gateways do with sessions, without expiry.

import { TempoolError } from '../client/errors.js'

export class MemorySessions {
  #sessions = new Map()

  /** Returns the session, or undefined. */
  get(id) {
    return structuredClone(this.#sessions.get(id))
  }

  /** Stores a session with this content, and returns it. Throws version_conflict if it has another version than the given one. */
  put(id, { data = {}, programs = {}, metadata = {}, ttl = '1h' } = {}, version) {
    const old = this.#sessions.get(id)
    if (version !== undefined && old?.version !== version) throw conflict(id, old, version)
    const now = new Date().toISOString()
    const created = old?.created_at ?? now
    this.#sessions.set(id, structuredClone({ id, data, programs, metadata, ttl, version: (old?.version ?? 0) + 1, created_at: created, last_accessed: now }))
    return this.get(id)
  }

  /** Applies a merge patch, and returns the session. Throws session_not_found, version_conflict. */
  patch(id, patch, version) {
    const old = this.#sessions.get(id)
    if (!old) throw new TempoolError(`session ${id} does not exist`, { code: 'session_not_found' })
    return this.put(id, { ...old, ...contentOf(merge(old, patch)) }, version)
  }

  /** Returns whether there was one. */
  delete(id) {
    return this.#sessions.delete(id)
  }

  /** Serves a host call of a call with this session. */
  hostCall(id, method, params = {}) {
    if (method === 'session.delete') return void this.delete(id)
    const { version } = params
    if (!this.#sessions.has(id) && version === undefined && !/^programs\.(get|delete)$/.test(method)) this.put(id)
    switch (method) {
      case 'session.get':
      case 'session.touch':
        return this.get(id)
      case 'session.update':
        return this.patch(id, params.patch, version)
      case 'programs.put':
        return void this.put(id, { ...this.get(id), programs: { ...this.get(id).programs, [params.id]: params.program } })
      case 'programs.delete':
        return this.#sessions.has(id) ? void this.patch(id, { programs: { [params.id]: null } }) : undefined
      case 'programs.get': {
        const programs = this.get(id)?.programs ?? {}
        if (!Object.hasOwn(programs, params.id)) throw new TempoolError(`session ${id} has no program ${params.id}`, { code: 'program_not_found' })
        return programs[params.id]
      }
      default:
        throw new TempoolError(`the host has no method ${method}`, { code: 'unsupported' })
    }
  }
}

function contentOf({ data, programs, metadata, ttl }) {
  return { data: data ?? {}, programs: programs ?? {}, metadata: metadata ?? {}, ttl: ttl ?? '1h' }
}

function conflict(id, old, version) {
  return new TempoolError(`session ${id} has version ${old?.version ?? 0}, not ${version}`, { code: 'version_conflict' })
}

/** RFC 7396. */
function merge(target, patch) {
  if (patch === null || typeof patch !== 'object' || Array.isArray(patch)) return patch
  const merged = target !== null && typeof target === 'object' && !Array.isArray(target) ? { ...target } : {}
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete merged[key]
    else merged[key] = merge(merged[key], value)
  }
  return merged
}
