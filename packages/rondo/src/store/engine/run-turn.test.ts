/** A single turn over the store in memory: what it writes, in which order, and how it ends if a write fails. */

import { beforeEach, describe, expect, it } from 'vitest'
import { complete } from '../../../../../test/support/store/held-turn.ts'
import { alice, answers, inputs, newTask } from '../../../../../test/support/store/store-harness.ts'
import { createMemoryStore } from '../memory/store.ts'
import type { Store } from '../store.ts'
import type { NewTask, TaskTurn, TaskTurnOutcome } from '../task-engine.ts'
import { ENDED_BYTES, type TaskStore } from '../task-store.ts'
import { runTurn, type TaskTurnOptions } from './run-turn.ts'

let now = 0
let store: Store = createMemoryStore()
beforeEach(() => {
  now = 1_800_000_000_000
  store = createMemoryStore({ now: () => now })
})

const noDatabase = () => Promise.reject(new Error('no database'))
const settled = () => new Promise((resolve) => setImmediate(resolve))

/** Creates a task, claims it, and begins its turn. */
async function begin(
  run: (turn: TaskTurn) => Promise<TaskTurnOutcome>,
  {
    task = newTask(),
    changes = {},
    options = {},
  }: { task?: NewTask; changes?: Partial<TaskStore>; options?: Partial<TaskTurnOptions> } = {},
) {
  const ended: unknown[] = []
  await store.tasks.create(task, 10)
  const lease = (await store.tasks.claim('worker', 10_000, 10)).find(({ fence }) => fence.id === task.id)
  if (lease === undefined) throw new Error('the task could not be claimed')
  const turn = runTurn({ ...store.tasks, ...changes }, lease, run, {
    maxFailures: 3,
    maxJournalBytes: 100,
    backoffMs: (failures) => failures * 1_000,
    onEnded: (owner, bytes) => ended.push([owner, bytes]),
    ...options,
  })
  const view = () => store.tasks.get(task.id, alice)
  const row = async () => (await store.tasks.list({ id: task.id }))[0]
  return { id: task.id, lease, turn, ended, view, row }
}

/** A turn that ends when the test says so. */
async function hold(setup?: Parameters<typeof begin>[1]) {
  let end = (_outcome: TaskTurnOutcome) => {}
  let inside: TaskTurn | undefined
  const outcome = new Promise<TaskTurnOutcome>((resolve) => {
    end = resolve
  })
  const begun = await begin((turn) => {
    inside = turn
    return outcome
  }, setup)
  if (inside === undefined) throw new Error('the turn has not begun')
  return { ...begun, inside, end }
}

