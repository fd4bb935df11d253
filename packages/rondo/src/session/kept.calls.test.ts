/** What is kept of calls that wait, on instances that are driven by hand. */

import { describe, expect, it } from 'vitest'
import {
  type Instance,
  LEASE_MS,
  settle,
  startInstances,
  type World,
} from '../../../../test/support/session-instances.ts'
import type { FlowHost } from '../carry/host.ts'
import type { StoredCall } from '../carry/push.ts'
import { RondoError } from '../errors.ts'
import type { PeerAnswer } from '../protocol/call.ts'
import type { Claims } from '../seal/state.ts'
import { type CallRecord, claimsOfCall, createKeptCalls, isParked, type KeptCalls } from './kept.ts'
import type { SessionLine } from './line.ts'
import type { SessionOptions } from './options.ts'
import type { SentQuestion } from './question.ts'
import { createRecords } from './records.ts'
import type { Session } from './session.ts'

const CLAIMS: Claims = {
  issuedAt: 1,
  roundExpires: 9,
  flowExpires: 9_000_000,
  flow: 'flow',
  round: 1,
  principal: 'alice',
  method: 'tools/call',
  request: 'digest',
  protocolVersion: '2025-11-25',
  asked: {},
  journal: { startedAt: 1, seed: 'seed', entries: [], moves: 0, reasks: {} },
}
const KEPT: StoredCall = { claims: CLAIMS, progress: 4, due: 8_000_000 }
const STREAM = 'c_one'
const NEWS = { kind: 'call', call: STREAM } as const
const HOUR = 3_600_000
const ADMIT = () => {}
const result = (content: unknown): PeerAnswer => ({ kind: 'result', result: content }) as PeerAnswer
const ERROR = { kind: 'error', code: -1, message: 'No' } as PeerAnswer

/** An instance, with the line of a call, and the answers that the call was given. */
interface Part extends Omit<Instance, 'session'> {
  readonly kept: KeptCalls
  readonly session: Session
  readonly line: SessionLine
  readonly left: string[]
  readonly given: unknown[]
}

interface Calls extends World {
  readonly parts: readonly [Part, Part, Part]
  readonly until: number
}

function start(options: SessionOptions = {}, more: Partial<FlowHost> = {}): Calls {
  const world = startInstances(3, options, more)
  const toPart = (instance: Instance): Part => {
    const { host, fleet, every } = instance
    const left: string[] = []
    const line = { leave: () => void left.push('left') } as unknown as SessionLine
    const kept = createKeptCalls(host, fleet, createRecords(host, fleet.records), every)
    return { ...instance, kept, session: instance.session(), line, left, given: [] }
  }
  const parts = world.instances.map(toPart) as [Part, Part, Part]
  return { ...world, parts, until: world.clock.now + HOUR }
}

/** Begins a call on an instance. */
function hold({ kept, session, line }: Part, taken?: CallRecord) {
  const terms = {
    id: 1,
    target: 'book',
    args: () => ({ a: 1 }),
    progressToken: 'p',
    protocolVersion: '2025-11-25',
  }
  const call = kept.hold(session, { name: STREAM }, { ...terms, scopes: () => ['read'] }, taken)
  call.attach(line)
  return call
}

/** Asks questions, whose answers are noted. */
function ask(
  { session, given }: Part,
  call: ReturnType<typeof hold>,
  keys: readonly string[],
): SentQuestion[] {
  return call.name(keys.length).map((id, index) => {
    session.expect((answer) => void given.push([keys[index], answer]), { id })
    return { id, key: keys[index] ?? '', json: '{}', event: index + 1 }
  })
}

/** A call on the first instance that waits for answers. */
async function park(world: Calls, keys: readonly string[] = ['a', 'b'], task?: string) {
  const [first] = world.parts
  const call = hold(first)
  const questions = ask(first, call, keys)
  await call.park(task === undefined ? { kept: KEPT } : { task }, questions, world.until)
  return { call, questions, ids: questions.map(({ id }) => id) }
}

const recordOf = async (part: Part) => (await part.kept.find(part.session, STREAM))?.value

/** Does something once, right after the instance has read a record. */
function afterRead({ fleet: { records } }: Part, work: () => Promise<unknown>): void {
  const { get } = records
  let isDone = false
  records.get = async (id) => {
    const seen = await get(id)
    if (!isDone) {
      isDone = true
      await work()
    }
    return seen
  }
}

