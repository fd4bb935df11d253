import { beforeEach, describe, expect, it } from 'vitest'
import { RondoError } from '../../errors.ts'
import type { Journal } from '../../journal/journal.ts'
import type { FlowCall } from '../../protocol/call.ts'
import type { Reply } from '../../protocol/reply.ts'
import type { ClientCapabilities } from '../../protocol/wire.ts'
import type { RunReport } from '../../replay/run-state.ts'
import { openEnvelope, sealEnvelope } from '../../seal/envelope.ts'
import { tagsOf } from '../../seal/tag.ts'
import { createHost, type OpenHost } from '../../serve/host.ts'
import { createMemoryStore } from '../../store/memory/store.ts'
import type { NewTask } from '../../store/task-engine.ts'
import type { Target } from '../../tool/target.ts'
import type { Pause, Round } from '../carrier.ts'
import type { FlowHost, FlowStore, TaskHost } from '../host.ts'
import { changeGuard, guardOf, readGuard } from '../undo.ts'
import { beginAtOnce, continueAsTask, queueAsTask, sealWithStore, tooLarge, unspill } from './begin.ts'
import { openPiece, type TaskPlan } from './journal.ts'

const START = 1_800_000_000_000
const MINUTE = 60_000
const FOLLOWS = { extensions: { 'io.modelcontextprotocol/tasks': {} } }

let host: OpenHost
let tasks: TaskHost
/** Tasks that were created, and what the engine throws instead. */
let created: NewTask[] = []
let refusal: RondoError | undefined

beforeEach(async () => {
  created = []
  refusal = undefined
  host = createHost({
    audience: 'shop',
    keys: 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=',
    log: 'off',
    store: createMemoryStore({ now: () => START }),
    now: () => START,
    tasks: { ttlMs: 10 * MINUTE },
  })
  const { engine, ...rest } = host.tasks as TaskHost
  tasks = {
    ...rest,
    engine: {
      ...engine,
      async create(task) {
        if (refusal) throw refusal
        created.push(task)
        return engine.create(task)
      },
    },
  }
  await host.keys.ready()
})

interface Given {
  readonly call?: Partial<FlowCall>
  readonly target?: Partial<Target>
  readonly journal?: Partial<Round['beginning']['journal']>
  readonly beginning?: Partial<Round['beginning']>
  readonly tasks?: Partial<TaskHost>
  readonly principal?: Round['principal']
  readonly closed?: boolean
}

function roundOf(given: Given = {}): Round {
  const journal = { startedAt: START, seed: 'c2VlZA', entries: [], reasks: {}, moves: 0, ...given.journal }
  const call = {
    method: 'tools/call',
    target: 'pay',
    args: { order: 7 },
    protocolVersion: '2026-07-28',
    capabilities: FOLLOWS,
  }
  return {
    host: { ...host, tasks: { ...tasks, ...given.tasks } } as FlowHost,
    call: { ...call, ...given.call },
    target: { name: 'pay', method: 'tools/call', task: { mode: 'auto' }, ...given.target },
    principal: 'principal' in given ? given.principal : { subject: 'ada' },
    line: { closed: given.closed ?? false, notify: () => {}, onClose: () => () => {} },
    beginning: {
      flow: 'flow',
      round: 2,
      asked: {},
      flowExpires: START + MINUTE,
      anchored: true,
      ...given.beginning,
      journal,
    },
    began: START,
  } as unknown as Round
}

const planOf = (task = created.at(-1)): TaskPlan =>
  openPiece(
    host,
    tasks,
    { id: task?.id ?? '', owner: task?.owner ?? { tenant: '', principal: '' } },
    'head',
    task?.head ?? '',
  )
const begin = async (given: Given = {}): Promise<Reply | undefined> => beginAtOnce(roundOf(given), false)
const idOf = (reply: Reply | undefined): unknown => reply?.kind === 'task_created' && reply.task.taskId

