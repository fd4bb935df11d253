/**
 * Writes packages/rondo/src/seal/state.vectors.json: tokens that must open, and tokens that must be refused for a given reason.
 *
 * Run by hand, and only when the token format changes on purpose: npx tsx scripts/seal-vectors.js
 * A changed file means that existing tokens no longer open, so a change needs a new suite number as well. Keys, salts
 * and claims are derived from names: the same code writes the same file.
 */

import { createHash } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { sealEnvelope } from '../packages/rondo/src/seal/envelope.ts'
import { parseKeys } from '../packages/rondo/src/seal/key-ring.ts'
import { principalTag, requestDigest, sealState } from '../packages/rondo/src/seal/state.ts'

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

/** The bytes of the salt, and of the nonce after it. */
function drawFrom(stock) {
  let at = 0
  return (size) => {
    at += size
    return stock.subarray(at - size, at)
  }
}

function opening(name, claims, { keys = KEYS, mint = keys, keyId = '2026-10' } = {}) {
  const salt = bytes(`salt ${name}`)
  const { token } = sealState(parseKeys(mint), AUDIENCE, claims, undefined, drawFrom(salt))
  const random = salt.toString('base64url')
  return { name, keys, mint, audience: AUDIENCE, random, claims, expected: expectedFor(claims), keyId, token }
}

function refusing(
  token,
  name,
  reason,
  { audience = AUDIENCE, maxBytes = 65_536, token: other = token, ...expected } = {},
) {
  return {
    name,
    keys: KEYS,
    audience,
    maxBytes,
    expected: { ...expectedFor(base), ...expected },
    token: other,
    reason,
  }
}

/** The token with the bits of one byte flipped; a negative index counts from the end. */
function flip(token, index, mask = 1) {
  const raw = Buffer.from(token.slice(3), 'base64url')
  raw[(index + raw.length) % raw.length] ^= mask
  return `r1.${raw.toString('base64url')}`
}

const CIPHERTEXT_AT = 66

function vectors() {
  const open = [
    opening('a first question', base),
    opening('a second round', second),
    opening('an anonymous caller and a long manual state', anonymous),
    opening('sealed with the older key of the ring', base, {
      mint: key('2026-09'),
      keyId: '2026-09',
    }),
  ]
  const genuine = open[0].token
  const refuse = refusing.bind(undefined, genuine)
  const flipped = (...at) => flip(genuine, ...at)
  const around = (plaintext) =>
    sealEnvelope(parseKeys(KEYS), AUDIENCE, plaintext, drawFrom(bytes('salt around'))).token
  const foreign = parseKeys(key('2026-11'))
  const stranger = sealState(foreign, AUDIENCE, base, undefined, drawFrom(bytes('salt stranger')))
  return {
    open,
    refuse: [
      refuse('longer than the limit', 'size', { maxBytes: genuine.length - 1 }),
      refuse('empty', 'encoding', { token: '' }),
      refuse('prefix in capitals', 'encoding', { token: `R${genuine.slice(1)}` }),
      refuse('padding added', 'encoding', { token: `${genuine}=` }),
      refuse('a space added', 'encoding', { token: `${genuine} ` }),
      refuse('four characters cut off', 'encoding', { token: genuine.slice(0, -4) }),
      refuse('another format', 'encoding', { token: flipped(0, 3) }),
      refuse('another suite', 'encoding', { token: flipped(1, 3) }),
      refuse('a key that is not on the ring', 'key', { token: stranger.token }),
      refuse('a bit of the salt', 'commitment', { token: flipped(6) }),
      refuse('a bit of the commitment', 'commitment', { token: flipped(CIPHERTEXT_AT - 1, 128) }),
      refuse('another audience', 'commitment', { audience: 'https://tracker.example/mcp/' }),
      refuse('a bit of the ciphertext', 'tag', { token: flipped(CIPHERTEXT_AT) }),
      refuse('a bit of the nonce', 'tag', { token: flipped(22) }),
      refuse('a bit of the tag', 'tag', { token: flipped(-1, 128) }),
      refuse('no claims inside', 'shape', { token: around('[]') }),
      refuse('a claim that is not known', 'shape', {
        token: around(JSON.stringify({ ...base, epoch: 1 })),
      }),
      refuse('a claim that is missing', 'shape', {
        token: around(JSON.stringify({ ...base, principal: undefined })),
      }),
      refuse('sealed more than five minutes ahead', 'early', { now: NOW - 5 * MINUTE - 1 }),
      refuse('at the end of the round', 'expired', { now: base.roundExpires }),
      refuse('at the end of the flow', 'flow-expired', { now: base.flowExpires }),
      refuse('another principal', 'principal', { principal: principalTag({ subject: 'alice' }) }),
      refuse('no principal', 'principal', { principal: principalTag(undefined) }),
      refuse('another method', 'method', { method: 'prompts/get' }),
      refuse('other arguments', 'request', {
        request: requestDigest('tools/call', 'update_work_item', {}),
      }),
      refuse('another protocol version', 'protocol', { protocolVersion: '2025-11-25' }),
    ],
  }
}

const { open, refuse } = vectors()
const file = new URL('../packages/rondo/src/seal/state.vectors.json', import.meta.url)
writeFileSync(file, `${JSON.stringify({ open, refuse }, undefined, 2)}\n`)
console.log(`${open.length} to open, ${refuse.length} to refuse`)