describe('a call that is kept', () => {
  it('R2 uses no id of a question again that a record of an earlier release contains', async () => {
    const world = start()
    const [, second] = world.parts
    const { ids } = await park(world)
    const found = await second.kept.find(second.session, STREAM)
    if (found === undefined) throw new Error('nothing was kept')
    const value = { ...found.value, named: undefined }
    const taken = await second.kept.take(second.session, STREAM, { ...found, value }, 0)
    expect(ids).not.toContain(hold(second, taken).name(1)[0])
  })

  it('J1 leaves nothing behind if it is cancelled while it is being kept', async () => {
    const world = start()
    const [first] = world.parts
    const call = hold(first)
    const parking = call.park({ kept: KEPT }, [], world.until)
    expect(await call.drop()).toBe(true)
    await parking
    await first.kept.flush()
    expect(await recordOf(first)).toBeUndefined()
    expect(first.timers).toEqual([])
  })

  it('kept 1: is found at every instance, by its session and its owner', async () => {
    const world = start()
    const [first, second] = world.parts
    const { questions } = await park(world)
    expect(await recordOf(second)).toEqual({
      session: first.session.name,
      owner: 'alice',
      scopes: ['read'],
      request: { id: 1, target: 'book', args: { a: 1 }, progressToken: 'p' },
      protocolVersion: '2025-11-25',
      holder: first.session.tag,
      claims: expect.any(String),
      progress: 4,
      due: 8_000_000,
      started: false,
      until: world.until,
      questions,
      named: questions.length,
      answers: {},
    })
    const found = await second.kept.find(second.session, STREAM)
    expect(claimsOfCall(found?.value as CallRecord)).toEqual(CLAIMS)
    expect(await second.kept.find(second.session, 'c_two')).toBeUndefined()
    const others = [
      world.instances[1]?.session('bob'),
      world.instances[1]?.session('alice', undefined, 's.two'),
    ]
    for (const other of others) expect(await second.kept.find(other as never, STREAM)).toBeUndefined()
  })

  it('kept 1: lives until its time is up and a client might have resumed it', async () => {
    const world = start({ resumeMs: 5_000 })
    await park(world)
    world.clock.now += HOUR + 4_999
    expect(await recordOf(world.parts[1])).toBeDefined()
    world.clock.now += 1
    expect(await recordOf(world.parts[1])).toBeUndefined()
  })

  it('has no claims if it waits for a task, and no arguments', async () => {
    const world = start()
    const [first, second] = world.parts
    const terms = { id: 1, target: 'task', protocolVersion: '2025-11-25', scopes: () => [] }
    const call = first.kept.hold(first.session, { name: STREAM }, terms)
    await call.park({ task: 'task' }, [], world.until)
    const record = (await recordOf(second)) as CallRecord
    expect(record).toMatchObject({ task: 'task', started: false, request: { args: {} } })
    expect([claimsOfCall(record), isParked(record, 0)]).toEqual([undefined, true])
  })

  it('names its questions after its stream, and never twice', async () => {
    const world = start()
    const [first, second] = world.parts
    const { call, ids } = await park(world)
    expect([ids, call.name(1)]).toEqual([['c_one.1', 'c_one.2'], ['c_one.3']])
    const found = await second.kept.find(second.session, STREAM)
    const taken = await second.kept.take(second.session, STREAM, found as never, 0)
    expect(hold(second, taken).name(1)).toEqual(['c_one.3'])
    expect(first.kept.hold(first.session, { name: 'c_two' }, {} as never).name(1)).toEqual(['c_two.1'])
  })

  it.each<[string, Partial<CallRecord>, number, boolean]>([
    ['waits for answers', {}, 99, true],
    ['has no time left', {}, 100, false],
    ['has a question whose time is up', { due: 50 }, 50, false],
    ['runs', { started: true }, 0, false],
    ['waits for a task', { task: 'task', started: true }, 100, true],
  ])('kept 5: is run by nobody, or by somebody: one that %s', (_, record, now, expected) => {
    expect(isParked({ until: 100, ...record } as CallRecord, now)).toBe(expected)
  })

  it('kept 5: runs if it was kept before its first effect', async () => {
    const world = start()
    await hold(world.parts[0]).park({ kept: KEPT }, [], world.until)
    expect(await recordOf(world.parts[1])).toMatchObject({ started: true })
  })

  it.each([{}, { answers: {} }, { questions: [] }, 7])('is none if its record is %j', async (value) => {
    const { parts } = start()
    const [{ host, fleet, session, kept }] = parts
    const whole =
      typeof value === 'object' ? { session: session.name, owner: session.owner, ...value } : value
    await createRecords(host, fleet.records).put(`call ${STREAM}`, session, { value: whole, ttlMs: 1_000 }, 0)
    expect(await kept.find(session, STREAM)).toBeUndefined()
  })
})

