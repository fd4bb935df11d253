/**
 * The keys in use: the ring that a fleet seals with, and the holder that keeps it current. The first key of a ring mints,
 * all of them open.
 *
 * A key is written `name:secret`, the secret in base64 (32 bytes or more); several keys are separated by commas or white
 * space. The name is for people and logs; a token carries the first 4 bytes of the name's SHA-256 instead. A name stands
 * for one secret for ever: a new secret needs a new name. No message of this file contains any part of a key.
 *
 * Rotation, each step rolled out to every instance before the next:
 *   learn  old,new   everyone can open what the new key will seal
 *   mint   new,old   new tokens use the new key, open flows continue
 *   drop   new       once no flow and no task can be left that began before the last instance minted with the new key
 *
 * holder 1: `ring` is a plain read once the holder is ready. A refresh runs beside the requests and never blocks them.
 * holder 2: A refresh that fails keeps the current ring and is reported.
 * holder 3: There is one load at a time.
 * holder 4: A first load that fails is retried by the next `ready()`.
 */

import { createSecretKey, hash, hkdfSync, type KeyObject, randomBytes } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { misuse } from '../errors.ts'

const MIN_SECRET_BYTES = 32
const NAME = /^[A-Za-z0-9._-]{1,64}$/
/** The least number of different bytes in a key: 32 random bytes have fewer with a probability below 2^-120. */
const MIN_DIFFERENT_BYTES = 8

export interface RingKey {
  readonly name: string
  /** The 4 bytes a token carries, as an unsigned number. */
  readonly id: number
  readonly secret: KeyObject
}

export interface KeyRing {
  readonly kind: 'key-ring'
  /** The key that seals. */
  readonly mint: RingKey
  /** Names in order, for logs. */
  readonly names: readonly string[]
  find(id: number): RingKey | undefined
}

export interface KeyMaterial {
  readonly name: string
  readonly secret: Uint8Array
}

export function createKeyRing(materials: readonly KeyMaterial[]): KeyRing {
  const keys = materials.map(toRingKey)
  const [mint] = keys
  if (mint === undefined) throw misuse('A key ring needs at least one key')
  const byId = new Map<number, RingKey>()
  for (const [index, key] of keys.entries()) {
    if (byId.has(key.id)) {
      throw misuse(`Key ${index + 1} has the same name as an earlier key. Names must be unique`)
    }
    byId.set(key.id, key)
  }
  return { kind: 'key-ring', mint, names: keys.map((key) => key.name), find: byId.get.bind(byId) }
}

/**
 * Reads keys from text in the format of `RONDO_KEYS`: `name:base64,name2:base64`. The first one seals, all of them open.
 *
 * @example
 * ```ts
 * const ring = parseKeys(`${generateKey('new')},${generateKey('old')}`)
 * ```
 */
export function parseKeys(text: string): KeyRing {
  const entries = text.split(/[\s,]/).filter((entry) => entry !== '')
  if (entries.length === 0) throw misuse(`The text contains no key. Write ${KEY_FORM}`)
  return createKeyRing(entries.map(parseEntry))
}

/** Like `parseKeys`, for keys whose origin an error names. */
function parseKeysOf(origin: string, text: string): KeyRing {
  try {
    return parseKeys(text)
  } catch (error) {
    throw misuse(`${origin} cannot be used: ${messageOf(error)}. "npx rondo keys new" makes a key.`)
  }
}

/**
 * Returns a new random key as one entry for `RONDO_KEYS`: its name, a colon, and 32 bytes in base64.
 *
 * @example
 * ```ts
 * const key = generateKey('2026-07')
 * ```
 */
export function generateKey(name: string = randomBytes(4).toString('hex')): string {
  if (!NAME.test(name)) throw misuse(`The name of a key must have 1 to 64 characters of ${NAME_CHARACTERS}`)
  return `${name}:${randomBytes(MIN_SECRET_BYTES).toString('base64')}`
}

const NAME_CHARACTERS = 'A-Z a-z 0-9 . _ -'
const KEY_FORM = '"name:secret", the secret being 32 random bytes in base64'

const idOf = (name: string): number => hash('sha256', name, 'buffer').readUInt32BE(0)

/** Derives 32 bytes from each key, the one that seals first. `label` says what for; nothing else is derived with this salt. */
export function deriveFromRing(ring: KeyRing, label: string): { name: string; secret: Uint8Array }[] {
  return ring.names.flatMap((name) => {
    const key = ring.find(idOf(name))
    if (key === undefined) return []
    return [{ name, secret: new Uint8Array(hkdfSync('sha256', key.secret, 'rondo derived key', label, 32)) }]
  })
}