describe('the end of a turn', () => {
  const wakeAt = 1_800_000_005_000
  it.each<[string, TaskTurnOutcome, object, object]>([
    ['completes the task', complete('done'), { kind: 'complete' }, { status: 'completed', dueAt: undefined }],
    ['fails it', { kind: 'fail', error: 'no' }, { kind: 'fail' }, { status: 'failed', dueAt: undefined }],
    [
      'parks it until it is answered',
      { kind: 'park', inputs: inputs('a') },
      { kind: 'park', timed: false },
      { status: 'input_required', openKeys: ['a'], dueAt: undefined },
    ],
    [
      'parks it until a time',
      { kind: 'park', inputs: inputs(), wakeAt },
      { kind: 'park', timed: true },
      { status: 'working', dueAt: wakeAt },
    ],
    [
      'releases it at once',
      { kind: 'release' },
      { kind: 'release' },
      { status: 'working', dueAt: 1_800_000_000_000, failures: 0 },
    ],
    [
      'releases it for later',
      { kind: 'release', delayMs: 700 },
      { kind: 'release' },
      { status: 'working', dueAt: 1_800_000_000_700, failures: 0 },
    ],
    ['holds it', { kind: 'hold' }, { kind: 'hold' }, { status: 'working', worker: undefined }],
  ])('%s', async (_what, outcome, end, row) => {
    const begun = await begin(async () => outcome)
    expect(await begun.turn.done).toEqual(end)
    expect(await begun.row()).toMatchObject({ ...row, worker: undefined })
  })

  it('D6 keeps a parked task alive until the time that it names, and its inputs until theirs', async () => {
    const task = newTask({ ttlMs: 1_000 })
    const { turn, view, lease } = await begin(
      async () => ({
        kind: 'park',
        inputs: inputs('a'),
        liveUntil: now + 9_000,
        until: new Map([['a', now + 500]]),
      }),
      { task },
    )
    await turn.done
    expect(await view()).toMatchObject({ expiresAt: now + 9_000 })
    expect(await store.tasks.slots(lease.fence.id, alice)).toMatchObject([{ key: 'a', until: now + 500 }])
  })

  it('closes the slots that it names, and needs another reason to wait then', async () => {
    for (const wakes of [true, false]) {
      const { turn, inside, end, row } = await hold({ options: { maxFailures: 1 } })
      await inside.publish({ open: [{ key: 'a', request: 'name?' }] })
      end({
        kind: 'park',
        inputs: inputs(),
        close: [{ key: 'a' }],
        ...(wakes && { wakeAt: now + 1 }),
      })
      expect(await turn.done).toMatchObject(
        wakes ? { kind: 'park' } : { kind: 'gave-up', error: expect.any(TypeError) },
      )
      expect(await row()).toMatchObject({ status: wakes ? 'working' : 'failed', openKeys: [] })
    }
  })

  it('may wait for what is open already', async () => {
    const { turn, inside, end, row } = await hold()
    await inside.publish({ open: [{ key: 'a', request: 'name?', role: 'hook' }] })
    end({ kind: 'park', inputs: inputs() })
    expect(await turn.done).toEqual({ kind: 'park', timed: false })
    expect(await row()).toMatchObject({ openHooks: ['a'] })
  })

  it('is announced before it is written', async () => {
    const seen: unknown[] = []
    const { turn, end } = await hold({
      changes: {
        settle: (...given) => {
          seen.push('written', turn.ending)
          return store.tasks.settle(...given)
        },
      },
      options: { onEnding: () => seen.push('announced') },
    })
    expect(turn.ending).toBe(false)
    end(complete('done'))
    await turn.done
    expect(seen).toEqual(['announced', 'written', true])
  })

  it('waits for entries that are still being written', async () => {
    const { turn } = await begin(async (inside) => {
      void inside.record('one')
      void inside.record('two')
      return { kind: 'release' }
    })
    await turn.done
    expect(await store.tasks.claim('next', 1, 1)).toMatchObject([{ journal: ['one', 'two'] }])
  })
})

describe('the bytes of an ended task', () => {
  it.each<[string, TaskTurnOutcome, number | undefined, number]>([
    ['its result', complete('12345'), undefined, 5],
    ['its error', { kind: 'fail', error: '123' }, undefined, 3],
    ['its error and its journal, if that is kept', { kind: 'fail', error: '123' }, 60_000, 3 + 7 + 4],
    ['its result alone, although failed tasks keep their journal', complete('12345'), 60_000, 5],
  ])('are those of %s', async (_what, outcome, keepFailedMs, bytes) => {
    const { turn, ended, row } = await begin(
      async (inside) => {
        await inside.record('1234')
        return outcome
      },
      { task: newTask({ journal: ['12', '34567'] }), options: { keepFailedMs } },
    )
    await turn.done
    expect(ended).toEqual([[alice, ENDED_BYTES + bytes]])
    const isKept = outcome.kind === 'fail' && keepFailedMs !== undefined
    expect((await row())?.keptUntil).toBe(isKept ? now + 60_000 : undefined)
  })

  it.each([
    [undefined, 0],
    [60_000, 7],
  ])(
    'are those of the journal if it failed too often and keeps it for %s ms',
    async (keepFailedMs, bytes) => {
      const { turn, ended } = await begin(() => noDatabase(), {
        task: newTask({ journal: ['12', '34567'] }),
        options: { keepFailedMs, maxFailures: 1 },
      })
      expect(await turn.done).toMatchObject({ kind: 'gave-up', failures: 1 })
      expect(ended).toEqual([[alice, ENDED_BYTES + bytes]])
    },
  )

  it.each<[string, TaskTurnOutcome]>([
    ['parks', { kind: 'park', inputs: inputs('a') }],
    ['is released', { kind: 'release' }],
    ['is held', { kind: 'hold' }],
  ])('are not counted for one that %s', async (_what, outcome) => {
    const { turn, ended } = await begin(async () => outcome)
    await turn.done
    expect(ended).toEqual([])
  })
})