describe('an answer to a question that is kept', () => {
  it('kept 2, kept 5: reaches the instance that asked, which says that it runs the call before it does', async () => {
    const world = start()
    const [first, second] = world.parts
    const { ids } = await park(world)
    const answer = (index: number, content: unknown) =>
      second.kept.answer(second.session, undefined, ids[index] ?? '', result(content), ADMIT)
    expect(await answer(0, 1)).toBe(true)
    expect(second.told).toEqual([NEWS])
    expect(first.given).toEqual([['a', result(1)]])
    expect(await recordOf(second)).toMatchObject({ started: false, answers: { 'c_one.1': result(1) } })
    expect(await answer(1, 2)).toBe(true)
    expect(first.given.at(-1)).toEqual(['b', result(2)])
    expect(await recordOf(second)).toMatchObject({ started: true })
    expect([first.left, second.left]).toEqual([[], []])
  })

  it('kept 5: lets the call run if it is a refusal, although others are missing', async () => {
    const world = start()
    const [first, second] = world.parts
    const { ids } = await park(world)
    await second.kept.answer(second.session, undefined, ids[0] ?? '', ERROR, ADMIT)
    expect(first.given).toEqual([['a', ERROR]])
    expect(await recordOf(second)).toMatchObject({ started: true })
  })

  it('kept 2: is not passed on if it reaches the instance that asked', async () => {
    const world = start()
    const [first] = world.parts
    const { call, ids } = await park(world)
    for (const id of ids)
      expect(await first.kept.answer(first.session, undefined, id, result(id), ADMIT)).toBe(true)
    expect(first.given).toEqual([
      ['a', result('c_one.1')],
      ['b', result('c_one.2')],
    ])
    expect(first.told).toEqual([])
    expect(await recordOf(first)).toMatchObject({ started: true })
    const before = first.reads.length
    expect(await call.settle('response')).toBe(true)
    expect(first.reads).toHaveLength(before)
  })

  it('kept 2: names a call with so many questions', async () => {
    const world = start()
    const [first, second] = world.parts
    const { ids } = await park(world, [...'abcdefghijkl'])
    expect(ids[11]).toBe('c_one.12')
    expect(await second.kept.answer(second.session, undefined, 'c_one.12', result(1), ADMIT)).toBe(true)
    expect(first.given).toEqual([['l', result(1)]])
  })

  it('kept 1: lives as long as the call, whoever answers', async () => {
    const world = start({ resumeMs: 5_000 })
    const [first, second] = world.parts
    const { ids } = await park(world)
    world.clock.now += 1_000
    await second.kept.answer(second.session, undefined, ids[0] ?? '', result(1), ADMIT)
    expect(second.writes.at(-1)?.ttlMs).toBe(HOUR + 4_000)
    await second.kept.answer(second.session, undefined, ids[1] ?? '', result(1), ADMIT)
    expect(first.writes.at(-1)?.ttlMs).toBe(HOUR + 4_000)
  })

  it('kept 2: is passed on by an instance whose call is only in the store by now', async () => {
    const world = start()
    const [first] = world.parts
    const { call, ids } = await park(world)
    call.release()
    await first.kept.flush()
    expect(await first.kept.answer(first.session, undefined, ids[0] ?? '', result(1), ADMIT)).toBe(true)
    expect([first.told, first.given]).toEqual([[NEWS], []])
  })

  it('kept 2: is passed on by an instance that has lost the call without learning of it', async () => {
    const world = start()
    const [first, second] = world.parts
    const { ids } = await park(world)
    const found = await second.kept.find(second.session, STREAM)
    first.link.isAway = true
    await second.kept.take(second.session, STREAM, found as never, 9)
    first.link.isAway = false
    await first.kept.answer(first.session, undefined, ids[0] ?? '', result(1), ADMIT)
    expect(first.told).toEqual([NEWS])
    expect(first.given).toEqual([])
  })

  it('R2 kept 2: counts if it is the first', async () => {
    const world = start()
    const [first, second] = world.parts
    const { ids } = await park(world)
    const answer = (part: Part, content: unknown) =>
      part.kept.answer(part.session, undefined, ids[0] ?? '', result(content), ADMIT)
    await answer(second, 1)
    expect(await answer(second, 2)).toBe(true)
    expect(await answer(first, 3)).toBe(true)
    expect((await recordOf(first))?.answers).toEqual({ 'c_one.1': result(1) })
    expect(first.given.every((one) => JSON.stringify(one) === JSON.stringify(['a', result(1)]))).toBe(true)
    // Told again, in case that the instance that stored it failed.
    expect([second.told.length, first.told.length]).toEqual([2, 0])
  })

  it('R2 kept 2: is the first if another one is stored at the same moment', async () => {
    const world = start()
    const [, second] = world.parts
    const { ids } = await park(world)
    let isFirst = true
    second.link.beforePut = async () => {
      if (!isFirst) return
      isFirst = false
      await second.kept.answer(second.session, undefined, ids[0] ?? '', result('other'), ADMIT)
    }
    expect(await second.kept.answer(second.session, undefined, ids[0] ?? '', result('late'), ADMIT)).toBe(
      true,
    )
    expect((await recordOf(second))?.answers).toEqual({ 'c_one.1': result('other') })
  })

  it('T15 is none if no such question is open', async () => {
    const world = start()
    const [first, second] = world.parts
    await park(world)
    const answer = (id: string | number, session = second.session) =>
      second.kept.answer(session, undefined, id, result(1), ADMIT)
    const reads = second.reads.length
    expect(await Promise.all([7, 'ask.1', 'c_one.1x', 'xc_one.1', 'c_one.'].map((id) => answer(id)))).toEqual(
      Array(5).fill(false),
    )
    expect(second.reads).toHaveLength(reads)
    expect(await answer('c_one.1', second.session)).toBe(true)
    expect(second.reads.length).toBeGreaterThan(reads)
    expect(await answer('c_two.1')).toBe(false)
    expect(await answer('c_one.1', world.instances[1]?.session('bob'))).toBe(false)
    await answer('c_one.9')
    expect(Object.keys((await recordOf(first))?.answers ?? {})).toEqual(['c_one.1'])
  })

  it('T15 is not looked for if no instance can have asked its question', async () => {
    const world = start()
    const [, second] = world.parts
    const secret = world.instances[1]?.session('alice', 'secret', 's.two')
    const reads = second.reads.length
    expect(await second.kept.answer(secret as never, undefined, 'c_one.1', result(1), ADMIT)).toBe(false)
    expect(second.reads).toHaveLength(reads)
  })

  it('E6 is not stored if its token does not allow the call', async () => {
    const world = start()
    const [, second] = world.parts
    const { ids } = await park(world)
    const asked: unknown[] = []
    const refuse = (scopes: readonly string[]) => {
      asked.push(scopes)
      throw new Error('scope')
    }
    await expect(
      second.kept.answer(second.session, undefined, ids[0] ?? '', result(1), refuse),
    ).rejects.toThrow('scope')
    expect(asked).toEqual([['read']])
    expect((await recordOf(second))?.answers).toEqual({})
  })

  it('kept 2: is refused if the store has no room for it', async () => {
    const world = start()
    const [first, second] = world.parts
    const { ids } = await park(world)
    second.link.isFull = true
    await expect(
      second.kept.answer(second.session, undefined, ids[0] ?? '', result(1), ADMIT),
    ).rejects.toMatchObject({ code: 'STORE_BUSY' })
    expect(first.given).toEqual([])
  })
})