describe('a call that begins as a task', () => {
  it.each<[Target['task']['mode'], ClientCapabilities, string | undefined]>([
    ['auto', FOLLOWS, 'task_created'],
    ['always', FOLLOWS, 'task_created'],
    ['late', FOLLOWS, undefined],
    ['never', FOLLOWS, undefined],
    ['auto', {}, undefined],
    ['always', {}, 'error'],
  ])('E1 of a tool declared %s, with capabilities %j: %s', async (mode, capabilities, kind) => {
    const reply = await begin({ target: { task: { mode } }, call: { capabilities } })
    expect(reply?.kind).toBe(kind)
    if (reply?.kind === 'error')
      expect(reply.error).toMatchObject({ code: 'PEER_CAPABILITY', data: { requiredCapabilities: FOLLOWS } })
    expect(created).toHaveLength(kind === 'task_created' ? 1 : 0)
  })

  it.each([
    [undefined, undefined, 10],
    [20, undefined, 20],
    [20, 5, 5],
    [20, 30, 20],
    [undefined, 30, 10],
  ])(
    'lives as long as its tool says, or shorter if its client asks for that: %s, %s',
    async (own, asked, minutes) => {
      const task = { mode: 'auto', ...(own && { ttlMs: own * MINUTE }) } as const
      await begin({
        target: { task },
        call: { task: asked === undefined ? undefined : { ttlMs: asked * MINUTE } } as Partial<FlowCall>,
      })
      expect(created[0]?.ttlMs).toBe(minutes * MINUTE)
      expect(planOf().ttlMs).toBe(minutes * MINUTE)
    },
  )

  it('R6 runs no effect before its owner has named it, unless its flow was in the hands of its client', async () => {
    await begin()
    await begin({ call: { requestState: 'state' } })
    expect(created.map(({ known }) => known)).toEqual([false, true])
  })

  it('R6 I5 is the same task if its request comes again, and another if the answers differ', async () => {
    const answer = (confirm: boolean) => ({ a: { action: 'accept', content: { confirm } } })
    const again = (confirm: boolean, requestState?: string, asked: object = { a: 'd' }) =>
      begin({
        call: { requestState, inputResponses: answer(confirm) } as Partial<FlowCall>,
        beginning: { asked } as object,
      }).then(idOf)
    const first = await again(true, 'state')
    expect(await again(true, 'state')).toBe(first)
    expect(await again(false, 'state')).not.toBe(first)
    // Nobody asked for them, so they make no branch.
    expect(await again(true, 'state', {})).toBe(await again(false, 'state', {}))
    expect(await again(true)).not.toBe(await again(true))
    const entry = (key: string, value: object) =>
      ({ journal: { entries: [{ kind: 'form', key, at: 1, ...value }] } }) as unknown as Given
    const told = (more: Given) => begin({ ...more, call: { requestState: 'state' } }).then(idOf)
    const ids = [
      await told({}),
      await told(entry('a', { question: 'd', answer: 1 })),
      await told(entry('a', { question: 'd', answer: 2 })),
      await told(entry('a', { question: 'e', answer: 1 })),
      await told(entry('b', { question: 'd', answer: 1 })),
      await told({ journal: { manual: 'm' } }),
      await told({ journal: { kept: { a: { question: 'd', answer: 1 } } } }),
    ]
    expect(new Set(ids).size).toBe(ids.length)
    expect(await told(entry('step', { kind: 'step', value: 1 }))).toBe(ids[0])
    // An earlier run of the round has recorded the answer.
    const { journal: kept } = roundOf().beginning
    expect(await told({ ...entry('a', { question: 'd', answer: 1 }), beginning: { kept } })).toBe(ids[0])
  })

  it('takes along what its rounds recorded, and the answers that came with its request', async () => {
    const noted = { reasks: { q: { changes: 1 } }, deadlines: { s: 5 }, attempts: { t: 1 }, manual: 'm' }
    const given: Given = {
      journal: { ...noted, epoch: 'epoch', entries: [{ kind: 'step', key: 'a', at: 1, value: 1 }] },
      call: { requestState: 'state', inputResponses: { a: 1, b: 2 } } as unknown as Partial<FlowCall>,
      beginning: { asked: { a: 'd' } },
    }
    await beginAtOnce(roundOf(given), true)
    expect(planOf()).toMatchObject({
      flow: 'flow',
      round: 2,
      noted,
      epoch: 'epoch',
      brought: { answers: { a: 1 }, asked: { a: 'd' }, unasked: false },
    })
    const { method, target, args, protocolVersion, capabilities } = roundOf().call
    expect(planOf().call).toEqual({ method, target, args, protocolVersion, capabilities })
    const [first] = created as [NewTask]
    expect(first.journal?.map((one) => openPiece(host, tasks, first, 'record', one))).toEqual([
      { entry: { kind: 'step', key: 'a', at: 1, value: 1 } },
    ])
    await continueAsTask(
      roundOf({ ...given, call: { inputResponses: { a: 1 } } as unknown as Partial<FlowCall> }),
      { journal: roundOf(given).beginning.journal } as RunReport,
    )
    expect(planOf()).not.toHaveProperty('brought')
    await beginAtOnce(
      roundOf({
        call: { inputResponses: { a: 1 } } as unknown as Partial<FlowCall>,
        beginning: { anchored: false },
      }),
      true,
    )
    expect(planOf()).toMatchObject({
      brought: { answers: { a: 1 }, unasked: true },
      epoch: await host.epoch(),
    })
  })

  it('M1 is named in the record of the effects that can be undone', async () => {
    const begun = [{ key: 'room', effectKey: 'k' }]
    const { beginning } = roundOf({ journal: { begun, lineage: 'line' } })
    const guard = guardOf(host, 'c2VlZA', 'line')
    await changeGuard(host, guard, MINUTE, () => ({ phase: 'open', journal: beginning.journal }))
    await begin()
    expect(await readGuard(host, guard)).not.toHaveProperty('task')
    const id = idOf(await begin({ journal: { begun, lineage: 'line' } }))
    expect(await readGuard(host, guard)).toMatchObject({ task: { id } })
  })

  it.each<[TaskHost['toolAs'], () => string | undefined]>([
    ['tag', () => tagsOf(host.keys.ring, 'tool', 'pay')[0]],
    ['name', () => 'pay'],
    [undefined, () => undefined],
  ])('M4 names its tool to operators as the server says: %s', async (toolAs, tool) => {
    await begin({ tasks: { toolAs } })
    expect(created[0]?.tool).toBe(tool())
  })

  it('waits for a permit only if its client can follow it', async () => {
    expect(queueAsTask(roundOf({ call: { capabilities: {} } }))).toBeUndefined()
    expect((await queueAsTask(roundOf({ target: { task: { mode: 'late' } } })))?.kind).toBe('task_created')
    const answered = { inputResponses: { a: 1 } } as unknown as Partial<FlowCall>
    await queueAsTask(roundOf({ call: answered, beginning: { asked: { a: 'd' } } }))
    expect(planOf()).toMatchObject({ brought: { answers: { a: 1 } } })
    expect(() => continueAsTask(roundOf({ call: { capabilities: {} } }), {} as RunReport)).toThrow(
      expect.objectContaining({ code: 'SERVER_INTERNAL' }),
    )
  })

  it('B8 needs the epoch of the store', async () => {
    const down = new RondoError('STORE_UNAVAILABLE')
    const once = { ...host.store?.once, epoch: () => Promise.reject(down) }
    host = {
      ...host,
      epoch: async () => undefined,
      store: { ...host.store, once } as unknown as OpenHost['store'],
    }
    await expect(begin()).rejects.toThrow(down)
    expect((await begin({ journal: { epoch: 'known' } }))?.kind).toBe('task_created')
  })
})