describe('a turn that throws', () => {
  it('E5 is retried after a pause, and counts from one again if it recorded something', async () => {
    for (const records of [false, true]) {
      const error = new Error('not now')
      const task = newTask()
      await store.tasks.create(task, 10)
      await store.tasks.claim('dies', 0, 1)
      const { turn, row } = await begin(
        async (inside) => {
          if (records) await inside.record('progress')
          throw error
        },
        { task },
      )
      const failures = records ? 1 : 2
      expect(await turn.done).toEqual({ kind: 'retry', failures, error })
      expect(await row()).toMatchObject({ failures, dueAt: now + failures * 1_000 })
      await store.tasks.cancel(task.id, alice)
    }
  })

  it('E5 fails the task when it is the last that may', async () => {
    const error = new Error('never')
    const { turn, view } = await begin(() => Promise.reject(error), { options: { maxFailures: 1 } })
    expect(await turn.done).toEqual({ kind: 'gave-up', failures: 1, error })
    expect(await view()).toMatchObject({ status: 'failed', error: undefined })
  })

  it.each<[string, Partial<TaskStore>, number, string]>([
    ['cannot be released', { release: noDatabase }, 3, 'store failed'],
    ['cannot be failed', { settle: noDatabase }, 1, 'store failed'],
    ['belongs to another worker', { settle: async () => false }, 1, 'cancelled or taken over'],
  ])('E9 is lost if its task %s', async (_what, changes, maxFailures, reason) => {
    const { turn, ended } = await begin(() => noDatabase(), { changes, options: { maxFailures } })
    expect(await turn.done).toEqual({ kind: 'lost', reason })
    expect(ended).toEqual([])
  })

  it('E5 does not run again after as many failures as are allowed', async () => {
    const task = newTask()
    await store.tasks.create(task, 10)
    for (let i = 0; i < 3; i++) await store.tasks.claim('dies', 0, 1)
    let runs = 0
    const { turn } = await begin(
      async () => {
        runs += 1
        return complete('')
      },
      { task },
    )
    expect(await turn.done).toEqual({ kind: 'gave-up', failures: 3, error: undefined })
    expect(runs).toBe(0)
  })
})