describe('answers to the questions of a task', () => {
  it('F1 reach the task all at once, when the last one is there', async () => {
    const delivered: unknown[] = []
    const engine = { deliver: async (id: string) => void delivered.push(id) }
    const world = start({}, { tasks: { engine } as never })
    const [, second] = world.parts
    const { ids } = await park(world, ['a', 'b'], 'task')
    const answer = (index: number, given: PeerAnswer) =>
      second.kept.answer(second.session, undefined, ids[index] ?? '', given, ADMIT)
    await answer(0, result(1))
    expect(delivered).toEqual([])
    await answer(1, result(2))
    expect(delivered).toEqual(['task'])
    expect(second.told).toHaveLength(2)
  })

  it('F1 do not reach it if one is an error, or the call is none of a task', async () => {
    const delivered: unknown[] = []
    const engine = { deliver: async (id: string) => void delivered.push(id) }
    for (const task of ['task', undefined]) {
      const world = start({}, { tasks: { engine } as never })
      const [, second] = world.parts
      const { ids } = await park(world, ['a'], task)
      const given = task === undefined ? result(1) : ERROR
      await second.kept.answer(second.session, undefined, ids[0] ?? '', given, ADMIT)
    }
    expect(delivered).toEqual([])
    const none = start()
    const { ids } = await park(none, ['a'], 'task')
    expect(
      await none.parts[1].kept.answer(none.parts[1].session, undefined, ids[0] ?? '', ERROR, ADMIT),
    ).toBe(true)
  })
})

