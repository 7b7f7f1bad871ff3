// The host's side of the protocol, driven by a test: starts a worker program and talks frames with it.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import assert from 'node:assert/strict'
import * as frames from '../lib/frames.js'

const entry = new URL('../lib/index.js', import.meta.url).href
const head = `import * as tempool from '${entry}'\nconst { method, context, run } = tempool\n`
const waitTimeout = 120_000 // ms any single step may take on a slow machine

/** Starts program (a module's text) and returns once it is ready; closed when the test ends. */
export async function start(t, program, { maxMessage = 1 << 20, env = {}, hello = true } = {}) {
  const host = new Host(program, env)
  t.after(() => host.close())
  if (hello) {
    host.send(frames.HELLO, { payload: JSON.stringify({ protocol: 1, max_message: maxMessage, max_inflight: 1 }) })
    host.hello = JSON.parse((await host.expect(frames.HELLO)).payload.toString())
  }
  return host
}

class Host {
  log = ''
  #buffer = Buffer.alloc(0)
  #frames = []
  #waiting = null
  #ended = false
  #ids = 0

  constructor(program, env) {
    this.child = spawn(process.execPath, ['--input-type=module', '-e', head + program], {
      env: { ...process.env, NODE_TEST_CONTEXT: undefined, TEMPOOL_FD: '3', TEMPOOL_OUT: '4', ...env },
      stdio: ['ignore', 'pipe', 'pipe', 'pipe', 'pipe'],
    })
    this.exited = once(this.child, 'close')
    this.socket = this.child.stdio[3]
    const answers = this.child.stdio[4]
    for (const out of [this.child.stdout, this.child.stderr]) out.on('data', (text) => { this.log += text })
    this.socket.on('error', () => {}) // seen as the end
    answers.on('error', () => {})
    answers.on('close', () => this.#end())
    answers.on('end', () => this.#end())
    answers.on('data', (data) => {
      this.#buffer = Buffer.concat([this.#buffer, data])
      for (let frame; (frame = frames.decode(this.#buffer)); this.#buffer = this.#buffer.subarray(frame.size)) this.#frames.push(frame)
      this.#waiting?.()
    })
  }

  #end() {
    this.#ended = true
    this.#waiting?.()
  }

  send(type, fields = {}) {
    const { headers = {}, ...rest } = fields
    this.socket.write(frames.encode(type, { ...rest, headers: frames.encodeHeaders(headers) }))
  }

  /** The next frame, or null at the end of the stream. */
  async read() {
    const deadline = AbortSignal.timeout(waitTimeout)
    while (!this.#frames.length) {
      if (this.#ended) return null
      deadline.throwIfAborted()
      await new Promise((resolve) => {
        this.#waiting = resolve
        deadline.onabort = resolve
      })
      this.#waiting = null
    }
    return this.#frames.shift()
  }

  async expect(type, id) {
    const frame = await this.read()
    assert.ok(frame, `the worker closed its end: ${this.log}`)
    assert.equal(frame.type, type, `got ${JSON.stringify({ ...frame, payload: frame.payload.toString() })}`)
    if (id !== undefined) assert.equal(frame.id, id)
    return frame
  }

  request(method, payload = '', headers = {}) {
    this.send(frames.REQUEST, { id: ++this.#ids, method, payload, headers })
    return this.#ids
  }

  /** A JSON call: its result, or its error as an object. */
  async call(method, ...params) {
    const id = this.request(method, JSON.stringify(params))
    const frame = await this.read()
    assert.equal(frame?.id, id, this.log)
    return JSON.parse(frame.payload.toString())
  }

  /** Waits until the log matches; what a worker writes may come after an answer that it sends later. */
  async logs(pattern) {
    const deadline = Date.now() + waitTimeout
    while (!pattern.test(this.log)) {
      assert.ok(Date.now() < deadline, `no ${pattern} in the log: ${this.log}`)
      await new Promise((resolve) => setTimeout(resolve, 5))
    }
  }

  /** The exit code. */
  async wait() {
    const timer = setTimeout(() => this.child.kill('SIGKILL'), waitTimeout)
    const [code] = await this.exited
    clearTimeout(timer)
    return code
  }

  async close() {
    this.socket.destroy()
    await this.wait()
  }
}