describe('a turn that has lost its lease', () => {
  it('E9 is aborted with the first reason, and ends with it', async () => {
    const { turn, inside, end } = await hold()
    expect(turn.lost).toBeUndefined()
    turn.lose('lease ran out')
    turn.lose('draining')
    expect(turn.lost).toBe('lease ran out')
    expect(inside.signal.reason).toMatchObject({
      code: 'STORE_LEASE_LOST',
      message: expect.stringContaining('lease ran out'),
    })
    end(complete('late'))
    expect(await turn.done).toEqual({ kind: 'lost', reason: 'lease ran out' })
  })

  it.each<[string, Partial<TaskStore>, (turn: TaskTurn) => Promise<unknown>]>([
    ['an entry', { append: async () => false }, (turn) => turn.record('entry')],
    ['slots', { publish: async () => undefined }, (turn) => turn.publish({ open: [] })],
  ])('E9 learns of it when it writes %s, which rejects', async (_what, changes, write) => {
    const { turn, inside, end } = await hold({ changes })
    await expect(write(inside)).rejects.toMatchObject({ code: 'STORE_LEASE_LOST' })
    expect(turn.lost).toBe('cancelled or taken over')
    end(complete('late'))
    expect(await turn.done).toEqual({ kind: 'lost', reason: 'cancelled or taken over' })
  })

  it('E9 learns of it when it writes a message', async () => {
    const { turn, inside } = await hold({ changes: { status: async () => false } })
    await inside.status('half way')
    expect(turn.lost).toBe('cancelled or taken over')
  })

  it.each<[string, (turn: TaskTurn) => Promise<unknown> | undefined]>([
    ['entries', (turn) => turn.record('entry')],
    ['slots', (turn) => turn.publish({ open: [{ key: 'a', request: 'name?' }] })],
    ['messages', (turn) => turn.status('half way')],
    ['labels', (turn) => turn.label?.('labels', [])],
  ])('E9 does not even ask the store to write %s', async (_what, write) => {
    const asked: string[] = []
    const ask = (name: string) => async () => {
      asked.push(name)
      return true
    }
    const changes = { append: ask('append'), publish: ask('publish') as never, status: ask('status') }
    const { turn, inside } = await hold({ changes, options: { label: ask('label') } })
    turn.lose('lease ran out')
    await expect(write(inside)).rejects.toMatchObject({ code: 'STORE_LEASE_LOST' })
    expect(asked).toEqual([])
  })

  it('E9 does not write its outcome', async () => {
    let written = 0
    const { turn, end } = await hold({
      changes: {
        settle: async () => {
          written += 1
          return true
        },
      },
    })
    turn.lose('draining')
    end(complete('late'))
    expect(await turn.done).toEqual({ kind: 'lost', reason: 'draining' })
    expect(written).toBe(0)
  })

  it('E9 takes a failed write of its outcome for a failure of the store', async () => {
    const { turn, view } = await begin(async () => complete('done'), { changes: { settle: noDatabase } })
    expect(await turn.done).toEqual({ kind: 'lost', reason: 'store failed' })
    expect(await view()).toMatchObject({ status: 'working' })
  })
})

it('ends a task although nobody listens for its end', async () => {
  const options = { onEnded: undefined, maxFailures: 1 }
  const completed = await begin(async () => complete('done'), { options })
  expect(await completed.turn.done).toEqual({ kind: 'complete' })
  const failed = await begin(() => Promise.reject(new Error('no')), { options })
  expect(await failed.turn.done).toMatchObject({ kind: 'gave-up' })
})