describe('the instance that has a call', () => {
  it('kept 3: shows that it lives, as long as it has the call', async () => {
    const world = start()
    const [first, second] = world.parts
    expect(first.timers).toEqual([])
    const { call } = await park(world)
    expect(first.timers.map(({ ms }) => ms)).toEqual([LEASE_MS / 3])
    const quiet = async () => (await second.kept.find(second.session, STREAM))?.quietMs
    world.clock.now += 1_000
    expect(await quiet()).toBe(1_000)
    first.timers[0]?.tick()
    await first.kept.flush()
    expect(await quiet()).toBe(0)
    await call.settle('response')
    world.clock.now += 1_000
    first.timers[0]?.tick()
    await first.kept.flush()
    expect(await quiet()).toBe(1_000)
    await second.kept.hold(second.session, { name: 'c_two' }, { scopes: () => [] } as never).park({}, [], 1e7)
    first.kept.close()
    first.kept.close()
    expect([first.timers.length, second.timers.length]).toEqual([0, 1])
  })

  it('kept 3: shows it 20 times a second at most', async () => {
    const world = start({}, { leaseMs: 60 })
    await park(world)
    expect(world.parts[0].timers[0]?.ms).toBe(50)
  })

  it('learns of answers when news were lost, of all of its calls', async () => {
    const world = start()
    const [first, second] = world.parts
    const { ids } = await park(world)
    const records = createRecords(second.host, second.fleet.records)
    const edit = (record?: CallRecord) =>
      record && { value: { ...record, answers: { [ids[0] ?? '']: result(1) } }, ttlMs: HOUR }
    await records.change(`call ${STREAM}`, second.session, edit, (value) => value as CallRecord)
    await first.hear({ kind: 'change', change: { kind: 'tools' } })
    await first.hear({ kind: 'session', session: 'x' })
    expect(first.given).toEqual([])
    await first.hear({ kind: 'change', change: { kind: 'everything' } })
    expect(first.given).toEqual([['a', result(1)]])
  })

  it('learns of answers as soon as the store is there again', async () => {
    const world = start()
    const [first, second] = world.parts
    const { ids } = await park(world)
    first.link.isAway = true
    await second.kept.answer(second.session, undefined, ids[0] ?? '', result(1), ADMIT)
    first.timers[0]?.tick()
    await first.kept.flush()
    expect(first.log).not.toEqual([])
    expect(first.log[0]).toMatchObject({ event: 'warning', error: expect.any(Error) })
    first.link.isAway = false
    first.timers[0]?.tick()
    await first.kept.flush()
    expect(first.given).toEqual([['a', result(1)]])
    const reads = first.reads.length
    first.timers[0]?.tick()
    await first.kept.flush()
    expect(first.reads).toHaveLength(reads)
  })

  it('forgets news that it could not read of a call that has ended', async () => {
    const world = start()
    const [first] = world.parts
    const { call } = await park(world)
    first.link.isAway = true
    const hearing = first.hear(NEWS).catch(() => {})
    await call.settle('response')
    await hearing
    first.link.isAway = false
    const reads = first.reads.length
    first.timers[0]?.tick()
    await first.kept.flush()
    expect(first.reads).toHaveLength(reads)
  })

  it('kept 3: drops the call without a word if another instance has it', async () => {
    const world = start()
    const [first, second] = world.parts
    const { call } = await park(world)
    expect([call.isKept(), await call.isTaken()]).toEqual([true, false])
    const found = await second.kept.find(second.session, STREAM)
    first.link.isAway = true
    expect(await second.kept.take(second.session, STREAM, found as never, 0)).toBeDefined()
    await settle()
    expect([first.left, await call.isTaken()]).toEqual([[], false])
    first.link.isAway = false
    expect(await call.isTaken()).toBe(true)
    await first.hear(NEWS)
    expect(first.left).toEqual(['left'])
    await first.hear(NEWS)
    expect([first.left.length, second.left.length]).toEqual([1, 0])
    expect(second.told).toEqual([NEWS])
  })

  it('kept 5: runs no call that another instance takes at that moment', async () => {
    const world = start()
    const [first, second] = world.parts
    const { ids } = await park(world, ['a'])
    const found = await second.kept.find(second.session, STREAM)
    first.link.isAway = true
    await second.kept.answer(second.session, undefined, ids[0] ?? '', result(1), ADMIT)
    first.link.isAway = false
    const again = await second.kept.find(second.session, STREAM)
    expect(found).toBeDefined()
    afterRead(first, () => second.kept.take(second.session, STREAM, again as never, 0))
    await first.hear(NEWS)
    expect([first.given, first.left.length > 0]).toEqual([[], true])
    expect(await recordOf(second)).toMatchObject({ holder: second.session.tag })
  })

  it('kept 5: runs no call whose record is gone at that moment', async () => {
    const world = start()
    const [first, second] = world.parts
    const { ids } = await park(world, ['a'])
    first.link.isAway = true
    await second.kept.answer(second.session, undefined, ids[0] ?? '', result(1), ADMIT)
    first.link.isAway = false
    afterRead(first, () => first.fleet.records.remove(`test call ${STREAM}`))
    await first.hear(NEWS)
    expect([first.given, first.left]).toEqual([[], []])
    const gone = first.reads.length
    await first.hear(NEWS)
    expect(first.reads.length).toBeGreaterThan(gone)
    expect([first.given, first.left]).toEqual([[], []])
  })

  it('is not told of a call without a line that it has lost', async () => {
    const world = start()
    const [first, second] = world.parts
    const terms = { id: 1, target: 'a', protocolVersion: '2025-11-25', scopes: () => [] }
    await first.kept.hold(first.session, { name: STREAM }, terms).park({ task: 'task' }, [], world.until)
    const found = await second.kept.find(second.session, STREAM)
    await second.kept.take(second.session, STREAM, found as never, 0)
    await settle()
    expect(first.log).toEqual([])
  })

  it('touches nothing while it has no call', async () => {
    const world = start()
    const [first] = world.parts
    const { call } = await park(world)
    await call.settle('response')
    let touched = 0
    first.fleet.records.touch = async () => {
      touched += 1
    }
    first.timers[0]?.tick()
    await first.kept.flush()
    expect(touched).toBe(0)
  })

  it('reads nothing of calls that it does not have', async () => {
    const world = start()
    await park(world)
    const reads = world.parts[1].reads.length
    await world.parts[1].hear(NEWS)
    expect(world.parts[1].reads).toHaveLength(reads)
  })

  it('keeps the next questions of its call in the same record, without reading it', async () => {
    const world = start()
    const [first, second] = world.parts
    const { call } = await park(world)
    const reads = first.reads.length
    const questions = ask(first, call, ['c'])
    await call.park({ kept: KEPT }, questions, world.until)
    expect(first.reads).toHaveLength(reads)
    expect(await recordOf(second)).toMatchObject({ questions, answers: {} })
  })

  it('R7 cannot keep a call that another instance has, and leaves it', async () => {
    const world = start()
    const [first, second] = world.parts
    const { call } = await park(world)
    first.hear = async () => {}
    const found = await second.kept.find(second.session, STREAM)
    first.link.isAway = true
    await second.kept.take(second.session, STREAM, found as never, 0)
    first.link.isAway = false
    await expect(call.park({ kept: KEPT }, [], world.until)).rejects.toMatchObject({ code: 'STATE_INVALID' })
    expect(first.left).toEqual(['left'])
    expect(await recordOf(second)).toMatchObject({ holder: second.session.tag })
  })

  it('R7 cannot keep a call again whose record is gone', async () => {
    const world = start()
    const [first] = world.parts
    const { call } = await park(world)
    await world.store.remove(`test call ${STREAM}`)
    await expect(call.park({ kept: KEPT }, [], world.until)).rejects.toMatchObject({ code: 'STATE_INVALID' })
    expect(first.left).toEqual([])
  })

  it('R9 keeps no call for which there is no room', async () => {
    const world = start()
    const [first] = world.parts
    first.link.isFull = true
    const call = hold(first)
    await expect(call.park({ kept: KEPT }, [], world.until)).rejects.toMatchObject({ code: 'LIMIT_PARKED' })
    expect([call.isKept(), first.timers]).toEqual([false, []])
  })
})

