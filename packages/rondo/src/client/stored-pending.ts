/**
 * A pending call in storage: reading it back, and encrypting it. What is read is checked as if it came from the network.
 *
 * The sealed form is `p1.` + base64url( nonce 12 · ciphertext · tag 16 ), AES-256-GCM. It is not the seal of
 * `requestState`, on purpose: here one party reads what it wrote itself, so there is no binding, audience or rotation.
 * `node:crypto` is loaded when it is used, since the rest of the client runs wherever there is `fetch`.
 */

import { RondoError } from '../errors.ts'
import { isRecord } from '../lib/json.ts'
import { decodeQuestions } from '../protocol/common/received.ts'
import type { InputRequests, InputResponse, InputResponses } from '../protocol/wire.ts'
import type { FlowRequest, PendingCall, PendingServer, PendingTask } from './pending.ts'
import { isAnswerTo } from './question.ts'

/**
 * Reads a pending call from JSON text or from the value parsed from it. Throws INPUT_PENDING for anything else.
 *
 * @example
 * ```ts
 * const read = parsePending(JSON.stringify(pending))
 * ```
 */
export function parsePending(value: unknown): PendingCall {
  const fields = typeof value === 'string' ? parseJson(value) : value
  if (!isRecord(fields)) throw unreadable('it is not an object')
  if (fields.version !== 1) throw unreadable(`its format is ${JSON.stringify(fields.version)}, not 1`)
  const questions = decodeQuestions(fields.questions)
  const request = parseRequest(fields.request)
  const server = parseServer(fields.server)
  if (questions === undefined) throw unreadable('its questions are damaged')
  if (request === undefined) throw unreadable('its request is damaged')
  if (server === undefined) throw unreadable('its server is damaged')
  const { state } = fields
  if (fields.task !== undefined && request.method !== 'tools/call')
    throw unreadable('only a tool call can be a task')
  if (state !== undefined && typeof state !== 'string') throw unreadable('its state is not a string')
  return {
    version: 1,
    id: text(fields, 'id'),
    server,
    protocolVersion: text(fields, 'protocolVersion'),
    request,
    round: count(fields, 'round'),
    ...(state !== undefined && { state }),
    questions,
    answers: parseAnswers(fields.answers, questions),
    startedAt: count(fields, 'startedAt'),
    askedAt: count(fields, 'askedAt'),
    workMs: count(fields, 'workMs'),
    idleRounds: count(fields, 'idleRounds'),
    ...(fields.task !== undefined && { task: parseTask(fields.task) }),
    ...(fields.abandoned === true && { abandoned: true as const }),
  }
}

function parseTask(value: unknown): PendingTask {
  if (!isRecord(value)) throw unreadable('its task is damaged')
  const { ttlMs, answered } = value
  if (!Array.isArray(answered) || !answered.every((key) => typeof key === 'string')) {
    throw unreadable('its task is damaged')
  }
  return {
    taskId: text(value, 'taskId'),
    createdAt: count(value, 'createdAt'),
    ttlMs: ttlMs === null ? null : count(value, 'ttlMs'),
    pollIntervalMs: count(value, 'pollIntervalMs'),
    lookedAt: count(value, 'lookedAt'),
    answered,
  }
}

function parseRequest(value: unknown): FlowRequest | undefined {
  if (!isRecord(value)) return undefined
  const { method, name, uri, arguments: args } = value
  if (method === 'resources/read') return typeof uri === 'string' ? { method, uri } : undefined
  if (method !== 'tools/call' && method !== 'prompts/get') return undefined
  if (typeof name !== 'string' || (args !== undefined && !isRecord(args))) return undefined
  return { method, name, ...(args !== undefined && { arguments: args }) } as FlowRequest
}

function parseServer(value: unknown): PendingServer | undefined {
  if (!isRecord(value) || typeof value.target !== 'string') return undefined
  const { target, name, version } = value
  return {
    target,
    ...(typeof name === 'string' && { name }),
    ...(typeof version === 'string' && { version }),
  }
}