describe('the journal of a turn', () => {
  it('is written before the outcome, though the handler has not waited for it', async () => {
    const writes: string[] = []
    let written = (_held: boolean) => {}
    const append = () => new Promise<boolean>((resolve) => (written = resolve))
    const settle = async () => writes.push('outcome') > 0
    const { turn, inside, end } = await hold({ changes: { append, settle } })
    void inside.record('entry')
    end(complete('done'))
    await settled()
    expect(writes).toEqual([])
    written(true)
    expect(await turn.done).toEqual({ kind: 'complete' })
    expect(writes).toEqual(['outcome'])
  })

  it('T18 may fill its limit, together with the entries from before, and not exceed it', async () => {
    const task = newTask({ journal: ['x'.repeat(60)] })
    const { inside, end, turn } = await hold({ task })
    await inside.record('y'.repeat(30))
    await expect(inside.record('z'.repeat(11))).rejects.toMatchObject({
      code: 'LIMIT_STATE_BYTES',
      message: expect.stringMatching(/101 bytes; at most 100/),
    })
    await inside.record('z'.repeat(10))
    end({ kind: 'release' })
    expect(await turn.done).toEqual({ kind: 'release' })
    const [next] = await store.tasks.claim('next', 1, 1)
    expect(next?.journal.map(({ length }) => length)).toEqual([60, 30, 10])
  })

  it('rejects every entry of a write that fails', async () => {
    const { inside } = await hold({ changes: { append: noDatabase } })
    const all = await Promise.allSettled(['1', '2', '3'].map((entry) => inside.record(entry)))
    expect(all.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected'])
  })
})

describe('labels', () => {
  it('are written one at a time, the newest only, and before the turn ends', async () => {
    const written: unknown[] = []
    const gates: (() => void)[] = []
    const { turn, inside, end } = await hold({
      options: {
        async label(fence, labels, tags) {
          written.push([fence.epoch, labels, tags])
          await new Promise<void>((resolve) => gates.push(resolve))
          return true
        },
      },
    })
    for (const labels of ['1', '2', '3']) void inside.label?.(labels, [`tag ${labels}`])
    await settled()
    expect(written).toEqual([[1, '1', ['tag 1']]])
    end(complete('done'))
    let ended = false
    void turn.done.then(() => {
      ended = true
    })
    gates.shift()?.()
    await settled()
    expect(written.slice(1)).toEqual([[1, '3', ['tag 3']]])
    expect(ended).toBe(false)
    gates.shift()?.()
    expect(await turn.done).toEqual({ kind: 'complete' })
  })

  it('are absent without a part for operators, and a lost lease rejects them', async () => {
    expect((await hold()).inside.label).toBeUndefined()
    const { turn, inside } = await hold({ options: { label: async () => false } })
    await expect(inside.label?.('labels', [])).rejects.toMatchObject({ code: 'STORE_LEASE_LOST' })
    expect(turn.lost).toBe('cancelled or taken over')
  })
})

describe('a message', () => {
  it('can be written after one that failed', async () => {
    const written: string[] = []
    const { inside } = await hold({
      changes: {
        status(_fence, message) {
          written.push(message)
          return message === 'bad' ? noDatabase() : Promise.resolve(true)
        },
      },
    })
    const failed = [inside.status('bad'), inside.status('never')]
    expect((await Promise.allSettled(failed)).map(({ status }) => status)).toEqual(['rejected', 'rejected'])
    await inside.status('good')
    expect(written).toEqual(['bad', 'good'])
  })
})

describe('the slots of a running turn', () => {
  const ask = { open: [{ key: 'a', request: 'name?' }] }

  it('E3 are open for answers, which the turn gets once', async () => {
    const { id, turn, inside } = await hold()
    expect(turn.waiting).toBe(false)
    await inside.publish(ask)
    expect(turn.waiting).toBe(true)
    const seen: unknown[] = []
    inside.onAnswers((slot) => {
      seen.push(slot)
      return true
    })
    await store.tasks.deliver(id, alice, answers({ a: 'Ada' }))
    await turn.refresh(7)
    expect(seen).toEqual([{ kind: 'answered', key: 'a', answer: 'Ada' }])
    expect(turn.waiting).toBe(false)
    await turn.refresh(8)
    expect(seen).toHaveLength(1)
    expect(inside.slots()).toEqual(seen)
  })

  it('E3 are read once for each revision', async () => {
    let reads = 0
    const slots: TaskStore['slots'] = (...given) => {
      reads += 1
      return store.tasks.slots(...given)
    }
    const { turn, inside } = await hold({ changes: { slots } })
    await inside.publish(ask)
    await turn.refresh(0)
    expect(reads).toBe(0)
    await turn.refresh(5)
    await turn.refresh(5)
    expect(reads).toBe(1)
    await turn.refresh(6)
    expect(reads).toBe(2)
  })

  it('E3 are read again for a revision whose read failed', async () => {
    let reads = 0
    const slots: TaskStore['slots'] = (...given) => {
      reads += 1
      return reads === 1 ? noDatabase() : store.tasks.slots(...given)
    }
    const { turn } = await hold({ changes: { slots } })
    await expect(turn.refresh(5)).rejects.toThrow('no database')
    await turn.refresh(5)
    expect(reads).toBe(2)
  })

  it('stay as they are if the task is gone', async () => {
    const { turn, inside } = await hold({ changes: { slots: async () => undefined } })
    await inside.publish(ask)
    await turn.refresh(5)
    expect(turn.waiting).toBe(true)
  })

  it('E3 make the task due when it parks, if the turn takes no more answers', async () => {
    const { id, turn, inside, end, row } = await hold()
    await inside.publish(ask)
    inside.onAnswers(() => false)
    await store.tasks.deliver(id, alice, answers({ a: 'Ada' }))
    await turn.refresh(5)
    expect(inside.slots()).toEqual([{ kind: 'open', key: 'a', request: 'name?' }])
    end({ kind: 'park', inputs: inputs('b') })
    await turn.done
    expect(await row()).toMatchObject({ dueAt: now, openKeys: ['b'] })
  })

  it('E3 give a turn without a listener nothing: its next one has the answer', async () => {
    const { id, turn, inside, end } = await hold()
    await inside.publish(ask)
    await store.tasks.deliver(id, alice, answers({ a: 'Ada' }))
    await turn.refresh(5)
    end({ kind: 'park', inputs: inputs('b') })
    await turn.done
    let given: unknown
    const [lease] = await store.tasks.claim('next', 1_000, 1)
    if (lease === undefined) throw new Error('the task is not due')
    const options = { maxFailures: 3, maxJournalBytes: 100, backoffMs: () => 0 }
    const next = runTurn(
      store.tasks,
      lease,
      async (again) => {
        given = again.answers
        return complete('done')
      },
      options,
    )
    await next.done
    expect(given).toEqual(answers({ a: 'Ada' }))
  })

  it('E3 take no answer for the turn while its outcome is being written', async () => {
    const gates: (() => void)[] = []
    const park: TaskStore['park'] = async (...given) => {
      await new Promise<void>((resolve) => gates.push(resolve))
      return store.tasks.park(...given)
    }
    const { id, turn, inside, end, row } = await hold({ changes: { park } })
    await inside.publish(ask)
    const seen: unknown[] = []
    inside.onAnswers((slot) => seen.push(slot) > 0)
    end({ kind: 'park', inputs: inputs('b') })
    await settled()
    expect(turn.waiting).toBe(false)
    await store.tasks.deliver(id, alice, answers({ a: 'Ada' }))
    await turn.refresh(5)
    expect(seen).toEqual([])
    gates[0]?.()
    await turn.done
    expect(await row()).toMatchObject({ dueAt: now })
  })

  it('are changed by one write at a time', async () => {
    const log: string[] = []
    const { turn, inside } = await hold({
      changes: {
        async publish(fence, slots) {
          log.push(`begins ${slots.map(({ key }) => key)}`)
          await settled()
          log.push('ends')
          return store.tasks.publish(fence, slots)
        },
      },
    })
    const publish = (key: string) => inside.publish({ open: [{ key, request: 'name?' }] })
    await Promise.all([publish('a'), publish('b')])
    expect(log).toEqual(['begins a', 'ends', 'begins a,b', 'ends'])
    expect(inside.slots().map(({ key }) => key)).toEqual(['a', 'b'])
    expect(turn.lost).toBeUndefined()
  })

  it('E9 give the turn up if a key was used before, because the next one reads them anew', async () => {
    const { turn, inside } = await hold()
    const publish = () => inside.publish({ open: [{ key: 'a', request: 'name?' }] })
    await publish()
    await expect(publish()).rejects.toThrow('was already used')
    expect(turn.lost).toBeDefined()
  })

  it('are written before the turn ends', async () => {
    const { turn, row } = await begin(async (inside) => {
      void inside.publish(ask)
      return { kind: 'park', inputs: inputs('b') }
    })
    expect(await turn.done).toMatchObject({ kind: 'park' })
    expect(await row()).toMatchObject({ openKeys: ['a', 'b'] })
  })
})

describe('a turn that is to end soon', () => {
  it('gets a signal for that, which does not abort it', async () => {
    const { turn, inside } = await hold()
    expect(inside.draining.aborted).toBe(false)
    turn.drain()
    expect(inside.draining.aborted).toBe(true)
    expect(inside.signal.aborted).toBe(false)
  })
})