describe('the response to a call that is kept', () => {
  it('kept 4: is in the store, and nothing else of the call', async () => {
    const world = start({ resumeMs: 10_000 })
    const [first, second] = world.parts
    const { call } = await park(world)
    expect(await call.settle('response')).toBe(true)
    expect(await recordOf(second)).toMatchObject({
      response: 'response',
      questions: [],
      answers: {},
      request: { id: 1, target: 'book', args: {} },
    })
    expect(await recordOf(second)).not.toHaveProperty('claims')
    expect(first.writes.at(-1)).toMatchObject({ owner: 'ended alice', ttlMs: 10_000 })
    const short = start({ resumeMs: 1 })
    await (await park(short)).call.settle('response')
    expect(short.parts[0].writes.at(-1)?.ttlMs).toBe(LEASE_MS)
  })

  it('is not sent by an instance that has lost the call', async () => {
    const world = start()
    const [first, second] = world.parts
    const { call } = await park(world)
    const found = await second.kept.find(second.session, STREAM)
    first.link.isAway = true
    await second.kept.take(second.session, STREAM, found as never, 0)
    first.link.isAway = false
    expect(await call.settle('late')).toBe(false)
    expect(await recordOf(second)).toMatchObject({ holder: second.session.tag })
    expect(await recordOf(second)).not.toHaveProperty('response')
  })

  it('R2 kept 4: is not replaced', async () => {
    const world = start()
    const [, second] = world.parts
    await park(world)
    const found = await second.kept.find(second.session, STREAM)
    const call = hold(second, await second.kept.take(second.session, STREAM, found as never, 0))
    expect(await call.settle('one')).toBe(true)
    expect(await call.settle('two')).toBe(false)
    expect(await recordOf(second)).toMatchObject({ response: 'one' })
  })

  it('kept 4: is not changed by an answer that its instance reads too late', async () => {
    const world = start()
    const [first, second] = world.parts
    const { call, ids } = await park(world, ['a'])
    first.link.isAway = true
    await second.kept.answer(second.session, undefined, ids[0] ?? '', result(1), ADMIT)
    first.link.isAway = false
    afterRead(first, () => call.settle('response'))
    await first.hear(NEWS)
    expect(await recordOf(second)).toMatchObject({ response: 'response', started: false })
    expect(first.given).toEqual([])
  })

  it('is sent if it cannot be kept, or the record of its call has expired', async () => {
    const world = start()
    const [first] = world.parts
    const { call } = await park(world)
    first.link.isFull = true
    expect(await call.settle('response')).toBe(true)
    await first.kept.flush()
    expect(await recordOf(first)).toBeUndefined()
    first.link.isFull = false
    expect(await call.settle('response')).toBe(true)
    const other = start()
    const away = await park(other)
    other.parts[0].link.isAway = true
    expect(await away.call.settle('response')).toBe(true)
    await other.parts[0].kept.flush()
    expect(other.parts[0].log).toHaveLength(1)
  })
})