describe('a call that is the same as an open one', () => {
  const asked: unknown[] = []
  const dedupe: Target['dedupe'] = async (...given) => {
    asked.push(given)
    return JSON.stringify(given[0])
  }
  const same = (given: Given = {}) => begin({ ...given, target: { dedupe, ...given.target } }).then(idOf)

  it('M3 finds its task, by its arguments, its caller and its tool', async () => {
    const first = await same()
    expect(await same()).toBe(first)
    expect(asked[0]).toEqual([{ order: 7 }, { principal: { subject: 'ada' } }])
    const others = [
      await same({ call: { args: { order: 8 } } }),
      await same({ principal: { subject: 'bob' } }),
      await same({ call: { target: 'ship' } }),
      await same({ principal: undefined }),
      await same({ principal: undefined }),
      await same({ target: { dedupe: undefined } }),
    ]
    expect(new Set([first, ...others]).size).toBe(7)
  })

  it('M3 gets a task of its own once the other has ended, or if it was refused', async () => {
    const first = await same()
    await tasks.engine.cancel(String(first), created[0]?.owner as NewTask['owner'])
    const second = await same()
    expect(second).not.toBe(first)
    expect(await same()).toBe(second)
    refusal = new RondoError('LIMIT_TASKS')
    await expect(same({ call: { args: { order: 9 } } })).rejects.toThrow(refusal)
    refusal = undefined
    expect(await same({ call: { args: { order: 9 } } })).toBeTypeOf('string')
  })

  /** From now on another call holds the permit, which names this task; returns how often it was asked for. */
  const occupy = (task: string | undefined): (() => number) => {
    let asked = 0
    const acquire = async () => {
      asked += 1
      return { kind: 'busy', retryMs: 1, waitedMs: 0, task }
    }
    const permits = { ...host.store?.permits, acquire }
    host = { ...host, store: { ...host.store, permits } as unknown as OpenHost['store'] }
    return () => asked
  }

  it('M3 is told to come again if the other is just beginning', async () => {
    const tries = occupy('another')
    await expect(same()).rejects.toMatchObject({ code: 'STORE_BUSY', data: { retryAfterMs: 1_000 } })
    expect(created).toEqual([])
    expect(tries()).toBe(3)
  })

  it('M3 gets a task of its own if the permit names none, or the store keeps no permits', async () => {
    occupy(undefined)
    const first = await same()
    host = { ...host, store: { ...host.store, permits: undefined } as OpenHost['store'] }
    const second = await same()
    expect(second).toBeTypeOf('string')
    expect(second).not.toBe(first)
    refusal = new RondoError('LIMIT_TASKS')
    await expect(same()).rejects.toBe(refusal)
  })

  it('M3 finds the task that another release of the service has begun, and is logged with it', async () => {
    const id = String(idOf(await begin()))
    const value = JSON.stringify(['shop', 'pay', created[0]?.owner.principal, '{"order":7}'])
    const tags = tagsOf(host.keys.ring, 'dedupe', value)
    await host.store?.permits?.acquire({ holder: `dedupe ${id}`, tags, limit: 1, holdMs: MINUTE, task: id })
    const lines: object[] = []
    host = { ...host, silent: false, log: (line) => void lines.push(line) }
    expect(await same()).toBe(id)
    expect(lines).toEqual([expect.objectContaining({ event: 'round', outcome: 'task', task: id })])
  })
})

