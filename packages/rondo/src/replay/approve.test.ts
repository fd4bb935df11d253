import { describe, expect, it } from 'vitest'
import {
  type Handler,
  type ReplayFlow,
  refusal,
  replayFlow,
  returned,
} from '../../../../test/support/replay-flow.ts'
import { ApprovalDenied, ApprovalExpired } from '../errors.ts'
import type { ApprovalOptions, ApprovalVerdict } from '../tool/approval.ts'
import { CAN_LEAVE, type ReplayInput } from './input.ts'
import type { RunReport } from './run-state.ts'

const HOUR = 3_600_000
const DAY = 24 * HOUR
const MINIMAL: ApprovalOptions = { from: 'managers', message: 'Deploy?' }
const ANN = { id: 'ann', name: 'Ann', at: 1, via: 'page' }
const APPROVED: ApprovalVerdict = { kind: 'approved', by: [ANN] }

type Asked = Record<string, unknown> & { readonly id: string; readonly until: number; readonly hook: string }

interface Desk {
  readonly flow: ReplayFlow
  /** What the next uses of a decision return. */
  readonly verdicts: ApprovalVerdict[]
  /** Every request that was opened, in order. */
  readonly opened: Asked[]
  readonly used: (readonly [id: string, attempt: number, expired: boolean])[]
  readonly learned: string[]
  readonly waits: string[]
  /** The deadlines of the hooks, by their keys. */
  readonly hooks: Map<string, number | undefined>
  /** Runs a turn of the task; every request that was opened before has been decided. */
  turn(options?: { readonly handler?: Handler; readonly input?: Partial<ReplayInput> }): Promise<RunReport>
}

/** A task, and somebody who decides whatever it asks. */
function createDesk(handler: Handler): Desk {
  const flow = replayFlow(handler, { anchored: true })
  const desk: Desk = {
    flow,
    verdicts: [],
    opened: [],
    used: [],
    learned: [],
    waits: [],
    hooks: new Map(),
    turn({ handler: other, input } = {}) {
      const decided = [...desk.hooks.keys()].map((key) => [key, null] as const)
      return flow.round(undefined, {
        handler: other,
        events: new Map(decided),
        sleeping: { parks: true },
        input: { hooks, approvals, ...input },
      })
    },
  }
  const hooks: ReplayInput['hooks'] = {
    async open(key, _request, until) {
      desk.hooks.set(key, until)
      return `id of ${key}`
    },
    close: async () => {},
  }
  const approvals: ReplayInput['approvals'] = {
    bound: 'the tool, its arguments and the caller',
    available: () => true,
    open: async (id, asked) => void desk.opened.push({ id, ...asked } as Asked),
    async use(...decision) {
      desk.used.push(decision)
      return desk.verdicts.shift() ?? { kind: 'reopened' }
    },
    waits: (_hook, what) => void desk.waits.push(what),
    learned: (key, verdict) => void desk.learned.push(`${key} ${verdict}`),
  }
  return desk
}

const asks =
  (options: ApprovalOptions = MINIMAL, key = 'deploy'): Handler =>
  (ctx) =>
    ctx.approve(key, options)

/** Returns the error of a handler that asks this. */
async function errorOf(options: unknown, key: unknown = 'deploy'): Promise<string> {
  const { ending } = await createDesk((ctx) => ctx.approve(key as string, options as never)).turn()
  return ending.kind === 'threw' ? String(ending.error) : ending.kind
}

