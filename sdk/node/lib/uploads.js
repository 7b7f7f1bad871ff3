// Request bodies that come in pieces: a REQUEST with the flag MORE, CHUNKs, END.

import { ProtocolError } from './errors.js'

export class Uploads {
  #open = new Map() // id → {frame, pieces, size}; null once refused, until END

  begin(frame) {
    if (this.#open.has(frame.id)) throw new ProtocolError(`request ${frame.id} begins twice`)
    this.#open.set(frame.id, { frame, pieces: [frame.payload], size: frame.payload.length })
  }

  /** Takes a piece in; true when the body has just become too large, and is refused. */
  add(id, payload, maxMessage) {
    const upload = this.#open.get(id)
    if (!upload) return false // the rest of a request that was refused or cancelled
    upload.pieces.push(payload)
    upload.size += payload.length
    if (upload.size <= maxMessage) return false
    this.#open.set(id, null)
    return true
  }

  /** The whole request as one frame; null when it was refused or cancelled. */
  end(id) {
    const upload = this.#open.get(id)
    this.#open.delete(id)
    return upload ? { ...upload.frame, flags: 0, payload: Buffer.concat(upload.pieces, upload.size) } : null
  }

  /** Forgets a request that was cancelled; tells whether its answer was still due. */
  drop(id) {
    const due = Boolean(this.#open.get(id))
    this.#open.delete(id)
    return due
  }
}
