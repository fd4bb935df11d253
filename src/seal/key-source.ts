/**
 * The sources of keys: the environment, a file, a function (such as a KMS), or, for development, a random key.
 *
 * All instances of a service must have the same keys; otherwise a round that reaches another instance is refused. A random
 * key therefore serves one process: right for stdio, where one process serves one client, and good enough for development.
 * The warning is one line, since a host shows it at every start. In production the random key is refused.
 */

import { readFile } from 'node:fs/promises'
import { misuse } from '../errors.ts'
import {
  createKeyHolder,
  generateKey,
  type KeyHolder,
  type KeyHolderOptions,
  type KeyRing,
  type KeySource,
  parseKeys,
} from './key-ring.ts'

const HOW_TO_SET = [
  'Make a key:   echo "key1:$(openssl rand -base64 32)"',
  'and set it:   RONDO_KEYS="key1:…"   the same on every instance.',
].join('\n')

/** Keys in the text of an environment variable. Default: `RONDO_KEYS`. */
export function keysFromEnv(value: string | undefined = process.env.RONDO_KEYS): KeySource {
  return {
    load() {
      if (isBlank(value)) throw misuse(`RONDO_KEYS is not set.\n${HOW_TO_SET}`)
      return parseKeys(value)
    },
  }
}

export interface RefreshOptions {
  /** How often to reload the keys. */
  refreshMs?: number
}

/** Keys in a file, reloaded every 30 s by default. If the file cannot be read, the error is reported and the last keys stay. */
export function keysFromFile(path: string, { refreshMs = 30_000 }: RefreshOptions = {}): KeySource {
  let last: { text: string; ring: KeyRing } | undefined
  return {
    refreshMs: assertRefresh(refreshMs),
    async load() {
      const text = await readFile(path, 'utf8')
      if (last?.text !== text) last = { text, ring: parseKeys(text) }
      return last.ring
    },
  }
}

/** Keys from a function that returns a ring, or a text in the format of `RONDO_KEYS`. */
export function keysFromFunction(
  fetchKeys: () => KeyRing | string | Promise<KeyRing | string>,
  { refreshMs }: RefreshOptions = {},
): KeySource {
  return {
    ...(refreshMs === undefined ? {} : { refreshMs: assertRefresh(refreshMs) }),
    async load() {
      const keys = await fetchKeys()
      return typeof keys === 'string' ? parseKeys(keys) : keys
    },
  }
}

export interface DevelopmentOptions {
  nodeEnv?: string | undefined
  warn?: (message: string) => void
}

/** One random key for this process. Throws when `NODE_ENV` is `production`. */
export function developmentKeys(options: DevelopmentOptions = {}): KeySource {
  const { nodeEnv = process.env.NODE_ENV, warn = console.warn } = options
  return {
    load() {
      if (nodeEnv === 'production') {
        throw misuse(`Rondo needs keys in production, and RONDO_KEYS is not set.\n${HOW_TO_SET}`)
      }
      const ring = parseKeys(generateKey('development'))
      warn(
        'Rondo generated a key for this process, because RONDO_KEYS is not set: open calls are lost when it restarts, ' +
          'and no other instance can continue them. "npx rondo keys new" creates one to set there.',
      )
      return ring
    },
  }
}

export interface ResolveKeysOptions extends KeyHolderOptions {
  env?: { readonly RONDO_KEYS?: string | undefined; readonly NODE_ENV?: string | undefined }
  warn?: (message: string) => void
}

/** The given keys, else `RONDO_KEYS`, else a development key. Text is parsed at once. */
export function resolveKeys(
  keys: string | KeySource | KeyRing | undefined,
  options: ResolveKeysOptions = {},
): KeyHolder {
  const { env = process.env, warn = console.warn, suite } = options
  if (suite !== undefined && suite !== 1 && suite !== 2)
    throw misuse(`sealSuite must be 1 or 2; got ${JSON.stringify(suite)}.`)
  const onError = options.onError ?? ((error) => warn(`The keys could not be refreshed: ${messageOf(error)}`))
  if (typeof keys === 'string') return createKeyHolder(toSource(parseKeys(keys)), { suite })
  if (keys !== undefined) return createKeyHolder(toSource(keys), { ...options, onError })
  const text = env.RONDO_KEYS
  if (isBlank(text)) return createKeyHolder(developmentKeys({ nodeEnv: env.NODE_ENV, warn }), { suite })
  return createKeyHolder(toSource(parseKeys(text)), { suite })
}

function toSource(keys: KeySource | KeyRing): KeySource {
  if (typeof keys !== 'object' || keys === null)
    throw misuse('keys must be text ("name:secret"), a key ring, or an object with a function load')
  return 'load' in keys ? keys : { load: () => keys }
}

function isBlank(text: string | undefined): text is '' | undefined {
  return text === undefined || text.trim() === ''
}

function assertRefresh(refreshMs: number): number {
  if (!(refreshMs > 0)) throw misuse('refreshMs must be a positive number of milliseconds')
  return refreshMs
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