describe('ctx.approve', () => {
  it('V1 asks with the defaults, waits for a decision, and returns those who approved', async () => {
    const desk = createDesk(asks())
    const until = desk.flow.clock.now + DAY
    const waiting = await desk.turn()
    expect(waiting.ending).toMatchObject({ kind: 'asking', wakeAt: until })
    const [request] = desk.opened
    expect(desk.opened).toEqual([
      {
        id: expect.stringMatching(/^[\w-]{43}$/),
        key: 'deploy',
        attempt: 1,
        hook: `id of approval:deploy:${request?.id.slice(0, 12)}:1`,
        until,
        from: ['managers'],
        message: 'Deploy?',
        details: {},
        quorum: 1,
        denials: 1,
        allowSelf: false,
        passNote: false,
      },
    ])
    expect([...desk.hooks.values()]).toEqual([until])
    expect(desk.waits).toEqual([`Waiting for approval by managers, until ${new Date(until).toISOString()}`])
    desk.verdicts.push(APPROVED)
    expect(returned(await desk.turn())).toEqual({ by: [ANN] })
    expect(desk.used).toEqual([[request?.id, 1, false]])
    expect(desk.learned).toEqual(['deploy approved'])
    expect(desk.opened).toHaveLength(1)
  })

  it('V1 asks with every option of the author', async () => {
    const options: ApprovalOptions = {
      from: ['managers', 'owners'],
      message: 'Deploy?',
      details: { version: '1.2' },
      within: '2 days',
      quorum: 2,
      denials: 3,
      allowSelf: true,
      escalate: { after: '1 h', to: 'directors' },
      remind: '10 min',
      passNote: true,
    }
    const desk = createDesk(asks(options))
    await desk.turn()
    expect(desk.opened).toEqual([
      expect.objectContaining({
        from: ['managers', 'owners'],
        details: { version: '1.2' },
        until: desk.flow.clock.now + 2 * DAY,
        quorum: 2,
        denials: 3,
        allowSelf: true,
        escalate: { afterMs: HOUR, to: ['directors'] },
        remindMs: 600_000,
        passNote: true,
      }),
    ])
    expect(desk.waits[0]).toContain('by managers, owners, until')
  })

  it('V2 identifies a request by everything that is shown, and not by when people are reminded', async () => {
    const idOf = async (more: Partial<ApprovalOptions>, input: Partial<ReplayInput> = {}, key = 'deploy') => {
      const desk = createDesk(asks({ ...MINIMAL, ...more }, key))
      await desk.turn({ input })
      return desk.opened[0]?.id
    }
    const id = await idOf({})
    const same: Partial<ApprovalOptions>[] = [
      {},
      { from: ['managers'] },
      { remind: '10 min' },
      { escalate: { after: '1 h', to: 'directors' } },
      { within: '2 days' },
    ]
    for (const more of same) expect(await idOf(more)).toBe(id)
    const others = await Promise.all([
      idOf({ from: 'owners' }),
      idOf({ message: 'Deploy now?' }),
      idOf({ details: { version: '1.2' } }),
      idOf({ quorum: 2 }),
      idOf({ denials: 2 }),
      idOf({ allowSelf: true }),
      idOf({ passNote: true }),
      idOf({}, { flow: 'another call' }),
      idOf({}, {}, 'release'),
    ])
    expect(new Set([id, ...others]).size).toBe(others.length + 1)
  })

  it.each<[ApprovalVerdict | { kind: 'unheard of' }, unknown]>([
    [{ kind: 'denied', by: [ANN] }, new ApprovalDenied('deploy', [ANN])],
    [{ kind: 'expired' }, new ApprovalExpired('deploy')],
    [{ kind: 'approved', by: [] }, new ApprovalExpired('deploy')],
    [{ kind: 'unheard of' }, new ApprovalExpired('deploy')],
  ])('V3 denies if the verdict is %j', async (verdict, error) => {
    const desk = createDesk(asks())
    await desk.turn()
    desk.verdicts.push(verdict as ApprovalVerdict)
    expect((await desk.turn()).ending).toEqual({ kind: 'threw', error })
    expect(desk.learned).toEqual(['deploy denied'])
  })

  it('V3 denies when its time is up, and does not wait again', async () => {
    const desk = createDesk(asks({ ...MINIMAL, within: '1 h' }))
    await desk.turn()
    desk.hooks.clear()
    desk.flow.clock.now += HOUR
    expect((await desk.turn()).ending).toEqual({ kind: 'threw', error: new ApprovalExpired('deploy') })
    expect(desk.used).toEqual([[desk.opened[0]?.id, 1, true]])
    expect(desk.opened).toHaveLength(1)
  })

  it('V1 waits under another hook, and no longer, after a decision that became void', async () => {
    const desk = createDesk(asks())
    const until = desk.flow.clock.now + DAY
    await desk.turn()
    desk.flow.clock.now += HOUR
    expect((await desk.turn()).ending).toMatchObject({ kind: 'asking', wakeAt: until })
    expect(desk.opened.map(({ attempt }) => attempt)).toEqual([1, 2])
    expect(desk.opened[1]).toEqual({
      ...desk.opened[0],
      attempt: 2,
      hook: `id of approval:deploy:${desk.opened[0]?.id.slice(0, 12)}:2`,
    })
    expect([...desk.hooks.values()]).toEqual([until, until])
    desk.verdicts.push(APPROVED)
    expect(returned(await desk.turn())).toEqual({ by: [ANN] })
    expect(desk.used.map(([, attempt]) => attempt)).toEqual([1, 2])
  })

  it('V3 denies if a decision became void after the time was up', async () => {
    const desk = createDesk(asks())
    await desk.turn()
    desk.flow.clock.now += 2 * DAY
    expect((await desk.turn()).ending).toEqual({ kind: 'threw', error: new ApprovalExpired('deploy') })
    expect(desk.used.map(([, ...rest]) => rest)).toEqual([
      [1, false],
      [2, true],
    ])
  })

  it('V1 denies after 20 decisions that became void', async () => {
    const desk = createDesk(asks())
    for (let turn = 1; turn <= 20; turn++) expect((await desk.turn()).ending.kind).toBe('asking')
    expect((await desk.turn()).ending).toEqual({ kind: 'threw', error: new ApprovalExpired('deploy') })
    expect(desk.opened).toHaveLength(20)
    expect(desk.learned).toEqual(['deploy denied'])
  })

  it('V2 keeps the time of a request whose turn was interrupted before it was open', async () => {
    const desk = createDesk(asks())
    const until = desk.flow.clock.now + DAY
    await desk.turn({ input: { mayMove: (executed) => (executed > 0 ? 'drain' : undefined) } })
    expect(desk.opened).toEqual([])
    desk.hooks.clear()
    desk.flow.clock.now += HOUR
    await desk.turn()
    expect(desk.opened).toMatchObject([{ until }])
  })

  it('refuses a second request of the same name', async () => {
    const desk = createDesk((ctx) =>
      Promise.all([ctx.approve('deploy', MINIMAL), ctx.approve('deploy', { ...MINIMAL, message: 'Sure?' })]),
    )
    expect((await desk.turn()).ending).toMatchObject({
      error: {
        code: 'REPLAY_NAME_REUSED',
        message: expect.stringContaining('"approval:deploy" is used twice in one run (hook, then hook)'),
      },
    })
    expect(desk.opened).toEqual([])
  })
})

