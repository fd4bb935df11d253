/** Rings, claims and generators for everything that tests the seal. */

import { createHash } from 'node:crypto'
import fc from 'fast-check'
import type { Entry, Journal, Reask } from '../../packages/rondo/src/journal/journal.ts'
import { createKeyRing, type KeyRing } from '../../packages/rondo/src/seal/key-ring.ts'
import {
  type Claims,
  type Expected,
  principalTag,
  requestDigest,
} from '../../packages/rondo/src/seal/state.ts'

export const AUDIENCE = 'https://tracker.example/mcp'
export const NOW = 1_800_000_000_000

/** A ring whose secrets follow from the names: the same in every run. */
export function ringOf(...names: string[]): KeyRing {
  return createKeyRing(
    names.map((name) => ({ name, secret: createHash('sha256').update(`test key ${name}`).digest() })),
  )
}

export const sampleJournal: Journal = {
  startedAt: NOW - 60_000,
  seed: 'c2VlZCBvZiB0aGUgZmxvdw',
  entries: [
    {
      kind: 'form',
      key: 'resolution',
      at: NOW - 30_000,
      question: 'q1',
      answer: { action: 'accept', content: { resolution: 'Duplicate' } },
    },
    { kind: 'step', key: 'load', at: NOW - 20_000, value: { id: 4522 } },
    { kind: 'effect', key: 'save', at: NOW - 10_000, failure: { name: 'Error', message: 'no', code: 7 } },
  ],
  reasks: { duplicate_of: { misfits: 1, problem: 'must be a number' } },
  moves: 1,
}

export const sampleClaims: Claims = {
  issuedAt: NOW,
  roundExpires: NOW + 600_000,
  flowExpires: NOW + 3_600_000,
  flow: 'Zmxvdy1pZC0wMDAwMDAwMQ',
  round: 2,
  principal: principalTag({ issuer: 'https://id.example', subject: 'alice', client: 'desktop' }),
  method: 'tools/call',
  request: requestDigest('tools/call', 'update_work_item', { workItemId: 4522 }),
  toolVersion: '1',
  protocolVersion: '2026-07-28',
  asked: { duplicate_of: 'q2' },
  journal: sampleJournal,
}

/** The request that `claims` were sealed for, one second later. */
export function expectedFor(claims: Claims): Expected {
  const { principal, method, request, protocolVersion } = claims
  return { now: claims.issuedAt + 1_000, principal, method, request, protocolVersion }
}

/** JSON as a parser returns it: any string, no -0. */
export const json: fc.Arbitrary<unknown> = fc
  .jsonValue({ stringUnit: 'binary', maxDepth: 4 })
  .map((value) => JSON.parse(JSON.stringify(value)))

const name: fc.Arbitrary<string> = fc.oneof(
  fc.string({ unit: 'binary' }),
  fc.constantFrom('__proto__', 'constructor', 'toString', 'hasOwnProperty', ''),
)

function mapOf<T>(values: fc.Arbitrary<T>): fc.Arbitrary<Record<string, T>> {
  return fc.dictionary(name, values, { noNullPrototype: false, maxKeys: 6 })
}

const time = fc.integer({ min: 0, max: 4_000_000_000_000 })

const entry: fc.Arbitrary<Entry> = fc.oneof(
  fc.record({
    kind: fc.constantFrom('form', 'confirm', 'url', 'sampling', 'roots'),
    key: name,
    at: time,
    question: name,
    answer: json,
  }),
  fc.record(
    { kind: fc.constantFrom('step', 'effect'), key: name, at: time, value: json },
    { requiredKeys: ['kind', 'key', 'at'] },
  ),
  fc.record({
    kind: fc.constantFrom('step', 'effect'),
    key: name,
    at: time,
    failure: fc.record(
      { name, message: name, code: fc.oneof(name, fc.integer()), open: fc.constant(true) },
      { requiredKeys: ['name', 'message'] },
    ),
  }),
)

const reask: fc.Arbitrary<Reask> = fc.record(
  { misfits: fc.nat(9), changes: fc.nat(9), problem: name },
  { requiredKeys: [] },
)

const journal: fc.Arbitrary<Journal> = fc.record(
  {
    startedAt: time,
    seed: name,
    entries: fc.array(entry, { maxLength: 8 }),
    reasks: mapOf(reask),
    moves: fc.nat(9),
    manual: name,
  },
  { requiredKeys: ['startedAt', 'seed', 'entries', 'reasks', 'moves'] },
)

/** Claims that are valid one second after they were issued. */
export const claims: fc.Arbitrary<Claims> = fc
  .record(
    {
      issuedAt: time,
      roundExpires: fc.integer({ min: 2_000, max: 600_000 }),
      flowExpires: fc.integer({ min: 2_000, max: 86_400_000 }),
      flow: name,
      round: fc.nat(20),
      principal: name,
      method: fc.constantFrom('tools/call', 'prompts/get', 'resources/read'),
      request: name,
      toolVersion: name,
      protocolVersion: fc.constantFrom('2026-07-28', 'DRAFT-2026-v1'),
      asked: mapOf(name),
      journal,
    },
    {
      requiredKeys: [
        'issuedAt',
        'roundExpires',
        'flowExpires',
        'flow',
        'round',
        'principal',
        'method',
        'request',
        'protocolVersion',
        'asked',
        'journal',
      ],
    },
  )
  .map((drawn) => ({
    ...drawn,
    roundExpires: drawn.issuedAt + drawn.roundExpires,
    flowExpires: drawn.issuedAt + drawn.flowExpires,
  }))
