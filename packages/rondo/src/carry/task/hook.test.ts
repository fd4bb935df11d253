import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { LogEvent } from '../../log/event.ts'
import { sealEnvelope } from '../../seal/envelope.ts'
import { createHost, type OpenHost } from '../../serve/host.ts'
import { createMemoryStore } from '../../store/memory/store.ts'
import { createTaskId, type TaskTurn } from '../../store/task-engine.ts'
import type { Target } from '../../tool/target.ts'
import type { TaskHost } from '../host.ts'
import { deliverEvent, type EventDelivery, eventsOf, type HookView, hooksOf, viewHook } from './hook.ts'
import { ownerOf } from './journal.ts'

const DAY = 86_400_000
const START = 1_800_000_000_000

let time = START
let host: OpenHost
let tasks: TaskHost
let events: LogEvent[] = []

beforeEach(async () => {
  time = START
  events = []
  host = createHost({
    audience: 'shop',
    keys: 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=',
    log: (event) => void events.push(event),
    store: createMemoryStore({ now: () => time }),
    now: () => time,
    limits: { maxTextLength: 20 },
  })
  tasks = host.tasks as TaskHost
  await host.keys.ready()
})
afterEach(() => host.close())

const ann = { subject: 'ann' }
type Hooks = ReturnType<typeof hooksOf>

/** Parks a task of Ann's after a turn that did this. */
async function park(
  act: (hooks: Hooks, turn: TaskTurn) => Promise<void>,
  target: Partial<Target> = { name: 'pay' },
): Promise<string> {
  const id = createTaskId()
  let parked = (): void => {}
  let failed = (_error: unknown): void => {}
  const turned = new Promise<void>((resolve, reject) => {
    parked = resolve
    failed = reject
  })
  const serving = await tasks.engine.serve(async (turn) => {
    const hooks = hooksOf({ host, tasks, turn, target: target as Target, principal: ann })
    await act(hooks, turn).then(parked, failed)
    return { kind: 'park', inputs: new Map() }
  })
  await tasks.engine.create({ id, owner: ownerOf(host, ann), head: 'head', ttlMs: DAY, pollMs: 1 })
  await turned.finally(() => serving.stop())
  return id
}

const view = (id: string): Promise<HookView> => viewHook(host, tasks, id)
const deliver = (id: string, event: unknown, target?: Partial<Target>): Promise<EventDelivery> =>
  deliverEvent(host, tasks, () => target as Target | undefined, id, event)

