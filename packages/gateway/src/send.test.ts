import { describe, expect, it } from 'vitest'
import { createMemoryStore } from '../../rondo/src/store/memory/store.ts'
import { advance } from './send.ts'
import { createSentRounds, type Sealer } from './sent.ts'

const sealer: Sealer = {
  seal: async (_purpose, data) => Buffer.from(data).toString('base64url'),
  open: async (_purpose, sealed) => new Uint8Array(Buffer.from(sealed, 'base64url')),
}

interface Round {
  readonly protocolVersion?: string
  readonly round?: number
  readonly requestState?: string
  readonly annotations?: object
  readonly inTurn?: boolean
}

/** An upstream that takes rounds, behind a gateway with a store. Returns how often it got a call whose rounds are run like this. */
async function sentBy(...rounds: readonly Round[]): Promise<number> {
  const { records } = createMemoryStore()
  if (records === undefined) throw new Error('The store has no records')
  const sent = createSentRounds(records, sealer)
  let calls = 0
  const connection = {
    rounds: true,
    revision: '2026-07-28',
    use: (fn: () => unknown) => fn(),
    client: {
      async round() {
        calls += 1
        return { resultType: 'complete', result: { content: [] } }
      },
    },
  }
  const upstream = { name: 'up', identity: 'up', options: {}, connection: async () => connection }
  for (const { annotations = {}, inTurn = false, ...facts } of rounds) {
    const ctx = { flow: 'flow', round: 2, protocolVersion: '2025-11-25', meta: {}, can: () => true, ...facts }
    const step = await advance({
      passing: { sent, inTurn: () => inTurn },
      passed: { upstream, request: { method: 'tools/call', name: 't', arguments: {} }, annotations },
      ctx,
      meta: {},
      kinds: [],
      steps: 0,
      signal: new AbortController().signal,
    } as never)
    expect(step).toEqual({ kind: 'result', result: { content: [] } })
  }
  return calls
}

describe('K3 a round that is run again where there is a store', () => {
  it.each<[string, Round]>([
    ['of a client that is asked while its call is open', {}],
    ['in a turn of a task', { protocolVersion: '2026-07-28', round: 1, inTurn: true }],
  ])('%s is sent once, and has the same result', async (_name, round) => {
    expect(await sentBy(round, round)).toBe(1)
  })

  it.each<[string, Round, Round]>([
    ['the next round', {}, { round: 3 }],
    ['the next turn of a task', { inTurn: true }, { inTurn: true, requestState: 'next' }],
  ])('is not taken for %s', async (_name, one, next) => {
    expect(await sentBy(one, next)).toBe(2)
  })

  it.each<[string, Round]>([
    ['only reads', { annotations: { readOnlyHint: true } }],
    ['has the same effect each time', { annotations: { idempotentHint: true } }],
    ['its client sends again by itself', { protocolVersion: '2026-07-28' }],
  ])('is sent again if it %s', async (_name, round) => {
    expect(await sentBy(round, round)).toBe(2)
  })
})