function toRingKey({ name, secret }: KeyMaterial, index: number): RingKey {
  if (!NAME.test(name)) {
    throw misuse(`The name of key ${index + 1} must have 1 to 64 characters of ${NAME_CHARACTERS}`)
  }
  if (secret.byteLength < MIN_SECRET_BYTES) {
    throw misuse(`The secret of key ${index + 1} is shorter than ${MIN_SECRET_BYTES} bytes`)
  }
  if (new Set(secret).size < MIN_DIFFERENT_BYTES) {
    throw misuse(`The secret of key ${index + 1} is not random. Make one with "openssl rand -base64 32"`)
  }
  return { name, id: idOf(name), secret: createSecretKey(secret) }
}

function parseEntry(entry: string, index: number): KeyMaterial {
  const colon = entry.indexOf(':')
  if (colon === -1) throw misuse(`Key ${index + 1} has no name. Write ${KEY_FORM}`)
  const secret = decodeBase64(entry.slice(colon + 1))
  if (secret === undefined) throw misuse(`The secret of key ${index + 1} is not base64. Write ${KEY_FORM}`)
  return { name: entry.slice(0, colon), secret }
}

/** Either alphabet, padded or not. Undefined for other characters, which `Buffer.from` would skip. */
function decodeBase64(text: string): Buffer | undefined {
  const bare = text
    .replace(/={1,2}$/, '')
    .replaceAll('+', '-')
    .replaceAll('/', '_')
  const bytes = Buffer.from(bare, 'base64url')
  return bytes.toString('base64url') === bare ? bytes : undefined
}

/** Where keys come from. */
export interface KeySource {
  load(): KeyRing | Promise<KeyRing>
  /** Reload after this many ms. Without it the first ring stays. */
  readonly refreshMs?: number
}

export interface KeyHolder {
  /** True once the ring is loaded. */
  readonly isReady: boolean
  /** Undefined if the ring is loaded; otherwise a promise that resolves when it is. */
  ready(): Promise<void> | undefined
  /** The current ring. Throws before the holder is ready. */
  readonly ring: KeyRing
  /** Stops the refreshing. The ring stays. */
  close(): void
}

/** Calls `task` once after `ms`, without keeping the process alive. Returns a function that cancels it. */
export type Schedule = (task: () => void, ms: number) => () => void

export interface KeyHolderOptions {
  /** Called for every refresh that fails. */
  onError?: (error: unknown) => void
  schedule?: Schedule
}

/** The longest delay of a timer; a longer one would fire at once. */
const MAX_DELAY_MS = 2 ** 31 - 1

export function createKeyHolder(source: KeySource, options: KeyHolderOptions = {}): KeyHolder {
  const { onError = () => {}, schedule = unrefTimer } = options
  let loading: Promise<void> | undefined
  let cancel: (() => void) | undefined
  let closed = false

  function adopt(loaded: unknown): void {
    if (!isKeyRing(loaded)) throw misuse('load() of a key source must return a key ring')
    Object.defineProperty(holder, 'ring', { value: loaded, configurable: true })
    holder.isReady = true
    plan()
  }

  function plan(): void {
    if (closed || source.refreshMs === undefined) return
    cancel = schedule(() => void refresh(), Math.min(source.refreshMs, MAX_DELAY_MS))
  }

  async function refresh(): Promise<void> {
    try {
      adopt(await source.load())
    } catch (error) {
      plan()
      onError(error)
    }
  }

  function load(): Promise<void> | undefined {
    try {
      const loaded = source.load()
      if (isKeyRing(loaded)) return void adopt(loaded)
      loading = Promise.resolve(loaded)
        .then(adopt)
        .finally(() => {
          loading = undefined
        })
      return loading
    } catch (error) {
      return Promise.reject(error)
    }
  }

  const holder = {
    isReady: false,
    ready: () => (holder.isReady ? undefined : (loading ?? load())),
    get ring(): KeyRing {
      throw misuse('The keys are not loaded yet: await ready() first')
    },
    close() {
      closed = true
      cancel?.()
    },
  }
  return holder
}

function isKeyRing(value: unknown): value is KeyRing {
  return typeof value === 'object' && value !== null && 'kind' in value && value.kind === 'key-ring'
}

