/**
 * Writes src/seal/state.vectors.json: tokens that must open, and tokens that must be refused for a given reason.
 *
 * Run by hand, and only when the token format changes on purpose: npx tsx scripts/seal-vectors.js
 * A changed file means that existing tokens no longer open, so a change needs a new format number as well. Keys, salts
 * and claims are derived from names: the same code writes the same file.
 */

import { createHash } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { sealEnvelope } from '../src/seal/envelope.ts'
import { parseKeys } from '../src/seal/key-ring.ts'
import { principalTag, requestDigest, sealState } from '../src/seal/state.ts'

const NOW = 1_790_000_000_000
const MINUTE = 60_000
const AUDIENCE = 'https://tracker.example/mcp'

const bytes = (name) => createHash('sha256').update(`rondo vector: ${name}`).digest()
const key = (name) => `${name}:${bytes(`key ${name}`).toString('base64')}`
const KEYS = [key('2026-10'), key('2026-09')].join(',')

const alice = principalTag({ issuer: 'https://id.example', subject: 'alice', client: 'desktop' })
const base = {
  issuedAt: NOW,
  roundExpires: NOW + 10 * MINUTE,
  flowExpires: NOW + 60 * MINUTE,
  flow: bytes('flow').toString('base64url').slice(0, 22),
  round: 1,
  principal: alice,
  method: 'tools/call',
  request: requestDigest('tools/call', 'update_work_item', {
    workItemId: 4522,
    fields: { 'System.State': 'Resolved' },
  }),
  protocolVersion: '2026-07-28',
  asked: { resolution: bytes('question').toString('base64url') },
  journal: { startedAt: NOW, seed: bytes('seed').toString('base64url'), entries: [], reasks: {}, moves: 0 },
}
const second = {
  ...base,
  round: 2,
  toolVersion: '3',
  asked: JSON.parse('{"__proto__":"d1","duplicate_of":"d2"}'),
  journal: {
    ...base.journal,
    entries: [
      {
        kind: 'form',
        key: 'resolution',
        at: NOW,
        question: 'd0',
        answer: { action: 'accept', content: { resolution: 'Duplicate', note: 'äöü \ud83d\ude00 \ud800' } },
      },
      { kind: 'step', key: 'load', at: NOW + 1 },
      {
        kind: 'effect',
        key: 'save',
        at: NOW + 2,
        failure: { name: 'Error', message: 'timeout', open: true },
      },
    ],
    reasks: { duplicate_of: { misfits: 1, problem: 'must be a number' } },
    moves: 1,
  },
}
const anonymous = {
  ...base,
  principal: principalTag(undefined),
  method: 'resources/read',
  request: requestDigest('resources/read', 'file:///notes.txt', undefined),
  protocolVersion: 'DRAFT-2026-v1',
  asked: {},
  journal: { ...base.journal, manual: 'x'.repeat(5_000) },
}

function expectedFor({ issuedAt, principal, method, request, protocolVersion }) {
  return { now: issuedAt + 1_000, principal, method, request, protocolVersion }
}

function opening(name, claims, { keys = KEYS, mint = keys, keyId = '2026-10' } = {}) {
  const salt = bytes(`salt ${name}`)
  const { token } = sealState(parseKeys(mint), AUDIENCE, claims, undefined, () => salt)
  const random = salt.toString('base64url')
  return { name, keys, mint, audience: AUDIENCE, random, claims, expected: expectedFor(claims), keyId, token }
}

function refusing(
  name,
  reason,
  { token = genuine, audience = AUDIENCE, maxBytes = 65_536, ...expected } = {},
) {
  return {
    name,
    keys: KEYS,
    audience,
    maxBytes,
    expected: { ...expectedFor(base), ...expected },
    token,
    reason,
  }
}

function around(plaintext) {
  return sealEnvelope(parseKeys(KEYS), AUDIENCE, plaintext, () => bytes('salt around')).token
}

/** The genuine token with the bits of one byte flipped; a negative index counts from the end. */
function flipped(index, mask = 1) {
  const raw = Buffer.from(genuine.slice(3), 'base64url')
  raw[(index + raw.length) % raw.length] ^= mask
  return `r1.${raw.toString('base64url')}`
}

const open = [
  opening('a first question', base),
  opening('a second round', second),
  opening('an anonymous caller and a long manual state', anonymous),
  opening('sealed with the older key of the ring', base, { mint: key('2026-09'), keyId: '2026-09' }),
]
const genuine = open[0].token
const stranger = sealState(parseKeys(key('2026-11')), AUDIENCE, base, undefined, () => bytes('salt stranger'))

const refuse = [
  refusing('longer than the limit', 'size', { maxBytes: genuine.length - 1 }),
  refusing('empty', 'encoding', { token: '' }),
  refusing('prefix in capitals', 'encoding', { token: `R${genuine.slice(1)}` }),
  refusing('padding added', 'encoding', { token: `${genuine}=` }),
  refusing('a space added', 'encoding', { token: `${genuine} ` }),
  refusing('four characters cut off', 'encoding', { token: genuine.slice(0, -4) }),
  refusing('another format', 'encoding', { token: flipped(0, 3) }),
  refusing('another suite', 'encoding', { token: flipped(1, 3) }),
  refusing('a key that is not on the ring', 'key', { token: stranger.token }),
  refusing('a bit of the salt', 'commitment', { token: flipped(6) }),
  refusing('a bit of the commitment', 'commitment', { token: flipped(69, 128) }),
  refusing('another audience', 'commitment', { audience: 'https://tracker.example/mcp/' }),
  refusing('a bit of the ciphertext', 'tag', { token: flipped(70) }),
  refusing('a bit of the tag', 'tag', { token: flipped(-1, 128) }),
  refusing('no claims inside', 'shape', { token: around('[]') }),
  refusing('a claim that is not known', 'shape', { token: around(JSON.stringify({ ...base, epoch: 1 })) }),
  refusing('a claim that is missing', 'shape', {
    token: around(JSON.stringify({ ...base, principal: undefined })),
  }),
  refusing('sealed more than five minutes ahead', 'early', { now: NOW - 5 * MINUTE - 1 }),
  refusing('at the end of the round', 'expired', { now: base.roundExpires }),
  refusing('at the end of the flow', 'flow-expired', { now: base.flowExpires }),
  refusing('another principal', 'principal', { principal: principalTag({ subject: 'alice' }) }),
  refusing('no principal', 'principal', { principal: principalTag(undefined) }),
  refusing('another method', 'method', { method: 'prompts/get' }),
  refusing('other arguments', 'request', { request: requestDigest('tools/call', 'update_work_item', {}) }),
  refusing('another protocol version', 'protocol', { protocolVersion: '2025-11-25' }),
]

const file = new URL('../src/seal/state.vectors.json', import.meta.url)
writeFileSync(file, `${JSON.stringify({ open, refuse }, undefined, 2)}\n`)
console.log(`${open.length} to open, ${refuse.length} to refuse`)
