// Encodes and decodes the frames of the wire protocol (docs/protocol.md; examples in sdk/vectors).

import { ProtocolError } from './errors.js'

export const HELLO = 1
export const REQUEST = 2
export const NOTIFY = 3
export const CHUNK = 4
export const RESPONSE = 6
export const ERROR = 7
export const CANCEL = 8
export const PING = 9
export const PONG = 10
export const HOST_CALL = 11
export const HOST_RESULT = 12
export const HOST_ERROR = 13

export const HEAD = 16 // bytes: length 4, type 1, flags 1, method's length 2, id 4, headers' length 4
export const FIXED = 12 // bytes of the head that are included in length
export const MAX_METHOD = 1024
export const MAX_HEADERS = 64 * 1024
export const MAX_CONTROL = 64 * 1024 // limit of a hello or error payload, even if max_message is lower
export const MAX_MESSAGE = 64 * 1024 * 1024 // until the host's hello says otherwise
export const PROTOCOL = 1

const withMethod = new Set([REQUEST, NOTIFY, HOST_CALL])
const withoutId = new Set([HELLO, NOTIFY])
const control = new Set([HELLO, ERROR, HOST_ERROR])
const empty = Buffer.alloc(0)
const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/** Returns one frame as a Buffer. headers is an encoded block, see encodeHeaders; payload a Buffer or a string. */
export function encode(type, { id = 0, method = '', headers = empty, payload = empty } = {}) {
  const name = Buffer.byteLength(method)
  const size = typeof payload === 'string' ? Buffer.byteLength(payload) : payload.length
  const frame = Buffer.allocUnsafe(HEAD + name + headers.length + size)
  frame.writeUInt32BE(FIXED + name + headers.length + size, 0)
  frame[4] = type
  frame[5] = 0
  frame.writeUInt16BE(name, 6)
  frame.writeUInt32BE(id, 8)
  frame.writeUInt32BE(headers.length, 12)
  frame.write(method, HEAD, 'utf8')
  frame.set(headers, HEAD + name)
  if (typeof payload === 'string') frame.write(payload, HEAD + name + headers.length, 'utf8')
  else frame.set(payload, HEAD + name + headers.length)
  return frame
}

/**
 * Returns the frame at offset of data as {type, flags, id, method, headers, payload, size}; method and headers are decoded, payload is a
 * view. Returns null if the frame is incomplete; throws ProtocolError if it is invalid.
 */
export function decode(data, offset = 0, maxMessage = MAX_MESSAGE) {
  if (data.length - offset < HEAD) return null
  const length = data.readUInt32BE(offset)
  const type = data[offset + 4]
  const flags = data[offset + 5]
  const name = data.readUInt16BE(offset + 6)
  const id = data.readUInt32BE(offset + 8)
  const block = data.readUInt32BE(offset + 12)
  check(length, type, flags, name, id, block, maxMessage)
  const end = offset + 4 + length
  if (data.length < end) return null
  const start = offset + HEAD + name
  return {
    type,
    flags,
    id,
    method: name ? text(data.subarray(offset + HEAD, start), 'method is not valid UTF-8') : '',
    headers: block ? decodeHeaders(data.subarray(start, start + block)) : {},
    payload: data.subarray(start + block, end),
    size: 4 + length,
  }
}

function check(length, type, flags, name, id, block, maxMessage) {
  if (type < HELLO || type > HOST_ERROR) throw new ProtocolError(`unknown frame type ${type}`)
  if (flags) throw new ProtocolError(`invalid flags ${flags} in a frame of type ${type}`)
  if ((id !== 0) === withoutId.has(type)) throw new ProtocolError(`invalid id ${id} in a frame of type ${type}`)
  if ((name !== 0) !== withMethod.has(type)) throw new ProtocolError(`invalid method length ${name} in a frame of type ${type}`)
  if (name > MAX_METHOD) throw new ProtocolError(`method of ${name} bytes exceeds the limit of ${MAX_METHOD}`)
  if (block > MAX_HEADERS) throw new ProtocolError(`headers of ${block} bytes exceed the limit of ${MAX_HEADERS}`)
  const payload = length - FIXED - name - block
  if (payload < 0) throw new ProtocolError(`frame length ${length} is shorter than its method and headers`)
  if (payload > maxMessage && (payload > MAX_CONTROL || !control.has(type))) {
    throw new ProtocolError(`payload of ${payload} bytes exceeds the limit of ${maxMessage}`)
  }
}

function text(bytes, message) {
  try {
    return utf8.decode(bytes)
  } catch {
    throw new ProtocolError(message)
  }
}

/** Encodes an object of strings as a header block. Throws RangeError if a part is too long or a key is empty. */
export function encodeHeaders(headers) {
  const parts = []
  for (const [key, value] of Object.entries(headers)) {
    const k = Buffer.from(key)
    const v = Buffer.from(value)
    if (!k.length || k.length > 0xffff || v.length > 0xffff) {
      throw new RangeError(`header ${key.slice(0, 40)}: a key must have 1 to 65535 bytes, a value at most 65535`)
    }
    const sizes = Buffer.allocUnsafe(4)
    sizes.writeUInt16BE(k.length, 0)
    sizes.writeUInt16BE(v.length, 2)
    parts.push(sizes, k, v)
  }
  const block = Buffer.concat(parts)
  if (block.length > MAX_HEADERS) throw new RangeError(`headers of ${block.length} bytes, the limit is ${MAX_HEADERS}`)
  return block
}

/** A header block as an object of strings. */
export function decodeHeaders(block) {
  const headers = new Map()
  for (let at = 0; at < block.length; ) {
    if (block.length - at < 4) throw new ProtocolError('truncated header lengths')
    const k = block.readUInt16BE(at)
    const v = block.readUInt16BE(at + 2)
    at += 4
    if (block.length - at < k + v) throw new ProtocolError('header exceeds its block')
    if (!k) throw new ProtocolError('empty header key')
    const key = text(block.subarray(at, at + k), 'header is not valid UTF-8')
    if (headers.has(key)) throw new ProtocolError(`duplicate header ${key.slice(0, 40)}`)
    headers.set(key, text(block.subarray(at + k, at + k + v), 'header is not valid UTF-8'))
    at += k + v
  }
  return Object.fromEntries(headers)
}
