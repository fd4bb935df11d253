import { describe, expect, it } from 'vitest'
import { createHost } from '../../serve/host.ts'
import type { InputSlot } from '../../store/input-slots.ts'
import { createTaskId, type TaskTurn } from '../../store/task-engine.ts'
import type { FlowHost, TaskHost } from '../host.ts'
import { type Folded, openPiece, type TaskRecord } from './journal.ts'
import { createShown, createStatusReporter, type StoredMessage } from './status.ts'

/** A turn whose messages are read back, and a timer that fires when the test says so. */
async function start() {
  const written: StoredMessage[] = []
  let due: (() => void) | undefined
  const created = createHost({
    audience: 'a',
    keys: 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=',
    log: 'off',
  })
  await created.keys.ready()
  const after = (_ms: number, fn: () => void) => {
    due = fn
    return () => {
      due = undefined
    }
  }
  const host: FlowHost = { ...created, platform: { ...created.platform, after } }
  const task = { id: createTaskId(), owner: { tenant: 'a', principal: 'p' } } as TaskTurn['task']
  const opening = { maxPieceBytes: 1_000_000 } as TaskHost
  const status = createStatusReporter(host, {
    task,
    status: async (sealed) => void written.push(openPiece(host, opening, task, 'message', sealed)),
  })
  const fire = () => {
    due?.()
    due = undefined
  }
  return { status, written, fire, host, task }
}

describe('the reporter of a turn', () => {
  it('G7 names what has run for a while, and nothing that was short', async () => {
    const { status, written, fire } = await start()
    status.begins?.('step', 'short')
    status.ends('short')
    fire()
    expect(written).toEqual([])
    status.begins?.('step', 'a')
    status.begins?.('effect', 'b')
    fire()
    status.ends('a')
    fire()
    status.rests()
    expect(written).toEqual([
      { auto: 'Running step and effect "a", "b"' },
      { auto: 'Running effect "b"' },
      { auto: 'Working' },
    ])
  })

  it('G7 leaves the message of the author alone, also if it was set in an earlier run', async () => {
    for (const set of ['setStatus', 'statusWasSet'] as const) {
      const { status, written, fire } = await start()
      status[set]?.('mine')
      status.begins?.('step', 'a')
      fire()
      status.rests('Waiting for the event "e"')
      expect(written).toEqual(set === 'setStatus' ? ['mine'] : [])
    }
  })

  it('G7 reports nothing after its turn', async () => {
    const { status, written, fire } = await start()
    status.begins?.('step', 'a')
    status.close()
    fire()
    expect(written).toEqual([])
  })
})

describe('the record of a park', () => {
  const asked = (key: string) => ({ key, digest: `digest of ${key}` })
  const parkedWith = (...keys: string[]): Extract<TaskRecord, { parked: unknown }> => ({
    parked: { asked: Object.fromEntries(keys.map((key) => [key, asked(key)])), reasks: {} },
  })
  const slots: InputSlot[] = [
    { kind: 'open', key: 'stop', role: 'offer', request: 'sealed' },
    { kind: 'closed', key: 'withdrawn', role: 'offer' },
    { kind: 'answered', key: 'answered', role: 'offer', answer: 'sealed' },
    { kind: 'open', key: 'question', request: 'sealed' },
    { kind: 'open', key: 'event', role: 'hook', request: 'sealed' },
    { kind: 'open', key: 'unknown', role: 'offer', request: 'sealed' },
  ]
  const shownIn = async () => {
    const { parked } = parkedWith('stop', 'withdrawn', 'answered', 'question', 'event')
    const { host, task } = await start()
    const turn = { task, slots: () => slots } as unknown as TaskTurn
    return createShown(host, {} as TaskHost, turn, { parked } as Folded)
  }

  it('G5 names the offers that stay open beside its questions, and nothing else that was asked before', async () => {
    const shown = await shownIn()
    expect(shown.keepOffers(parkedWith('next'))).toEqual(parkedWith('stop', 'next'))
  })

  it('G5 is left alone if it is no park', async () => {
    const record: TaskRecord = { rested: true }
    expect((await shownIn()).keepOffers(record)).toBe(record)
  })
})