describe('a hook', () => {
  it('E9 G3 that a worker opened before it died keeps its id, what is stored with it, and its event', async () => {
    const ids: string[] = []
    await park(async (hooks) => {
      ids.push(await hooks.open('paid', { about: 'first' }, START + 5))
      ids.push(await hooks.open('paid', { about: 'second' }, START + 9))
    })
    for (const id of ids) expect(await view(id)).toMatchObject({ about: 'first', until: START + 5 })
    expect(await deliver(ids[0] ?? '', 1)).toEqual({ kind: 'accepted' })
    expect(await view(ids[1] ?? '')).toEqual({ kind: 'received' })
  })

  it('G3 is not the question that has its name, nor another hook of its task', async () => {
    const ids: string[] = []
    await park(async (hooks, turn) => {
      await turn.publish({ open: [{ key: 'paid', role: 'offer', request: 'r' }] })
      for (const key of ['visited', 'paid']) ids.push(await hooks.open(key, { about: key }, undefined))
    })
    const [visited = '', paid = ''] = ids
    expect(await deliver(paid, 1)).toEqual({ kind: 'accepted' })
    expect(await view(paid)).toEqual({ kind: 'received' })
    expect(await view(visited)).toEqual({ kind: 'open', about: 'visited' })
  })

  it('G3 is closed once the handler has closed it, or its time is up', async () => {
    const ids: string[] = []
    await park(async (hooks) => {
      ids.push(await hooks.open('closed', {}, undefined))
      ids.push(await hooks.open('timed', {}, START + 5))
      await hooks.close('closed')
    })
    const [closed = '', timed = ''] = ids
    expect(await view(closed)).toEqual({ kind: 'closed' })
    expect(await deliver(closed, 1)).toEqual({ kind: 'closed' })
    time = START + 4
    expect(await view(timed)).toMatchObject({ kind: 'open' })
    time = START + 5
    expect(await view(timed)).toEqual({ kind: 'closed' })
    expect(await deliver(timed, 1)).toEqual({ kind: 'closed' })
  })

  it('G3 takes plain JSON within the limits', async () => {
    let id = ''
    await park(async (hooks) => {
      id = await hooks.open('paid', {}, undefined)
    })
    for (const [event, problem] of [
      [undefined, 'it is undefined'],
      [() => 1, 'plain JSON'],
      [{ note: 'x'.repeat(21) }, 'note'],
    ] as const)
      expect(await deliver(id, event)).toEqual({
        kind: 'rejected',
        problem: expect.stringContaining(problem),
      })
    expect(await deliver(id, { note: 'x'.repeat(20) })).toEqual({ kind: 'accepted' })
  })

  it('G3 takes what its schema describes', async () => {
    let id = ''
    await park(async (hooks) => {
      id = await hooks.open('paid', { schema: { type: 'object', required: ['sum'] } }, undefined)
    })
    expect(await deliver(id, {})).toEqual({ kind: 'rejected', problem: expect.stringContaining('sum') })
    expect(await deliver(id, { sum: 7 })).toEqual({ kind: 'accepted' })
  })

  it('G3 takes no event that is too large to be kept, and stays open', async () => {
    let id = ''
    await park(async (hooks) => {
      id = await hooks.open('paid', {}, undefined)
    })
    const small = { ...tasks, maxPieceBytes: 2_000 }
    const large = deliverEvent({ ...host, tasks: small }, small, () => undefined, id, Array(2_000).fill(1))
    expect(await large).toEqual({ kind: 'rejected', problem: 'The event is too large' })
    expect(await deliver(id, 1)).toEqual({ kind: 'accepted' })
  })

  it('G3 needs a name that a store can keep', async () => {
    const opening = park(async (hooks) => void (await hooks.open('a\0', {}, undefined)))
    await expect(opening).rejects.toThrow(TypeError)
  })

  it('G3 has its event for the next turn, and one that has none has none', async () => {
    const ids: string[] = []
    const task = await park(async (hooks, turn) => {
      await turn.publish({ open: [{ key: 'question', request: 'r' }] })
      for (const key of ['paid', 'visited']) ids.push(await hooks.open(key, {}, undefined))
    })
    await deliver(ids[0] ?? '', { sum: 7 })
    const of = { id: task, owner: ownerOf(host, ann) }
    const slots = (await tasks.engine.slots(of.id, of.owner)) ?? []
    expect(slots).toHaveLength(3)
    expect([...eventsOf(host, tasks, of, slots)]).toEqual([['paid', { sum: 7 }]])
  })

  it('G3 asks the tool about an event, with the caller of its task, and says why it was refused', async () => {
    const asked: unknown[] = []
    const verdicts: unknown[] = [false, '', 'too late', 1, true]
    const target: Partial<Target> = {
      name: 'pay',
      accept: {
        paid: (event: unknown, facts: unknown) => {
          asked.push([event, facts])
          return verdicts.shift() as boolean
        },
      },
    }
    let id = ''
    await park(async (hooks) => {
      id = await hooks.open('paid', { about: 'it' }, undefined)
    }, target)
    const refused = { kind: 'rejected', problem: 'The event was refused' }
    expect(await deliver(id, 1, target)).toEqual(refused)
    expect(await deliver(id, 1, target)).toEqual(refused)
    expect(await deliver(id, 1, target)).toEqual({ kind: 'rejected', problem: 'too late' })
    expect(await deliver(id, 1, target)).toEqual(refused)
    await expect(deliver(id, 1)).rejects.toMatchObject({ code: 'SERVER_INTERNAL' })
    expect(await deliver(id, 1, target)).toEqual({ kind: 'accepted' })
    expect(new Set(asked.map((one) => JSON.stringify(one)))).toEqual(
      new Set([JSON.stringify([1, { key: 'paid', about: 'it', principal: ann }])]),
    )
  })
})