describe('a round that is kept where there is a store', () => {
  const sealed = { kind: 'sealed' } as const
  const keep = (given: Given, pause: Partial<Pause> = {}, seals: readonly { kind: string }[] = [sealed]) => {
    const round = roundOf({ ...given, target: { task: { mode: 'late' }, ...given.target } })
    const { journal } = round.beginning
    const left = [...seals]
    const report = { journal } as RunReport
    const whole = { report, journal, asked: {}, facts: { outcome: 'input_required' }, ...pause } as Pause
    return sealWithStore(round, whole, host.store as FlowStore, async () => left.shift() ?? sealed)
  }
  const late = { beginning: { round: 8 } }
  const large = [{ kind: 'too-large' }, sealed]

  it.each<[string, Given, Partial<Pause>, readonly { kind: string }[], boolean]>([
    ['in its first rounds', {}, {}, [sealed], false],
    ['in its last round before limits.promoteRounds', { beginning: { round: 7 } }, {}, [sealed], false],
    ['after limits.promoteRounds', late, {}, [sealed], true],
    ['that took too long', {}, { facts: { outcome: 'moved', moved: 'time' } }, [sealed], true],
    [
      'that took too long, of a client that has gone',
      { closed: true },
      { facts: { outcome: 'moved', moved: 'time' } },
      [sealed],
      true,
    ],
    ['whose instance drains', {}, { facts: { outcome: 'moved', moved: 'drain' } }, [sealed], false],
    ['whose journal is too large', {}, {}, large, true],
    ['after limits.promoteRounds, of a client that has gone', { ...late, closed: true }, {}, [sealed], false],
    ['too large, of a client that has gone', { closed: true }, {}, large, false],
    [
      'after limits.promoteRounds, of a client that cannot follow',
      { ...late, call: { capabilities: {} } },
      {},
      [sealed],
      false,
    ],
    ['of a tool that never is a task', { ...late, target: { task: { mode: 'never' } } }, {}, large, false],
    ['in the manual form', { ...late, journal: { manual: 'm' } }, {}, [sealed], false],
  ])('continues as a task: %s', async (_name, given, pause, seals, becomes) => {
    expect((await keep(given, pause, seals)).kind).toBe(becomes ? 'replied' : 'sealed')
    expect(created).toHaveLength(becomes ? 1 : 0)
  })

  it('stays in rounds if its caller has too many tasks, and fails if the store does', async () => {
    refusal = new RondoError('LIMIT_TASKS')
    expect(await keep(late)).toBe(sealed)
    expect(await keep({}, {}, large)).toBe(sealed)
    refusal = new RondoError('STORE_UNAVAILABLE')
    await expect(keep(late)).rejects.toThrow(refusal)
  })

  it('B8 needs the epoch of the store only if its states count once', async () => {
    const down = new RondoError('STORE_UNAVAILABLE')
    const once = { ...host.store?.once, epoch: () => Promise.reject(down) }
    host = {
      ...host,
      epoch: async () => undefined,
      store: { ...host.store, once } as unknown as OpenHost['store'],
    }
    expect(await keep({})).toBe(sealed)
    expect(await keep({ target: { once: true, task: { mode: 'late' } }, journal: { epoch: 'known' } })).toBe(
      sealed,
    )
    await expect(keep({ target: { once: true, task: { mode: 'late' } } })).rejects.toThrow(down)
    await expect(keep({ journal: { lineage: 'line' } })).rejects.toThrow(down)
  })
})