function unrefTimer(task: () => void, ms: number): () => void {
  const timer = setTimeout(task, ms)
  timer.unref()
  return () => clearTimeout(timer)
}

// The sources of keys: the environment, a file, a function (such as a KMS), or, for development, a random key.
//
// All instances of a service must have the same keys; otherwise a round that reaches another instance is refused. A random
// key therefore serves one process: right for stdio, where one process serves one client, and good enough for development.
// The warning is one line, since a host shows it at every start. In production the random key is refused.

const HOW_TO_SET = [
  'Make a key:   npx rondo keys new',
  'and set it:   RONDO_KEYS="key1:…"   the same on every instance.',
].join('\n')

type KeyEnv = Readonly<Partial<Record<'RONDO_KEYS' | 'RONDO_LOCAL_KEYS' | 'NODE_ENV', string>>>

/**
 * `RONDO_KEYS`; without it, the key that the `rondo` command passes to a server that it runs from a file. That one has a name of
 * its own, so a program that keeps a key for development uses the same key under the command and without it.
 */
function keyText({ RONDO_KEYS, RONDO_LOCAL_KEYS, NODE_ENV }: KeyEnv): string | undefined {
  return isBlank(RONDO_KEYS) && NODE_ENV !== 'production' ? RONDO_LOCAL_KEYS : RONDO_KEYS
}

/**
 * Keys for the option `keys` from the text of an environment variable, by default of `RONDO_KEYS`.
 *
 * @example
 * ```ts
 * const server = createServer({ name: 'tables', version: '1.0.0', keys: keysFromEnv() })
 * ```
 */
export function keysFromEnv(value: string | undefined = keyText(process.env)): KeySource {
  return {
    load() {
      if (isBlank(value)) throw misuse(`RONDO_KEYS is not set.\n${HOW_TO_SET}`)
      return parseKeysOf('RONDO_KEYS', value)
    },
  }
}

export interface RefreshOptions {
  /** The interval at which the keys are reloaded. Default: 30 s for a file; keys of a function are loaded once. */
  refreshMs?: number
}

/**
 * Keys for the option `keys` from a file in the format of `RONDO_KEYS`, reloaded every 30 s by default. If the file cannot be read,
 * the error is reported and the last keys stay.
 *
 * @example
 * ```ts
 * const fromFile = keysFromFile('/run/secrets/rondo-keys', { refreshMs: 60_000 })
 * ```
 */
export function keysFromFile(path: string, { refreshMs = 30_000 }: RefreshOptions = {}): KeySource {
  let last: { text: string; ring: KeyRing } | undefined
  return {
    refreshMs: assertRefresh(refreshMs),
    async load() {
      const text = await readFile(path, 'utf8')
      if (last?.text !== text) last = { text, ring: parseKeysOf(`The key file ${path}`, text) }
      return last.ring
    },
  }
}

/**
 * Keys for the option `keys` from a function that returns a ring, or a text in the format of `RONDO_KEYS`.
 *
 * @example
 * ```ts
 * const fromFunction = keysFromFunction(() => fetchSecret('rondo-keys'))
 * ```
 */
export function keysFromFunction(
  fetchKeys: () => KeyRing | string | Promise<KeyRing | string>,
  { refreshMs }: RefreshOptions = {},
): KeySource {
  return {
    ...(refreshMs === undefined ? {} : { refreshMs: assertRefresh(refreshMs) }),
    async load() {
      const keys = await fetchKeys()
      return typeof keys === 'string' ? parseKeysOf('The text of the function for keys', keys) : keys
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
  env?: KeyEnv
  warn?: (message: string) => void
}

/** The given keys, else `RONDO_KEYS`, else a development key. Text is parsed at once. */
export function resolveKeys(
  keys: string | KeySource | KeyRing | undefined,
  options: ResolveKeysOptions = {},
): KeyHolder {
  const { env = process.env, warn = console.warn } = options
  const onError = options.onError ?? ((error) => warn(`The keys could not be refreshed: ${messageOf(error)}`))
  if (typeof keys === 'string') return createKeyHolder(toSource(parseKeysOf('The option keys', keys)))
  if (keys !== undefined) return createKeyHolder(toSource(keys), { ...options, onError })
  const text = keyText(env)
  if (isBlank(text)) return createKeyHolder(developmentKeys({ nodeEnv: env.NODE_ENV, warn }))
  return createKeyHolder(toSource(parseKeysOf('RONDO_KEYS', text)))
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
