/// <reference lib="esnext.disposable" />
import type { Caller, SessionContent, TempoolError } from './client.js'
import type { SessionRecord, Worker } from './index.js'

/** A session store in memory. */
export class MemorySessions {
  get(id: string): SessionRecord | undefined
  put(id: string, content?: SessionContent, version?: number): SessionRecord
  patch(id: string, patch: Record<string, unknown>, version?: number): SessionRecord
  delete(id: string): boolean
}

/** Calls the methods of a Worker, by default that of the package's functions, as a pool would. */
export class TestWorker implements Caller {
  constructor(options?: { worker?: Worker; maxMessage?: number; sessions?: MemorySessions })
  readonly sessions: MemorySessions
  readonly counts: Readonly<Record<string, number>>
  start(): Promise<void>
  stop(): Promise<void>
  checkHealth(): Promise<void>
  call: Caller['call']
  callRaw: Caller['callRaw']
  exchange: Caller['exchange']
  stream: Caller['stream']
  streamRaw: Caller['streamRaw']
}

/** A call that came in at a FakeGateway. */
export interface FakeCall {
  readonly pool: string
  readonly worker: string
  readonly method: string
  readonly params: any
  readonly body: Buffer
  readonly session: string | undefined
  readonly lease: string | undefined
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
}

/** The process ends in the middle of the call, as the answer of a script. */
export function crash(options?: { started?: boolean }): TempoolError

/** A gateway on a loopback port, whose answers the test scripts. */
export class FakeGateway implements AsyncDisposable {
  private constructor()
  static start(options?: { size?: number; token?: string }): Promise<FakeGateway>
  readonly endpoint: string
  readonly calls: FakeCall[]
  readonly sessions: MemorySessions
  /** Each answer is a value, an error, an iterator, or a function of (params, call) that returns or throws one. The last one stays. */
  on(pool: string, method: string, ...answers: unknown[]): this
  serve(pool: string, worker: TestWorker): this
  fence(pool: string): void
  leases(pool: string): { id: string; holder: string; worker: string; incarnation: number }[]
  close(): Promise<void>
  [Symbol.asyncDispose](): Promise<void>
}
