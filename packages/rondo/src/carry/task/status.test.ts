import { describe, expect, it } from 'vitest'
import { createHost } from '../../serve/host.ts'
import type { InputSlot } from '../../store/input-slots.ts'
import { createTaskId, type TaskTurn } from '../../store/task-engine.ts'
import type { FlowHost, TaskHost } from '../host.ts'
import { type Folded, openPiece, type TaskRecord } from './journal.ts'
import { createShown, createStatusReporter, type StoredMessage, statusMessageOf } from './status.ts'

/** A turn whose messages are read back, and a timer that fires when the test says so. */
async function start() {
  const written: StoredMessage[] = []
  const timers = new Set<() => void>()
  const created = createHost({
    audience: 'a',
    keys: 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=',
    log: 'off',
  })
  await created.keys.ready()
  const after = (_ms: number, fn: () => void) => {
    timers.add(fn)
    return () => void timers.delete(fn)
  }
  const host: FlowHost = { ...created, platform: { ...created.platform, after } }
  const task = { id: createTaskId(), owner: { tenant: 'a', principal: 'p' } } as TaskTurn['task']
  const opening = { maxPieceBytes: 1_000_000 } as TaskHost
  const status = createStatusReporter(host, {
    task,
    status: async (sealed) => void written.push(openPiece(host, opening, task, 'message', sealed)),
  })
  const fire = () => {
    for (const due of [...timers]) {
      timers.delete(due)
      due()
    }
  }
  return { status, written, fire, timers, host, task }
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

  it('G7 sets no timer for what is short, and one for all that runs', async () => {
    const { status, written, fire, timers } = await start()
    status.begins?.('step', 'short')
    status.ends('short')
    expect(timers.size).toBe(0)
    for (const key of ['a', 'b', 'c']) status.begins?.('step', key)
    expect(timers.size).toBe(1)
    status.ends('b')
    fire()
    expect(written).toEqual([{ auto: 'Running step "a", "c"' }])
  })

  it('G7 reports that nothing runs any more once, and only if it has named something', async () => {
    const { status, written, fire, timers } = await start()
    status.rests()
    status.ends('an answer')
    expect(timers.size).toBe(0)
    expect(written).toEqual([])
    status.begins?.('step', 'a')
    fire()
    status.ends('a')
    fire()
    expect(written).toEqual([{ auto: 'Running step "a"' }, { auto: 'Working' }])
    status.ends('another answer')
    expect(timers.size).toBe(0)
    status.rests()
    expect(written).toHaveLength(2)
  })

  it('G7 reports once what the task waits for', async () => {
    const { status, written } = await start()
    for (let turn = 0; turn < 2; turn++) status.rests('Waiting for the event "e"')
    expect(written).toEqual([{ auto: 'Waiting for the event "e"' }])
  })

  it('G7 knows whether the author has reported something in this turn', async () => {
    const { status } = await start()
    status.statusWasSet?.()
    expect(status.reported).toBe(false)
    status.setStatus?.('mine')
    expect(status.reported).toBe(true)
  })

  it('G7 sets no timer, and keeps none, once the author has set a message', async () => {
    for (const set of ['setStatus', 'statusWasSet'] as const) {
      const { status, timers } = await start()
      status.begins?.('step', 'a')
      status[set]?.('mine')
      status.begins?.('step', 'b')
      status.ends('b')
      expect(timers.size).toBe(0)
    }
  })

  it('G7 cuts a message of more than 1000 characters', async () => {
    const { status, written } = await start()
    for (const length of [1000, 1001]) status.setStatus?.('x'.repeat(length))
    expect(written).toEqual(['x'.repeat(1000), `${'x'.repeat(1000)}…`])
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

it.each<[Parameters<typeof statusMessageOf>, string]>([
  [[undefined, { status: 'working', revision: 1 }, [], undefined], 'Started'],
  [[undefined, { status: 'working', revision: 2 }, [], undefined], 'Working'],
  [[{ auto: 'Running' }, { status: 'working', revision: 1 }, [], undefined], 'Running'],
  [['mine', { status: 'working', revision: 1 }, [], undefined], 'mine'],
  [
    [{ auto: 'Running' }, { status: 'input_required', revision: 2 }, ['a~2', 'b~c', 'd~3~4'], undefined],
    'Waiting for an answer to "a", "b~c", "d~3"',
  ],
  [['mine', { status: 'input_required', revision: 2 }, ['a'], undefined], 'mine'],
  [[{ auto: 'Running' }, { status: 'completed', revision: 2 }, [], undefined], 'Completed'],
  [['mine', { status: 'completed', revision: 2 }, [], undefined], 'mine'],
  [['mine', { status: 'failed', revision: 2 }, [], undefined], 'Failed'],
  [['mine', { status: 'failed', revision: 2 }, [], { code: 1, message: 'No' }], 'No'],
  [['mine', { status: 'cancelled', revision: 2 }, [], undefined], 'Cancelled'],
])('G7 the message of a task says what the author or its state says: %j', (given, message) => {
  expect(statusMessageOf(...given)).toBe(message)
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