function parseAnswers(value: unknown, questions: InputRequests): InputResponses {
  if (!isRecord(value)) throw unreadable('its answers are damaged')
  const answers: [string, InputResponse][] = Object.entries(value).map(([key, answer]) => {
    const question = Object.hasOwn(questions, key) ? questions[key] : undefined
    if (question === undefined || !isAnswerTo(question, answer)) {
      throw unreadable(`its answer to "${key}" does not fit a question`)
    }
    return [key, answer]
  })
  return Object.fromEntries(answers)
}

function text(fields: Readonly<Record<string, unknown>>, name: string): string {
  const value = fields[name]
  if (typeof value !== 'string') throw unreadable(`its ${name} is not a string`)
  return value
}

function count(fields: Readonly<Record<string, unknown>>, name: string): number {
  const value = fields[name]
  if (typeof value !== 'number' || !(value >= 0)) throw unreadable(`its ${name} is not a number`)
  return value
}

function parseJson(json: string): unknown {
  try {
    return JSON.parse(json)
  } catch {
    throw unreadable('it is not JSON')
  }
}

function unreadable(problem: string): RondoError {
  return new RondoError('INPUT_PENDING', `This is not a pending call: ${problem}`)
}

const PREFIX = 'p1.'
const PURPOSE = 'rondo pending call, format 1'
const NONCE_BYTES = 12
const TAG_BYTES = 16

/**
 * Encrypts a pending call. `key` is 32 random bytes, needed again to open it. Requires `node:crypto`.
 *
 * @example
 * ```ts
 * const sealed = sealPending(pending, key)
 * ```
 */
export function sealPending(pending: PendingCall, key: Uint8Array): string {
  assertKey(key)
  const { createCipheriv, randomBytes } = nodeCrypto()
  const nonce = randomBytes(NONCE_BYTES)
  const cipher = createCipheriv('aes-256-gcm', key, nonce).setAAD(Buffer.from(PURPOSE))
  const sealed = [nonce, cipher.update(JSON.stringify(pending), 'utf8'), cipher.final(), cipher.getAuthTag()]
  return PREFIX + Buffer.concat(sealed).toString('base64url')
}

/**
 * Opens what `sealPending` returned. Anything else and any other key throw the same error.
 *
 * @example
 * ```ts
 * const opened = openPending(sealed, key)
 * ```
 */
export function openPending(sealed: string, key: Uint8Array): PendingCall {
  assertKey(key)
  return parsePending(decrypt(sealed, key))
}

function nodeCrypto(): typeof import('node:crypto') {
  const found = globalThis.process?.getBuiltinModule?.('node:crypto')
  if (found !== undefined) return found
  const instead = 'encrypt JSON.stringify(pending) yourself and read it back with parsePending'
  throw new TypeError(`sealPending and openPending need node:crypto, which this runtime lacks: ${instead}`)
}

function decrypt(sealed: string, key: Uint8Array): string {
  const { createDecipheriv } = nodeCrypto()
  const bytes = Buffer.from(sealed.slice(PREFIX.length), 'base64url')
  try {
    if (PREFIX + bytes.toString('base64url') !== sealed) throw new Error('not the canonical form')
    const decipher = createDecipheriv('aes-256-gcm', key, bytes.subarray(0, NONCE_BYTES), {
      authTagLength: TAG_BYTES,
    })
      .setAAD(Buffer.from(PURPOSE))
      .setAuthTag(bytes.subarray(-TAG_BYTES))
    const opened = decipher.update(bytes.subarray(NONCE_BYTES, -TAG_BYTES))
    return Buffer.concat([opened, decipher.final()]).toString('utf8')
  } catch (cause) {
    throw new RondoError('INPUT_PENDING', 'The pending call cannot be opened with this key', { cause })
  }
}

function assertKey(key: Uint8Array): void {
  if (key.byteLength !== 32) throw new TypeError(`The key must be 32 bytes long, not ${key.byteLength}`)
}
