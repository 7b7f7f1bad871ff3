// Assembles request bodies that arrive in pieces: a REQUEST with the flag MORE, CHUNKs, END.

import { ProtocolError } from './errors.js'

export class Uploads {
  #open = new Map() // id → {frame, pieces, size}; null after a refusal, until END

  begin(frame) {
    if (this.#open.has(frame.id)) throw new ProtocolError(`request ${frame.id} started twice`)
    this.#open.set(frame.id, { frame, pieces: [frame.payload], size: frame.payload.length })
  }

  /** Adds a piece. Returns true when the body exceeds maxMessage and is refused. */
  add(id, payload, maxMessage) {
    const upload = this.#open.get(id)
    if (!upload) return false // the rest of a refused or cancelled request
    upload.pieces.push(payload)
    upload.size += payload.length
    if (upload.size <= maxMessage) return false
    this.#open.set(id, null)
    return true
  }

  /** Returns the complete request as one frame; null if it was refused or cancelled. */
  end(id) {
    const upload = this.#open.get(id)
    this.#open.delete(id)
    return upload ? { ...upload.frame, flags: 0, payload: Buffer.concat(upload.pieces, upload.size) } : null
  }

  /** Drops a cancelled request. Returns whether it still needs a response. */
  drop(id) {
    const unanswered = Boolean(this.#open.get(id))
    this.#open.delete(id)
    return unanswered
  }
}
