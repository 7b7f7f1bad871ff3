/// <reference lib="esnext.disposable" />
import type { SecureContextOptions } from 'node:tls'
import type { SessionRecord } from './index.js'

export type { SessionRecord }

/** The codes of errors; docs/gateway.md says what each means. */
export type ErrorCode =
  | 'busy' | 'cancelled' | 'continuing' | 'deadline_exceeded' | 'degraded' | 'draining' | 'failed' | 'forbidden' | 'internal' | 'invalid'
  | 'key_required' | 'start_failed'
  | 'lease_fenced' | 'lease_not_found' | 'memory_limit_exceeded' | 'method_not_allowed' | 'method_not_found' | 'no_workers' | 'not_found'
  | 'payload_too_large' | 'pool_not_found' | 'queue_full' | 'queue_timeout' | 'rate_limited' | 'session_exists' | 'session_not_found'
  | 'slow_reader' | 'starting' | 'store_full' | 'suspended' | 'unauthorized' | 'unavailable' | 'version_conflict' | 'worker_crashed'
  | 'worker_error' | 'worker_not_found' | (string & {})

export interface ErrorFields {
  code?: ErrorCode
  started?: boolean
  retryAfter?: number
  status?: number
  cause?: unknown
}

/** A failed request. Only a call that was not started is safe to repeat. */
export class TempoolError extends Error {
  constructor(message: string, fields?: ErrorFields)
  readonly code: ErrorCode
  readonly started: boolean
  readonly retryAfter: number | undefined
  readonly status: number
  readonly endpoint: string | undefined
  readonly temporary: boolean
}

export interface WorkerErrorFields extends ErrorFields {
  workerCode?: string | number
  type?: string
  traceback?: string
  data?: unknown
  fatal?: boolean
  unhandled?: boolean
}

/** The worker received the call and returned an error. */
export class WorkerError extends TempoolError {
  constructor(message: string, fields?: WorkerErrorFields)
  readonly workerCode: string | number | undefined
  readonly type: string | undefined
  readonly traceback: string | undefined
  readonly data: unknown
  readonly fatal: boolean
  readonly unhandled: boolean
}

export interface CallOptions {
  /** ms for the whole call: queueing, retries and the answer */
  timeout?: number
  /** cancels the call, also at the worker; it rejects with the signal's reason */
  signal?: AbortSignal
  session?: string
  /** whose call it is, for a pool with isolation.by = "key" */
  key?: string
  /** 0 to 9, 9 first */
  priority?: number
  headers?: Readonly<Record<string, string>>
}

export interface MapOptions extends CallOptions {
  /** false: results come as calls end */
  ordered?: boolean
  concurrency?: number
  onProgress?: (done: number) => void
}

export type MapResult<Item, Value> =
  | { index: number; item: Item; ok: true; value: Value }
  | { index: number; item: Item; ok: false; error: unknown }

/** A worker's answer. */
export interface Answer<T = unknown> {
  readonly body: Buffer
  readonly worker: string
  readonly incarnation: number
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  json(): T
}

/** Methods of a worker, by name: `{ square(params: { x: number }): number }`, or `typeof import('./worker.js')`. */
export type Methods<M> = { [K in keyof M]: (...args: never[]) => unknown }

type Name<M> = keyof M & string
type Args<F> = F extends (...args: infer A) => unknown ? A : never
type One<P> = P extends readonly unknown[] ? [P] : P | [P]
/** What a call of the method F sends: its one argument, or a list of all. */
export type Params<F> = Args<F> extends [] ? [] | null | undefined
  : Required<Args<F>> extends [infer P] ? ([] extends Args<F> ? One<P> | null | undefined : One<P>)
  : Args<F>
/** What a call of the method F resolves to. */
export type Result<F> = F extends (...args: never[]) => infer R ? Awaited<R> : never
/** What a stream of the method F yields; a result at its end included. */
export type Streamed<F> = F extends (...args: never[]) => infer R
  ? R extends Generator<infer T, infer E> | AsyncGenerator<infer T, infer E> ? T | Exclude<E, void | undefined>
    : R extends Iterable<infer T> | AsyncIterable<infer T> ? T : Awaited<R>
  : never

type Rest<F> = undefined extends Params<F> ? [params?: Params<F>, options?: CallOptions] : [params: Params<F>, options?: CallOptions]

interface Bytes {
  callRaw(method: string, body?: Uint8Array | string, options?: CallOptions): Promise<Buffer>
  exchange(method: string, body?: Uint8Array | string, options?: CallOptions): Promise<Answer>
  streamRaw(method: string, body?: Uint8Array | string, options?: CallOptions): AsyncGenerator<Buffer, void, undefined>
}