describe('a journal that is too large for its token', () => {
  const entry = (key: string, value: unknown, more: object = {}) => ({
    kind: 'step',
    key,
    at: 1,
    value,
    ...more,
  })
  const whole = {
    entries: [entry('small', 1), entry('large', 'x'.repeat(500))] as unknown as Journal['entries'],
    reasks: { q: { changes: 1 } },
    kept: { k: { question: 'd', answer: 1 } },
    manual: 'm',
    epoch: 'epoch',
    moves: 2,
  }

  /** Keeps a round whose journal does not fit at first; returns the journals that were to be sealed. */
  async function spill(): Promise<readonly [Journal, Journal]> {
    const round = roundOf({ journal: whole, call: { capabilities: {} } })
    const { journal } = round.beginning
    const seen: Journal[] = []
    const pause = { report: {}, journal, asked: {}, facts: { outcome: 'input_required' } } as unknown as Pause
    await sealWithStore(round, pause, host.store as FlowStore, async (one) => {
      seen.push(one)
      return { kind: seen.length === 1 ? 'too-large' : 'sealed' }
    })
    const [first, second] = seen
    return [first as Journal, second as Journal]
  }

  it('P14 goes into the store, and its token only names it', async () => {
    const [large, small] = await spill()
    expect(small).toEqual({
      ...large,
      entries: [],
      reasks: {},
      kept: undefined,
      manual: undefined,
      spilled: expect.stringMatching(/^.{20,}$/),
    })
    const opened = await unspill(roundOf({ journal: { ...small, moves: 3 } }))
    expect(opened).toMatchObject({ call: { target: 'pay' }, beginning: { flow: 'flow', round: 2 } })
    expect(opened.beginning.journal).toEqual({ ...large, moves: 3 })
  })

  it('P14 is refused if it is gone, or was stored for another name or another service', async () => {
    const [, small] = await spill()
    const { spilled = '' } = small
    const sealed = (await host.store?.blobs.get(spilled)) ?? ''
    await host.store?.blobs.put('another', sealed, START + MINUTE)
    await host.store?.blobs.put(
      'odd',
      sealEnvelope(host.keys.ring, '["spill","odd","shop"]', '{}').token,
      START + MINUTE,
    )
    const refused = { code: 'STATE_INVALID' }
    for (const name of ['gone', 'another', 'odd', undefined])
      await expect(unspill(roundOf({ journal: { ...small, spilled: name } }))).rejects.toMatchObject(refused)
    const round = roundOf({ journal: small })
    for (const more of [{ audience: 'other' }, { store: undefined }])
      await expect(unspill({ ...round, host: { ...round.host, ...more } as FlowHost })).rejects.toMatchObject(
        refused,
      )
  })

  it('R9 is refused if it is too large for the store, too', async () => {
    const value = 'x'.repeat(16 * 1024 * 1024)
    const entries = [{ kind: 'step', key: 'a', at: 1, value }] as unknown as Journal['entries']
    const round = roundOf({ journal: { entries, epoch: 'epoch' }, call: { capabilities: {} } })
    const { journal } = round.beginning
    const pause = { report: {}, journal, asked: {}, facts: { outcome: 'input_required' } } as unknown as Pause
    const keeping = sealWithStore(round, pause, host.store as FlowStore, async () => ({ kind: 'too-large' }))
    await expect(keeping).rejects.toMatchObject({ code: 'LIMIT_STATE_BYTES' })
  })

  it('P14 is found by another release of the service', async () => {
    const [large, { spilled = '' }] = await spill()
    const sealed = await host.store?.blobs.get(spilled)
    const opened = openEnvelope(host.keys.ring, JSON.stringify(['spill', spilled, 'shop']), sealed, 10_000)
    expect(opened.kind === 'open' && JSON.parse(opened.plaintext.toString('utf8'))).toEqual(large)
  })

  it('R9 is an error that names the tool, the largest entry and the way out', () => {
    const round = roundOf({ journal: whole })
    const error = tooLarge(round, 9_000, round.beginning.journal)
    expect(error.code).toBe('LIMIT_STATE_BYTES')
    expect(error.message).toContain('"pay" would have 9000 bytes')
    const bytes = JSON.stringify(whole.entries[1]).length
    expect(error.message).toContain(
      `Of the 2 entries of its journal, the step "large" is the largest, with ${bytes} bytes. Return less`,
    )
    expect(error.message).toContain('(an id instead of a document), or raise the limit.')
    const without = { ...round, host: { ...round.host, store: undefined } }
    expect(tooLarge(without, 1, whole as unknown as Journal).message).toContain('pass a store to the server')
    const answer = [
      { kind: 'form', key: 'a', at: 1, question: 'd', answer: 1 },
    ] as unknown as Journal['entries']
    expect(tooLarge(round, 1, { ...whole, entries: answer } as unknown as Journal).message).toContain(
      'the answer to the question "a"',
    )
    expect(tooLarge(round, 1, { ...whole, entries: [] } as unknown as Journal).message).toMatch(
      /maxBytes\)\. Return less/,
    )
  })
})