describe('a call that is over', () => {
  it('is removed, unless another instance has it', async () => {
    const world = start()
    const [first] = world.parts
    const { call } = await park(world)
    expect(await call.drop()).toBe(true)
    await first.kept.flush()
    expect(first.writes.at(-1)).toMatchObject({ ttlMs: LEASE_MS })
    expect(await recordOf(first)).toBeUndefined()
    expect(await call.drop()).toBe(true)
    const reads = first.reads.length
    first.timers[0]?.tick()
    await first.hear(NEWS)
    expect(first.reads).toHaveLength(reads)
  })

  it('R7 cannot be taken while it is removed', async () => {
    const world = start()
    const [first, second] = world.parts
    const { call } = await park(world, ['a'], 'task')
    const found = await second.kept.find(second.session, STREAM)
    first.fleet.records.remove = async () => {}
    await call.drop()
    const record = (await recordOf(second)) as CallRecord
    expect([isParked(record, world.clock.now), record.questions]).toEqual([false, []])
    expect(await second.kept.take(second.session, STREAM, found as never, 0)).toBeUndefined()
  })

  it('is no longer known here if it cannot be read', async () => {
    const world = start()
    const [first] = world.parts
    const { call } = await park(world)
    await world.store.remove(`test call ${STREAM}`)
    first.link.beforePut = () => world.store.remove(`test call ${STREAM}`)
    expect(await call.drop()).toBe(true)
  })

  it('is left to the instance that has it', async () => {
    const world = start()
    const [first, second] = world.parts
    const { call } = await park(world)
    const found = await second.kept.find(second.session, STREAM)
    first.link.isAway = true
    await second.kept.take(second.session, STREAM, found as never, 0)
    first.link.isAway = false
    expect(await call.drop()).toBe(false)
    await first.kept.flush()
    expect(await recordOf(second)).toMatchObject({ holder: second.session.tag })
  })

  it('counts as this instance’s if the store is away, or nothing of it was kept', async () => {
    const world = start()
    const [first] = world.parts
    const { call } = await park(world)
    first.link.isAway = true
    expect(await call.drop()).toBe(true)
    expect(await hold(first).drop()).toBe(true)
    await first.kept.flush()
    expect(first.log).toHaveLength(1)
  })

  it('logs nothing about a store of which the log says already that it fails', async () => {
    for (const isSaid of [true, false, undefined]) {
      const storeWatch = isSaid === undefined ? undefined : { isSaid: () => isSaid }
      const world = start({}, { storeWatch } as never)
      const [first] = world.parts
      const { call } = await park(world)
      first.fleet.records.put = () => Promise.reject(new RondoError('STORE_UNAVAILABLE'))
      await call.settle('response')
      await first.kept.flush()
      expect(first.log).toHaveLength(isSaid ? 0 : 1)
    }
  })
})

describe('a call that is released', () => {
  it('kept 5: has no holder, and is no longer touched', async () => {
    const world = start({ resumeMs: 5_000 })
    const [first, second] = world.parts
    const { call, questions } = await park(world)
    call.release()
    await first.kept.flush()
    expect(await recordOf(second)).toMatchObject({ holder: '', questions })
    expect(first.writes.at(-1)?.ttlMs).toBe(HOUR + 5_000)
    world.clock.now += 1_000
    first.timers[0]?.tick()
    await first.kept.flush()
    expect((await second.kept.find(second.session, STREAM))?.quietMs).toBe(1_000)
  })

  it('kept 5: gets no response from the instance that released it', async () => {
    const world = start()
    const [first, second] = world.parts
    const { call, questions } = await park(world)
    call.release()
    await first.kept.flush()
    expect([await call.isTaken(), await call.settle('late')]).toEqual([true, false])
    expect(await recordOf(second)).toMatchObject({ holder: '', questions })
  })

  it('stays with the instance that has it', async () => {
    const world = start()
    const [first, second] = world.parts
    const { call } = await park(world)
    const found = await second.kept.find(second.session, STREAM)
    first.link.isAway = true
    await second.kept.take(second.session, STREAM, found as never, 0)
    first.link.isAway = false
    call.release()
    await first.kept.flush()
    expect(await recordOf(second)).toMatchObject({ holder: second.session.tag })
  })
})

