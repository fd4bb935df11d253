/** Options and limits of sessions. Every client of a revision up to 2025-11-25 has one session. */

import { didYouMean, misuse } from '../errors.ts'
import { createEvery, type Every } from '../lib/clock.ts'
import { drawId } from '../lib/random.ts'

export interface SessionOptions {
  /** Sessions that may be open at once. Default: 10,000. */
  maxSessions?: number
  /** Sessions that one authenticated caller may have open at once. Default: 100. */
  maxSessionsPerPrincipal?: number
  /** Sessions that anonymous callers may have open from one address; the oldest unused one is evicted first. Default: 1,000. */
  maxSessionsPerAddress?: number
  /** Bytes that all sessions together may keep: capabilities, subscriptions, events to resume from, waiting calls. Default: 64 MiB. */
  maxKeptBytes?: number
  /** The same for one caller: a principal, or an address. Default: 16 MiB. */
  maxKeptBytesPerCaller?: number
  /** An instance forgets what it has of a session without requests, streams or calls after this time. Default: 30 minutes. */
  idleMs?: number
  /** A session ends after this time however much it is used; its client starts again with `initialize`. Default: 7 days. */
  lifetimeMs?: number
  /** Calls that may wait for an answer at once, in all sessions together. Default: 10,000. */
  maxParked?: number
  /** Calls of one authenticated caller that may wait for an answer at once, in all its sessions. Default: 100. */
  maxParkedPerPrincipal?: number
  /** Calls of anonymous callers from one address that may wait for an answer at once. Default: 1,000. */
  maxParkedPerAddress?: number
  /** Calls of one session that may wait for an answer at once. Default: 16. */
  maxParkedPerSession?: number
  /** How often a waiting call sends a heartbeat, if the client asked for progress. Default: 20 s. */
  signMs?: number
  /** How long a client may take to resume a lost stream before its calls are cancelled; 0 turns resumption off. Default: 1 minute. */
  resumeMs?: number
  /** Bytes of each stream that are kept for resumption. Default: 256 KiB. */
  maxReplayBytes?: number
  /** Ends the stream of a call after this time; the client resumes it for the rest. Default: never. */
  streamMs?: number
}

export interface SessionSettings extends Required<SessionOptions> {
  /** Resources that one session may subscribe to. */
  readonly maxWatched: number
  /** How long clients are told to wait before they resume a stream. */
  readonly retryMs: number
  /** Tells the questions and streams of this process apart from those of others: 8 characters. */
  readonly tag: string
  readonly now: () => number
  readonly randomId: () => string
  readonly every: Every
  onError(error: unknown): void
  /** Sends a message on a session's own stream, wherever that is. */
  readonly elsewhere?: (session: string, json: string) => void
}

const MINUTE = 60_000

const DEFAULTS: Required<SessionOptions> = {
  maxSessions: 10_000,
  maxSessionsPerPrincipal: 100,
  maxSessionsPerAddress: 1_000,
  maxKeptBytes: 64 * 1024 * 1024,
  maxKeptBytesPerCaller: 16 * 1024 * 1024,
  idleMs: 30 * MINUTE,
  lifetimeMs: 7 * 24 * 60 * MINUTE,
  maxParked: 10_000,
  maxParkedPerPrincipal: 100,
  maxParkedPerAddress: 1_000,
  maxParkedPerSession: 16,
  signMs: 20_000,
  resumeMs: MINUTE,
  maxReplayBytes: 256 * 1024,
  streamMs: Number.POSITIVE_INFINITY,
}

interface World extends Pick<SessionSettings, 'now' | 'randomId'> {
  readonly every?: Every
  /** Called with what a sweep throws. */
  onError?(error: unknown): void
  readonly elsewhere?: SessionSettings['elsewhere']
}

export function resolveSessions(given: SessionOptions, world: World): SessionSettings {
  const settings: Record<string, number> = { ...DEFAULTS }
  for (const [name, value] of Object.entries(given)) {
    if (!Object.hasOwn(DEFAULTS, name))
      throw misuse(`There is no session option named "${name}".${didYouMean(name, DEFAULTS)}`)
    if (value === undefined) continue
    if (typeof value !== 'number' || !(value >= 0)) {
      throw misuse(`sessions.${name} must be a number of 0 or more.`)
    }
    settings[name] = value
  }
  const known = settings as unknown as Required<SessionOptions>
  const { now, randomId, elsewhere, onError = () => {}, every = createEvery(onError) } = world
  let tag: string | undefined
  return {
    ...known,
    maxWatched: 1_000,
    retryMs: 1_000,
    // Drawn for the first session: Workers have no random numbers while a module is loaded.
    get tag() {
      tag ??= drawId().slice(0, 8)
      return tag
    },
    now,
    randomId,
    every,
    onError,
    elsewhere,
  }
}

/** How often to sweep: often enough for the shortest of these times. */
export function sweepMs({ idleMs, resumeMs, signMs, streamMs }: SessionSettings): number {
  return Math.max(50, Math.min(5_000, Math.min(idleMs, resumeMs, signMs, streamMs) / 4))
}

/** A budget of memory: bytes are taken before something is kept, and released afterwards. */
export interface MemoryBudget {
  /** Returns false if there is no room. */
  take(bytes: number): boolean
  release(bytes: number): void
}

/** For what ends with its request and need not be counted. */
export const UNCOUNTED: MemoryBudget = { take: () => true, release: () => {} }
