/** Anything JSON can represent. */
export type Json = string | number | boolean | null | readonly Json[] | { readonly [key: string]: Json | undefined }

/** What a raw method returns or yields. */
export type Bytes = Uint8Array | string

type Awaitable<T> = T | Promise<T>
type Hook = () => Awaitable<unknown>

/** An error with a code of your own and optional data for the caller (anything JSON can represent). */
export class TempoolError extends Error {
  constructor(message: string, options?: { code?: string; data?: unknown })
  readonly code: string
  readonly data: unknown
  readonly fatal: boolean
}

/** An error after which this process must not be used again: Tempool returns it to the caller and replaces the process. */
export class Fatal extends TempoolError {}

/** The caller cancelled the call or has disconnected. */
export class Cancelled extends TempoolError {
  constructor(message?: string)
}

/** The host rejected or failed a host call; code says why. */
export class HostError extends TempoolError {}

/** Another call changed the session first. */
export class Conflict extends HostError {}

/** The call's session does not exist. */
export class SessionNotFound extends HostError {}

/** The call's session has no program with that id. */
export class ProgramNotFound extends HostError {}

/** A map in a session: data or metadata. Each access is a host call; set, delete, update and change are atomic. */
export interface Entries {
  all(): Promise<Record<string, unknown>>
  get<T = unknown>(key: string): Promise<T | undefined>
  has(key: string): Promise<boolean>
  keys(): Promise<string[]>
  entries(): Promise<[string, unknown][]>
  set(key: string, value: unknown): Promise<void>
  delete(key: string): Promise<void>
  clear(): Promise<void>
  update(patch: Record<string, unknown>): Promise<void>
  change<T>(key: string, fn: (current: T | undefined) => Awaitable<T | null | undefined>): Promise<T | undefined>
}

/** A session as its store has it. */
export interface SessionRecord {
  id: string
  data: Record<string, unknown>
  programs: Record<string, unknown>
  metadata: Record<string, unknown>
  version: number
  created_at: string
  last_accessed: string
  ttl: string
}

/** The session of a call: its data by key, with metadata, version and more. The first use creates the session. */
export interface Session extends Entries {
  readonly metadata: Entries
  load(): Promise<SessionRecord>
  patch(patch: Record<string, unknown>, version?: number): Promise<SessionRecord>
  touch(): Promise<SessionRecord>
  end(): Promise<void>
}

/** Programs of the call's session: anything JSON can represent, shared by all workers of the pool. */
export interface Programs {
  put(id: string, program: unknown): Promise<void>
  get<T = unknown>(id: string): Promise<T>
  delete(id: string): Promise<void>
}

/** One call. Valid until its method returns. */
export interface Context {
  readonly headers: Readonly<Record<string, string>>
  readonly responseHeaders: Record<string, string>
  readonly worker: string
  readonly incarnation: number
  readonly deadline: number | null
  readonly remaining: number | null
  readonly signal: AbortSignal
  readonly cancelled: boolean
  check(): void
  count(name: string, n?: number): void
  host(method: string, params?: unknown): Promise<unknown>
  readonly session: Session
  readonly programs: Programs
}

/** Returns the Context of the current call, also across awaits. Throws outside of a call. */
export function context(): Context

type Method = (...args: any[]) => unknown
type RawMethod = (body: Buffer) => Awaitable<Bytes | null | void> | Iterator<Bytes, Bytes | void> | AsyncIterator<Bytes, Bytes | void>

/** Methods and hooks of one worker. The functions of the package use a default Worker. */
export class Worker {
  method<F extends Method>(fn: F): F
  method<F extends Method>(name: string, fn: F): F
  method<F extends RawMethod>(name: string, options: { raw: true }, fn: F): F
  method<F extends Method>(name: string, options: { raw?: false }, fn: F): F
  onStart(fn: Hook): void
  onStop(fn: Hook): void
  onHealth(fn: Hook): void
  onSessionRelease(fn: (id: string) => Awaitable<unknown>): void
  onSessionLoad(fn: (id: string) => Awaitable<unknown>): void
  onLeaseReset(fn: Hook): void
  onSuspend(fn: Hook): void
  onResume(fn: Hook): void
  unhealthy(reason: string): void
  run(): Promise<void>
}

/**
 * Makes fn callable by the pool's clients. The payload is JSON: an array becomes the arguments of fn, null or an empty payload no arguments, any other
 * value the only argument. With raw, fn takes a Buffer and returns bytes. A generator, async or not, streams the values it yields.
 */
export const method: Worker['method']
/** fn runs before the worker reports ready. If it throws, the start fails. */
export const onStart: Worker['onStart']
/** fn runs when the worker stops, after its last call. */
export const onStop: Worker['onStop']
/** fn runs in each health check of kind "rpc". If it throws, the check fails with its reason. */
export const onHealth: Worker['onHealth']
/** fn runs before a session moves to another worker, as a call of that session. */
export const onSessionRelease: Worker['onSessionRelease']
/** fn runs after a session has moved to this worker, before its next call, as a call of that session. */
export const onSessionLoad: Worker['onSessionLoad']
/** fn runs when a lease expires without a checkin, if the spec has lease.on_expiry = "reset". */
export const onLeaseReset: Worker['onLeaseReset']
/** fn runs when an operator suspends this worker, after its last call. */
export const onSuspend: Worker['onSuspend']
/** fn runs when a suspended worker resumes, before its next call. */
export const onResume: Worker['onResume']
/** Reports this worker unhealthy, which counts at once as a failed health check. */
export const unhealthy: Worker['unhealthy']
/** Serves calls until Tempool stops this worker, then exits the process. */
export const run: Worker['run']