describe('the id of a hook', () => {
  const idOf = (name: unknown, place: unknown = ['hook', 'shop']): string =>
    `h.${sealEnvelope(host.keys.ring, JSON.stringify(place), JSON.stringify(name)).token}`
  const opened = async () => {
    const task = await park(async (hooks) => void (await hooks.open('paid', {}, undefined)))
    const { principal } = ownerOf(host, ann)
    return { task, principal, key: 'paid', expires: START + DAY }
  }

  it('G3 opens if another release of the service made it', async () => {
    expect(await view(idOf(await opened()))).toEqual({ kind: 'open' })
  })

  it('G3 T17 opens for no other use of the keys, no other service, no other owner, and not without its parts', async () => {
    const name = await opened()
    const odd = [
      idOf(name, ['hook', 'another']),
      idOf(name, ['task list', 'shop']),
      idOf({ ...name, principal: ownerOf(host, { subject: 'bob' }).principal }),
      idOf({ ...name, expires: 'never' }),
      idOf({ ...name, expires: undefined }),
      idOf({ ...name, expires: START }),
      ...['task', 'principal', 'key'].map((part) => idOf({ ...name, [part]: 7 })),
      idOf(null),
      idOf([name]),
    ]
    for (const id of odd) {
      expect(await view(id)).toEqual({ kind: 'unknown' })
      expect(await deliver(id, 1)).toEqual({ kind: 'unknown' })
    }
  })

  it('G3 T17 is text, and begins like one', async () => {
    const id = idOf(await opened())
    for (const odd of [id.slice(2), `x.${id.slice(2)}`, '', 7, undefined])
      expect(await view(odd as string)).toEqual({ kind: 'unknown' })
  })

  it('T17 that is refused fills no log: ten lines a minute for each reason, and then how many were left out', async () => {
    const messages = async (count: number): Promise<string[]> => {
      events = []
      for (let asked = 0; asked < count; asked++) await view('h.forged')
      return events.flatMap((event) => (event.event === 'warning' ? [event.message] : []))
    }
    const first = await messages(13)
    expect(first).toHaveLength(10)
    expect(new Set(first).size).toBe(1)
    time += 59_999
    expect(await messages(2)).toEqual([])
    time += 1
    const [next, ...others] = await messages(2)
    expect(next).toBe(`${first[0]}; 5 others like it were not logged`)
    expect(others).toEqual([first[0]])
  })

  it('T17 that is refused is in the log with its reason, whatever asked for it', async () => {
    const name = await opened()
    const reasonsOf = async (act: Promise<unknown>): Promise<string[]> => {
      events = []
      await act
      return events.flatMap((event) => (event.event === 'warning' ? [event.message] : []))
    }
    const reason = (text: string) => [expect.stringContaining(text)]
    const gone = idOf({ ...name, task: createTaskId() })
    expect(await reasonsOf(view(idOf({ ...name, key: 7 })))).toEqual(reason('(shape)'))
    expect(await reasonsOf(view(idOf({ ...name, expires: START })))).toEqual(reason('(expired)'))
    expect(await reasonsOf(view(gone))).toEqual(reason('unknown'))
    expect(await reasonsOf(deliver(gone, 1))).toEqual(reason('unknown'))
    expect(await reasonsOf(deliver(idOf(name), 1))).toEqual([])
  })
})
