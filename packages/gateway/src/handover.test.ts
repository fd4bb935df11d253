import type { Bus, RecordStore } from 'rondo/store'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createMemoryStore } from '../../rondo/src/store/memory/store.ts'
import { createHandover, type HandoverResume } from './handover.ts'
import type { Sealer } from './sent.ts'

const sealer: Sealer = {
  seal: async (purpose, data) => Buffer.from(`${purpose}:${data}`).toString('base64url'),
  async open(purpose, sealed) {
    const text = Buffer.from(sealed, 'base64url').toString()
    return text.startsWith(`${purpose}:`)
      ? new TextEncoder().encode(text.slice(purpose.length + 1))
      : undefined
  },
}
const WAIT_MS = 600_000
const { signal } = new AbortController()

/** Two instances that share a store whose time the test sets. */
function instances(resume: HandoverResume, refuse: (id: string) => boolean = () => false) {
  const time = { now: 0 }
  const state = { isStopping: false }
  const published: string[] = []
  const { records, bus } = createMemoryStore({ now: () => time.now })
  if (records === undefined || bus === undefined) throw new Error('The store has no records')
  const owners = new Set<string>()
  const bounded: RecordStore = {
    ...records,
    async put(record) {
      owners.add(record.owner)
      return refuse(record.id) ? 'limit' : records.put(record)
    },
  }
  const recorded: Bus = {
    ...bus,
    publish(message) {
      published.push(message)
      return bus.publish(message)
    },
  }
  const create = () => {
    const clock = { now: () => time.now, after: () => () => {} }
    const parts = { records: bounded, bus: recorded, sealer, clock, waitMs: WAIT_MS, leaseMs: 15_000, resume }
    const isStopping = async () => state.isStopping
    const one = createHandover({ ...parts, end() {}, isStopping, warn() {} })
    onTestFinished(() => one.close())
    return one
  }
  return { holder: create(), other: create(), time, records, owners, state, published }
}

const done = { kind: 'step', step: { kind: 'result', result: { ok: true } } } as const

describe('K3 the hand-over of a held call', () => {
  it('still works in a later step, when the time for the answers of the first one is over', async () => {
    const { holder, other, time, records } = instances(async () => done)
    await holder.hold('call', 'ada', 1)
    time.now = WAIT_MS - 1_000
    await holder.hold('call', 'ada', 2)
    time.now = WAIT_MS + 1_000
    await records.touch(['gateway-held-call'])
    expect(await other.deliver('call', 'ada', 2, {}, signal)).toEqual(done)
  })

  it('says that there is no room for answers, and does not wait for an outcome that cannot come', async () => {
    let taken = 0
    const resume: HandoverResume = async () => {
      taken += 1
      return done
    }
    const { holder, other } = instances(resume, (id) => id.endsWith('answers'))
    await holder.hold('call', 'ada', 1)
    expect(await other.deliver('call', 'ada', 1, {}, signal)).toMatchObject({
      kind: 'failed',
      message: expect.stringMatching(/no room.*nothing was answered/),
    })
    expect(taken).toBe(0)
  })

  it('uses the share of the store of each caller, so that one cannot use up that of another', async () => {
    const { holder, owners } = instances(async () => done)
    await holder.hold('one', 'ada', 1)
    await holder.hold('two', 'bob', 1)
    expect(owners.size).toBe(2)
  })

  it('gives nothing to another caller than the one whose call is held', async () => {
    const { holder, other } = instances(async () => done)
    await holder.hold('call', 'ada', 1)
    expect(await other.deliver('call', 'eve', 1, {}, signal)).toBeUndefined()
    expect(await other.deliver('call', 'ada', 1, {}, signal)).toEqual(done)
  })

  it('takes the answers of a step once, however often and wherever they are sent', async () => {
    const taken: unknown[] = []
    const { holder, other } = instances(async (_id, _caller, answers) => {
      taken.push(answers)
      return done
    })
    await holder.hold('call', 'ada', 1)
    const answers = { 'ask-1': { action: 'decline' } } as const
    const deliver = () => other.deliver('call', 'ada', 1, answers, signal)
    expect(await Promise.all([deliver(), deliver()])).toEqual([done, done])
    expect(await deliver()).toEqual(done)
    expect(taken).toEqual([answers])
  })

  it('takes answers to an earlier state of two that were returned for the same questions', async () => {
    const taken: unknown[] = []
    const { holder, other } = instances(async (_id, _caller, answers) => {
      taken.push(answers)
      return done
    })
    await holder.hold('call', 'ada', 1)
    await holder.hold('call', 'ada', 2)
    const answers = { 'ask-1': { action: 'decline' } } as const
    expect(await other.deliver('call', 'ada', 1, answers, signal)).toEqual(done)
    expect(taken).toEqual([answers])
  })

  it('returns the outcome of a call that has ended, to its own caller alone', async () => {
    const { holder, other } = instances(async () => done)
    await holder.hold('call', 'ada', 1)
    holder.release('call')
    expect(await other.deliver('call', 'eve', 1, {}, signal)).toBeUndefined()
    expect(await other.deliver('call', 'ada', 1, {}, signal)).toEqual(done)
  })

  it.each([
    ['W7 ends the call at its holder when the client has gone', false, ['gateway-held call 0 end']],
    ['leaves the call as it is when the instance that waits for it is stopping', true, []],
  ])('%s', async (_name, isStopping, expected) => {
    const stop = new AbortController()
    const { holder, other, state, published } = instances(() => {
      state.isStopping = isStopping
      stop.abort()
      return new Promise(() => {})
    })
    await holder.hold('call', 'ada', 1)
    await expect(other.deliver('call', 'ada', 1, {}, stop.signal)).rejects.toThrow(/cancelled/)
    expect(published.filter((message) => message.endsWith('end'))).toEqual(expected)
  })
})