describe('a call that is taken over', () => {
  const take = async (part: Part, seen: number) => {
    const found = await part.kept.find(part.session, STREAM)
    return part.kept.take(part.session, STREAM, found as never, seen)
  }

  it('J1 numbers the questions that the client has not seen and nobody has answered', async () => {
    const world = start({ resumeMs: 5_000 })
    const [, second] = world.parts
    const { ids } = await park(world, ['a', 'b', 'c', 'd'])
    await second.kept.answer(second.session, undefined, ids[2] ?? '', result(1), ADMIT)
    const taken = await take(second, 1)
    expect(taken).toMatchObject({ holder: second.session.tag, started: false })
    expect(taken?.questions.map(({ event }) => event)).toEqual([1, 2, 3, 3])
    expect(await recordOf(second)).toEqual(taken)
    expect(second.writes.at(-1)?.ttlMs).toBe(HOUR + 5_000)
  })

  it.each<[string, readonly PeerAnswer[], boolean]>([
    ['has no answer', [], false],
    ['has one answer', [result(1)], false],
    ['has one answer and a refusal', [result(1), ERROR], true],
    ['has all answers', [result(1), result(2), result(3)], true],
  ])('kept 5: runs only if nothing is missing: one that %s', async (_, answers, started) => {
    const world = start()
    const [first, second] = world.parts
    const { call, ids } = await park(world, ['a', 'b', 'c'])
    call.release()
    await first.kept.flush()
    for (const [index, answer] of answers.entries())
      await second.kept.answer(second.session, undefined, ids[index] ?? '', answer, ADMIT)
    expect(await recordOf(second)).toMatchObject({ started: false })
    expect(await take(second, 0)).toMatchObject({ started })
  })

  it('kept 5: runs if it ran before, and not if it waits for a task', async () => {
    for (const call of [{ kept: KEPT }, { task: 'task' }]) {
      const world = start()
      await hold(world.parts[0]).park(call, [], world.until)
      expect(await take(world.parts[1], 0)).toMatchObject({ started: call.task === undefined })
    }
  })

  it('kept 3: is taken by one of any number that try', async () => {
    const world = start()
    const [, second, third] = world.parts
    await park(world)
    const taken = await Promise.all([take(second, 0), take(third, 0)])
    expect(taken.filter((one) => one !== undefined)).toHaveLength(1)
  })

  it('R7 is lost to an earlier run of its instance, even if a release that names no take-over had it in between', async () => {
    const world = start()
    const [first, second] = world.parts
    await park(world)
    const earlier = hold(first, await take(first, 0))
    const value = { ...((await take(second, 0)) as CallRecord), take: undefined }
    const { version = 0 } = (await second.kept.find(second.session, STREAM)) ?? {}
    const records = createRecords(second.host, second.fleet.records)
    await records.put(`call ${STREAM}`, second.session, { value, ttlMs: HOUR }, version)
    const later = hold(first, await take(first, 0))
    expect([await earlier.isTaken(), await later.isTaken()]).toEqual([true, false])
  })

  it('kept 3: is left by an instance that had taken it, once another takes it', async () => {
    const world = start()
    const [, second, third] = world.parts
    await park(world)
    hold(second, await take(second, 0))
    await take(third, 0)
    await settle()
    expect([second.left, third.left]).toEqual([['left'], []])
  })

  it('kept 3: stays with an instance to which it comes back while that instance reads who has it', async () => {
    const world = start()
    const [first, second] = world.parts
    const { ids } = await park(world)
    first.link.isAway = true
    await take(second, 0)
    first.link.isAway = false
    const line = { leave() {} } as unknown as SessionLine
    afterRead(first, async () => hold({ ...first, line }, await take(first, 0)))
    await first.hear(NEWS)
    expect(first.left).toEqual(['left'])
    await first.kept.answer(first.session, undefined, ids[0] ?? '', result(1), ADMIT)
    expect(first.given).toEqual([['a', result(1)]])
  })

  it('is held by the instance that took it, with the answers that are there', async () => {
    const world = start()
    const [first, second] = world.parts
    const { ids } = await park(world)
    const taken = await take(second, 0)
    await second.kept.answer(second.session, undefined, ids[0] ?? '', result(1), ADMIT)
    const call = second.kept.hold(
      second.session,
      { name: STREAM },
      { id: 1, target: 'book', protocolVersion: '2025-11-25', scopes: () => [] },
      taken,
    )
    second.session.expect((answer) => void second.given.push(answer), { id: ids[0] ?? '' })
    call.attach(second.line)
    expect([call.isKept(), second.timers.length]).toEqual([true, 1])
    call.catchUp()
    await second.kept.flush()
    expect(second.given).toEqual([result(1)])
    expect(await call.settle('response')).toBe(true)
    expect(first.left).toEqual(['left'])
  })
})
