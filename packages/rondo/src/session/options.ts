/** Options and limits of sessions. Every client of a revision up to 2025-11-25 has one session. */

import { createEvery, type Every } from '../lib/clock.ts'
import { drawId } from '../lib/random.ts'
import { defineOptions, number, type OptionSet, type OptionsOf } from '../options.ts'

export interface SessionOptions {
  /** Concurrent sessions; beyond it the oldest unused session of an unauthenticated caller is evicted, or else `LIMIT_SESSIONS`. Default: 10,000. */
  maxSessions?: number
  /**
   * Concurrent sessions of one authenticated caller, or of one address if unauthenticated: there the oldest unused one is evicted, or else
   * `LIMIT_SESSIONS`. Default: 1,000.
   */
  maxSessionsPerCaller?: number
  /**
   * Bytes kept for all sessions: capabilities, subscriptions, streams kept for resumption, and waiting calls, each counted with at least 8
   * KiB. Default: 64 MiB.
   */
  maxKeptBytes?: number
  /** Bytes kept for one authenticated caller, or for one address if unauthenticated. Default: 16 MiB. */
  maxKeptBytesPerCaller?: number
  /** A session ends after this time, and its client initializes again (404). Default: 7 days. */
  lifetimeMs?: number
  /** How long a client may take to resume a lost stream; then its calls are cancelled. 0 turns resumption off. Default: 1 minute. */
  resumeMs?: number
  /** Closes the stream of a call after this time; the client reconnects for the rest (2025-11-25 and later). Default: never. */
  streamMs?: number
}

const MINUTE = 60_000

const OPTIONS: OptionSet<OptionsOf<Required<SessionOptions>>> = defineOptions('sessions', {
  maxSessions: number(10_000),
  maxSessionsPerCaller: number(1_000),
  maxKeptBytes: number(64 * 1024 * 1024),
  maxKeptBytesPerCaller: number(16 * 1024 * 1024),
  lifetimeMs: number(7 * 24 * 60 * MINUTE),
  resumeMs: number(MINUTE),
  streamMs: number(Number.POSITIVE_INFINITY),
})

/** An instance forgets what it has of a session without requests, streams and calls after this time. */
export const IDLE_MS: number = 30 * MINUTE

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

interface World extends Pick<SessionSettings, 'now' | 'randomId'> {
  readonly every?: Every
  /** Called with what a sweep throws. */
  onError?(error: unknown): void
  readonly elsewhere?: SessionSettings['elsewhere']
}

export function resolveSessions(given: SessionOptions, world: World): SessionSettings {
  const settings = OPTIONS.read(given, 'createServer: sessions')
  const { now, randomId, elsewhere, onError = () => {}, every = createEvery(onError) } = world
  let tag: string | undefined
  return {
    ...settings,
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
export function sweepMs({ resumeMs, streamMs }: SessionSettings): number {
  return Math.max(50, Math.min(5_000, Math.min(resumeMs, streamMs) / 4))
}

/** A budget of memory: bytes are taken before something is kept, and released afterwards. */
export interface MemoryBudget {
  /** Returns false if there is no room. */
  take(bytes: number): boolean
  release(bytes: number): void
}

/** For what ends with its request and need not be counted. */
export const UNCOUNTED: MemoryBudget = { take: () => true, release: () => {} }