describe('a request with other words', () => {
  const worded = (message: string): Handler => asks({ ...MINIMAL, message })

  it('V2 is asked again, and a decision about the words before is never read', async () => {
    const desk = createDesk(worded('one'))
    await desk.turn()
    await desk.turn({ handler: worded('two') })
    expect(desk.opened.map(({ message }) => message)).toEqual(['one', 'two'])
    expect(desk.used).toEqual([])
  })

  it('R3 ends the call when it has a fourth wording, and not when the third is decided', async () => {
    const desk = createDesk(worded('one'))
    await desk.turn()
    await desk.turn({ handler: worded('two') })
    await desk.turn({ handler: worded('three') })
    const { ending } = await createCopy(desk).turn({ handler: worded('four') })
    expect(ending).toMatchObject({ kind: 'refused', error: { code: 'REPLAY_QUESTION_CHANGES' } })
    desk.verdicts.push(APPROVED)
    expect(returned(await desk.turn({ handler: worded('three') }))).toEqual({ by: [ANN] })
  })

  it('R3 is not confused with another approval, nor with a decision that became void', async () => {
    const names = ['deploy:one', 'deploy:two', 'deploy:three', 'my approval:deploy']
    const desk = createDesk(async (ctx) => {
      await Promise.all(names.map((name) => ctx.approve(name, MINIMAL)))
      await ctx.approve('deploy', MINIMAL)
      return 'all approved'
    })
    await desk.turn()
    for (let i = 0; i < 3 * names.length; i++) desk.verdicts.push({ kind: 'reopened' })
    for (let i = 0; i < names.length; i++) desk.verdicts.push(APPROVED)
    for (let i = 0; i < 3; i++) desk.verdicts.push({ kind: 'reopened' })
    desk.verdicts.push(APPROVED)
    for (let turn = 0; turn < 7; turn++) expect((await desk.turn()).ending.kind).toBe('asking')
    expect(returned(await desk.turn())).toBe('all approved')
  })
})

/** A task whose journal is that of another. */
function createCopy({ flow }: Desk): Desk {
  const copy = createDesk(() => {})
  copy.flow.journal = flow.journal
  return copy
}

describe('where nobody can be asked', () => {
  it('continues as a task if the call can', async () => {
    const input = { hooks: undefined, approvals: undefined, background: CAN_LEAVE }
    expect((await createDesk(asks()).turn({ input })).ending).toEqual({ kind: 'background' })
    const careless = createDesk((ctx) => Promise.race([ctx.approve('deploy', MINIMAL), 'done']))
    expect((await careless.turn({ input })).ending).toMatchObject({
      error: {
        code: 'REPLAY_NOT_AWAITED',
        message: expect.stringContaining('while "approval:deploy" was still open'),
      },
    })
  })

  it.each<[string, Partial<ReplayInput>]>([
    ['hooks', { hooks: undefined }],
    ['approvals', { approvals: undefined }],
  ])('says that it needs a task without %s', async (_what, input) => {
    const { ending } = await createDesk(asks()).turn({ input })
    expect(ending).toMatchObject({
      error: {
        code: 'REPLAY_NO_TASK',
        message: expect.stringContaining('Only a task can wait for the approval "deploy"'),
      },
    })
  })

  it('ends the call if the server asks nobody', async () => {
    const desk = createDesk(asks())
    const approvals = {
      bound: undefined,
      available: () => false,
      open: () => Promise.reject(new Error('nobody')),
      use: () => Promise.reject(new Error('nobody')),
      waits: () => {},
      learned: () => {},
    }
    expect(refusal(await desk.turn({ input: { approvals } }))).toBe('SERVER_NO_APPROVER')
    expect(desk.hooks.size).toBe(0)
  })
})