/** Calls whose methods have no types. */
export interface Caller extends Bytes {
  call<T = unknown>(method: string, params?: unknown, options?: CallOptions): Promise<T>
  stream<T = unknown>(method: string, params?: unknown, options?: CallOptions): AsyncGenerator<T, void, undefined>
}

/** Calls of the methods M. */
export interface TypedCaller<M extends Methods<M>> extends Bytes {
  call<K extends Name<M>>(method: K, ...rest: Rest<M[K]>): Promise<Result<M[K]>>
  stream<K extends Name<M>>(method: K, ...rest: Rest<M[K]>): AsyncGenerator<Streamed<M[K]>, void, undefined>
}

export interface LeaseOptions {
  /** ms that the lease lives after its last renewal */
  ttl?: number
  holder?: string
  session?: string
  /** whose call it is, for a pool with isolation.by = "key" */
  key?: string
  /** ms to wait for a worker; 0: no wait */
  wait?: number
  signal?: AbortSignal
}

export type Outcome = 'ok' | 'error' | 'close'

interface Held extends AsyncDisposable {
  readonly id: string
  readonly worker: string
  readonly incarnation: number
  readonly session: string | undefined
  readonly granted: Readonly<Record<string, unknown>>
  /** ms until the lease ends unless it is renewed */
  readonly remaining: number
  notify(method: string, params?: unknown, options?: CallOptions): Promise<void>
  renew(): Promise<void>
  close(outcome?: Outcome, error?: string): Promise<void>
}

/** The exclusive right to one worker. It is renewed in the background until it is closed. */
export interface Lease extends Held, Caller {}
export interface TypedLease<M extends Methods<M>> extends Held, TypedCaller<M> {}

export interface WorkerStatus {
  worker: string
  state: string
  incarnation: number
  [field: string]: unknown
}

export interface PoolStatus {
  pool: string
  size: number
  ready: number
  workers: WorkerStatus[]
  [field: string]: unknown
}

interface Named {
  readonly name: string
  readonly sessions: Sessions
  status(): Promise<PoolStatus>
}

/** A pool: each call goes to a free worker and waits for one if necessary. */
export interface Pool extends Named, Caller {
  worker(number: number): PoolWorker
  lease(options?: LeaseOptions): Promise<Lease>
  map<T = unknown, Item = unknown>(method: string, items: Iterable<Item> | AsyncIterable<Item>, options?: MapOptions): AsyncGenerator<MapResult<Item, T>, void, undefined>
}

/** A pool whose workers have the methods M. */
export interface TypedPool<M extends Methods<M>> extends Named, TypedCaller<M> {
  worker(number: number): TypedPoolWorker<M>
  lease(options?: LeaseOptions): Promise<TypedLease<M>>
  map<K extends Name<M>, Item extends Params<M[K]>>(method: K, items: Iterable<Item> | AsyncIterable<Item>, options?: MapOptions): AsyncGenerator<MapResult<Item, Result<M[K]>>, void, undefined>
}

export interface PoolWorker extends Caller {
  readonly number: number
}
export interface TypedPoolWorker<M extends Methods<M>> extends TypedCaller<M> {
  readonly number: number
}

export interface SessionContent {
  data?: Record<string, unknown>
  programs?: Record<string, unknown>
  metadata?: Record<string, unknown>
  /** such as "30m" */
  ttl?: string
}

/** The session store behind the gateways. */
export interface Sessions {
  get(id: string): Promise<SessionRecord>
  new(content?: SessionContent): Promise<SessionRecord>
  put(id: string, content?: SessionContent & { version?: number; create?: boolean }): Promise<SessionRecord>
  patch(id: string, patch: Record<string, unknown>, version?: number): Promise<SessionRecord>
  delete(id: string): Promise<void>
}

export interface ClientOptions {
  token?: string
  tokenFile?: string
  caFile?: string
  certFile?: string
  keyFile?: string
  tls?: SecureContextOptions & { servername?: string; rejectUnauthorized?: boolean }
  /** ms for each request, retries included; default 60,000 */
  timeout?: number
  /** how often a request that no worker has received is sent again; default 8 */
  retries?: number
}

/** A client of one or more gateways. */
export class Client implements Disposable {
  constructor(endpoint?: string | readonly string[], options?: ClientOptions)
  readonly timeout: number
  readonly sessions: Sessions
  pool(name: string): Pool
  pool<M extends Methods<M>>(name: string): TypedPool<M>
  pools(): Promise<PoolStatus[]>
  workers(): Promise<WorkerStatus[]>
  read<T = unknown>(path: string): Promise<T>
  close(): void
  [Symbol.dispose](): void
}

export const defaultEndpoint: string
