// Sessions: client state between calls.

import { decode, segment } from './calls.js'

/**
 * The session store behind the gateways. A session is an object: id, data, programs, metadata, version, created_at, last_accessed and ttl (such as
 * "1h"). client.sessions uses the store that the pools of a host share, pool.sessions the store of that pool. With version, a change rejects with
 * version_conflict if the session has another version.
 */
export class Sessions {
  #client
  #query

  constructor(client, pool) {
    this.#client = client
    this.#query = pool === undefined ? '' : `?pool=${segment(pool, 'a pool name')}`
  }

  /** Resolves to the session and extends its ttl. Rejects with session_not_found. */
  get(id) {
    return this.#request('GET', id)
  }

  /** Creates an anonymous session, whose id the gateway chooses, and resolves to it. */
  new(content = {}) {
    return this.#request('POST', undefined, content)
  }

  /** Creates a session, or replaces its content (data, programs, metadata, ttl), and resolves to it. With create, rejects with session_exists. */
  put(id, { version, create = false, ...content } = {}) {
    return this.#request('PUT', id, content, version, create)
  }

  /** Applies a JSON merge patch (RFC 7396) atomically, such as {data: {key: 'value'}}, and resolves to the new session. */
  patch(id, patch, version) {
    return this.#request('PATCH', id, patch, version)
  }

  /** Deletes a session if it exists. */
  async delete(id) {
    await this.#request('DELETE', id).catch((error) => {
      if (error.code !== 'session_not_found') throw error
    })
  }

  async #request(method, id, body, version, create = false) {
    const headers = body === undefined ? {} : { 'Content-Type': method === 'PATCH' ? 'application/merge-patch+json' : 'application/json' }
    if (version !== undefined) headers['If-Match'] = `"${version}"`
    if (create) headers['If-None-Match'] = '*'
    const path = `/v1/sessions${id === undefined ? '' : `/${segment(id, 'a session id')}`}${this.#query}`
    const idempotent = ['GET', 'DELETE'].includes(method) || (method === 'PUT' && version === undefined && !create)
    const reply = await this.#client.balancer.request({
      method, path, headers, body: body === undefined ? '' : JSON.stringify(body), deadline: this.#client.deadline(), idempotent,
    })
    return decode(await reply.read())
  }
}