describe('options of an approval', () => {
  it.each<[string, unknown, unknown?]>([
    ['a name of 64 characters', MINIMAL, 'k'.repeat(64)],
    ['a message of 4000 characters', { ...MINIMAL, message: 'x'.repeat(4_000) }],
    ['20 groups', { ...MINIMAL, from: Array(20).fill('group') }],
    ['a group of 200 characters', { ...MINIMAL, from: 'g'.repeat(200) }],
    ['the longest quorum', { ...MINIMAL, quorum: 50, denials: 50 }],
    ['a reminder each minute', { ...MINIMAL, remind: 60_000 }],
    ['a year', { ...MINIMAL, within: '366 days' }],
  ])('may have %s', async (_name, options, key) => {
    expect(await errorOf(options, key)).toBe('asking')
  })

  const bad: [unknown, string][] = [
    [undefined, 'takes a name of at most 64 characters and an object'],
    ['managers', 'takes a name of at most 64 characters and an object'],
    [[MINIMAL], 'takes a name of at most 64 characters and an object'],
    [{ ...MINIMAL, form: 'x' }, 'The approval "deploy" has no option "form"'],
    [{ from: 'managers' }, 'needs a message of at most 4000'],
    [{ ...MINIMAL, message: 7 }, 'needs a message'],
    [{ ...MINIMAL, message: '' }, 'needs a message'],
    [{ ...MINIMAL, message: ' \n' }, 'needs a message'],
    [{ ...MINIMAL, message: 'x'.repeat(4_001) }, 'needs a message'],
    [{ ...MINIMAL, details: 'x' }, 'must be a plain JSON object: it is not an object'],
    [{ ...MINIMAL, details: ['x'] }, 'must be a plain JSON object: it is not an object'],
    [{ ...MINIMAL, details: { at: new Date(0) } }, 'must be a plain JSON object: at is a Date'],
    [{ ...MINIMAL, quorum: 0 }, 'quorum of The approval "deploy" must be a whole number from 1 to 50; got 0'],
    [{ ...MINIMAL, quorum: 51 }, 'quorum of'],
    [{ ...MINIMAL, quorum: 1.5 }, 'quorum of'],
    [{ ...MINIMAL, quorum: '2' }, 'quorum of'],
    [{ ...MINIMAL, denials: 0 }, 'denials of'],
    [{ ...MINIMAL, denials: 51 }, 'denials of'],
    [{ ...MINIMAL, allowSelf: 'yes' }, 'must be true or false'],
    [{ ...MINIMAL, passNote: 1 }, 'must be true or false'],
    [{ ...MINIMAL, remind: 'often' }, 'remind of The approval "deploy" must be a number of milliseconds'],
    [{ ...MINIMAL, remind: 59_999 }, 'must be at least a minute'],
    [{ ...MINIMAL, within: 'soon' }, 'within of The approval "deploy" must be'],
    [{ ...MINIMAL, within: -1 }, 'within of The approval "deploy" must be'],
    [{ ...MINIMAL, escalate: { after: 'soon', to: 'x' } }, 'escalate.after of The approval "deploy" must be'],
    [{ ...MINIMAL, escalate: { after: '1 h' } }, 'escalate.to of The approval "deploy" must be the name'],
    [{ message: 'x' }, 'from of The approval "deploy" must be the name of a group'],
    [{ ...MINIMAL, from: [] }, 'from of'],
    [{ ...MINIMAL, from: '' }, 'from of'],
    [{ ...MINIMAL, from: ['managers', ''] }, 'from of'],
    [{ ...MINIMAL, from: [7] }, 'from of'],
    [{ ...MINIMAL, from: { length: 1 } }, 'from of'],
    [{ ...MINIMAL, from: 'a\u0000b' }, 'from of'],
    [{ ...MINIMAL, from: 'a\u202eb' }, 'from of'],
    [{ ...MINIMAL, from: 'g'.repeat(201) }, 'from of'],
    [{ ...MINIMAL, from: Array(21).fill('group') }, 'a list of up to 20 names'],
  ]
  it.each(bad)('are refused with a sentence: %j', async (options, sentence) => {
    const error = await errorOf(options)
    expect(error).toMatch(/^TypeError/)
    expect(error).toContain(sentence)
  })

  it.each([[''], ['k'.repeat(65)], [7], [['deploy']]])('are refused for the name %j', async (key) => {
    expect(await errorOf(MINIMAL, key)).toContain('ctx.approve takes a name of at most 64 characters')
  })
})
