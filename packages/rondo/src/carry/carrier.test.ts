import { describe, expect, it } from 'vitest'
import { RondoError } from '../errors.ts'
import type { LogEvent } from '../log/event.ts'
import type { FlowCall } from '../protocol/call.ts'
import type { InputRequest } from '../protocol/wire.ts'
import { MANUAL } from '../replay/question.ts'
import type { RunReport } from '../replay/run-state.ts'
import { createHost, type HostOptions } from '../serve/host.ts'
import { createMemoryStore } from '../store/memory/store.ts'
import { inputRequired, type Target } from '../tool/target.ts'
import {
  beginsAtOnce,
  followsTask,
  type Pause,
  pauseManually,
  placeOf,
  type Round,
  skipIn,
  sleepingIn,
  solicited,
  subjectOf,
  taskHostFor,
  whyNoTask,
} from './carrier.ts'

const START = 1_800_000_000_000
const TASKS = { extensions: { 'io.modelcontextprotocol/tasks': {} } }
const FOLLOWS: Partial<FlowCall> = { capabilities: { ...TASKS, elicitation: { form: {}, url: {} } } }
const ASKED: Partial<FlowCall> = { capabilities: { elicitation: { form: {}, url: {} } } }

interface Given {
  readonly options?: Partial<HostOptions>
  readonly call?: Partial<FlowCall>
  readonly target?: Partial<Target>
  readonly beginning?: Partial<Round['beginning']>
  readonly moves?: number
}

/** A round of a tool, whose server has a store; and what it has logged. */
function start({ options, call, target, beginning, moves = 0 }: Given = {}) {
  const events: LogEvent[] = []
  const host = createHost({
    audience: 'shop',
    keys: 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=',
    log: (event) => void events.push(event),
    store: createMemoryStore(),
    now: () => START,
    maxRoundMs: 9_000,
    limits: { maxQuestions: 2, maxMoves: 2, maxInlineSleepMs: 700 },
    ...options,
  })
  const journal = { startedAt: START, seed: 'c2VlZA', entries: [], reasks: {}, moves }
  const round = {
    host,
    call: { kind: 'flow', method: 'tools/call', target: 'pay', args: {}, ...FOLLOWS, ...call },
    target: { name: 'pay', method: 'tools/call', task: { mode: 'auto' }, ...target },
    beginning: { flow: 'flow', round: 3, journal, asked: {}, flowExpires: 0, anchored: true, ...beginning },
    began: START,
  } as unknown as Round
  return { round, events }
}

const NEVER: Given = { target: { task: { mode: 'never' } } }
const STORELESS: Given = { options: { store: undefined } }
const PROMPT: Given = { call: { method: 'prompts/get' } }

describe('the log of a round', () => {
  it('has the template of a resource instead of its URI', () => {
    const call = { method: 'resources/read', target: 'orders://7' } as const
    const { round } = start({ call, target: { label: 'orders://{id}' } })
    expect(subjectOf(round)).toEqual({ method: 'resources/read', target: 'orders://{id}' })
    expect(subjectOf(start().round)).toEqual({ method: 'tools/call', target: 'pay' })
  })

  it('has its flow, and its task if it is a turn of one', () => {
    const { round } = start()
    expect(placeOf(round)).toEqual({ flow: 'flow', round: 3 })
    const task = { task: 'task', turn: 4 }
    expect(placeOf({ ...round, task })).toEqual({ flow: 'flow', round: 3, ...task })
  })
})

describe('a handler that returns its questions', () => {
  const form = (message: string): InputRequest => ({
    method: 'elicitation/create',
    params: { mode: 'form', message, requestedSchema: { type: 'object', properties: {} } },
  })
  const url: InputRequest = {
    method: 'elicitation/create',
    params: { mode: 'url', message: 'Sign in', url: 'https://id.example' },
  } as InputRequest
  const reportWith = ({ beginning }: Round, more: object = {}) =>
    ({ journal: { ...beginning.journal, ...more } }) as unknown as RunReport
  const pause = (
    inputRequests: Record<string, InputRequest> | undefined,
    given: Given = {},
    more: object = {},
  ): Pause | RondoError => {
    const { round } = start(given)
    const value = inputRequests ? { inputRequests, requestState: 'own' } : { requestState: 'own' }
    return pauseManually(round, reportWith(round, more), inputRequired(value))
  }
  const paused = (...given: Parameters<typeof pause>): Pause => {
    const result = pause(...given)
    if (result instanceof RondoError) throw result
    return result
  }

  it('asks them, and keeps its own state', () => {
    const { journal, asked, inputRequests, facts } = paused({ a: form('A?'), b: form('B?') })
    expect(journal).toMatchObject({ manual: 'own', seed: 'c2VlZA' })
    expect(inputRequests).toEqual({ a: form('A?'), b: form('B?') })
    expect(facts).toEqual({
      outcome: 'input_required',
      asks: [
        { key: 'a', kind: 'manual' },
        { key: 'b', kind: 'manual' },
      ],
    })
    expect(Object.keys(asked)).toEqual(['a', 'b'])
    expect(Object.values(asked).every((digest) => digest.startsWith(MANUAL))).toBe(true)
  })

  it('R3 binds an answer to the words of its question, whatever its key', () => {
    const { asked } = paused({ a: form('A?'), b: form('B?') })
    expect(asked.a).not.toBe(asked.b)
    expect(paused({ b: form('A?') }).asked.b).toBe(asked.a)
  })

  it('may have a state and no question', () => {
    expect(paused(undefined)).toMatchObject({ asked: {}, facts: { asks: [] }, journal: { manual: 'own' } })
    expect(paused(undefined).inputRequests).toBeUndefined()
  })

  it('names each visit with an id that is the same in every round', () => {
    const [first, second] = [paused({ a: url }), paused({ a: url })].map(({ inputRequests }) => inputRequests)
    expect(first).toMatchObject({ a: { params: { elicitationId: expect.stringMatching(/^[0-9a-f]{32}$/) } } })
    expect(second).toEqual(first)
  })

  it('R9 may ask limits.maxQuestions questions at once, and no more', () => {
    const questions = { a: form('A?'), b: form('B?') }
    expect(paused(questions).inputRequests).toEqual(questions)
    expect(pause({ ...questions, c: form('C?') })).toMatchObject({ code: 'LIMIT_QUESTIONS' })
  })

  it('B10 asks nothing that the client has not declared', () => {
    const refused = pause(
      { a: form('A?'), b: url },
      { call: { capabilities: { elicitation: { form: {} } } } },
    )
    expect(refused).toMatchObject({
      code: 'PEER_CAPABILITY',
      data: { requiredCapabilities: { elicitation: { url: {} } } },
    })
  })

  it('R3 keeps answers for questions of ctx.ask that it has not reached, and forgets its own', () => {
    const own = { question: `${MANUAL}d`, answer: 1 }
    const other = { question: 'd', answer: 2 }
    expect(paused(undefined, {}, { kept: { own, other } }).journal.kept).toEqual({ other })
    expect(paused(undefined, {}, { kept: { own } }).journal.kept).toBeUndefined()
    expect(paused(undefined, {}, {}).journal.kept).toBeUndefined()
  })

  it('sees the answers to what it asked, and all of them in a first request', () => {
    const { beginning } = start({ beginning: { asked: { a: 'd' } } }).round
    const answers = { a: 1, b: 2, toString: 3 }
    expect({ ...solicited(beginning, answers) }).toEqual({ a: 1 })
    expect(solicited({ ...beginning, anchored: false }, answers)).toBe(answers)
    expect(solicited(beginning, undefined)).toBeUndefined()
  })
})

describe('a call that could be a task', () => {
  it.each<[string, Given, boolean]>([
    ['of a client that follows tasks', {}, true],
    ['whose client asks for one', { call: { ...ASKED, task: {} } }, true],
    ['of a client that does not follow tasks', { call: ASKED }, false],
    ['of a client that reaches it through tools', { call: ASKED, options: { tasks: { tools: true } } }, true],
    ['of a tool that never is one', NEVER, false],
    ['of a server without a store', STORELESS, false],
    ['of a prompt', PROMPT, false],
  ])('E1 may continue as one: %s', (_name, given, may) => {
    const { round } = start(given)
    expect(taskHostFor(round)).toBe(may ? round.host.tasks : undefined)
    expect(beginsAtOnce(round)).toBe(may)
    const late = start({ ...given, target: { task: { mode: 'late' }, ...given.target } }).round
    expect(beginsAtOnce(late)).toBe(false)
  })

  it('E1 is followed by a client that declares it, or asks for a task', () => {
    const follows = (call: Partial<FlowCall>) => followsTask(start({ call }).round.call)
    expect([follows({}), follows(ASKED), follows({ ...ASKED, task: {} })]).toEqual([true, false, true])
  })

  it.each<[string, Given, string, RegExp]>([
    ['of a prompt', PROMPT, 'REPLAY_NO_TASK', /Only a tool/],
    ['of a server without a store', STORELESS, 'REPLAY_NO_TASK', /no store/],
    ['of a tool that never is one', NEVER, 'REPLAY_NO_TASK', /"pay" is declared with task: 'never'/],
    ['of a client that cannot follow it', { call: ASKED }, 'PEER_CAPABILITY', /"pay" waits for an event/],
  ])('G3 cannot wait for an event, and says why: %s', (_name, given, code, message) => {
    const error = whyNoTask(start(given).round, 'an event')
    expect(error.code).toBe(code)
    expect(error.message).toMatch(message)
    expect(error.data).toEqual(code === 'PEER_CAPABILITY' ? { requiredCapabilities: TASKS } : undefined)
  })
})

describe('a sleep in a request', () => {
  it('G1 waits for limits.maxInlineSleepMs, and no longer than its round may take', () => {
    expect(sleepingIn(start().round)).toEqual({
      parks: false,
      inlineMs: 700,
      beyond: 'leave',
      round: { until: START + 9_000, ms: 9_000, handsBack: true },
      skip: undefined,
    })
  })

  it.each([
    [0, true],
    [1, true],
    [2, false],
  ])('G1 hands its call back as often as limits.maxMoves allows: after %i moves: %s', (moves, handsBack) => {
    expect(sleepingIn(start({ moves }).round).round).toMatchObject({ handsBack })
  })

  it.each<[string, Given, RegExp]>([
    ['of a prompt', PROMPT, /^Only a tool/],
    ['of a server without a store', STORELESS, /no store/],
    ['of a tool that never is a task', NEVER, /task: 'never'/],
    ['of a client that cannot follow a task', { call: ASKED }, /^This client cannot follow a task/],
  ])('G1 that is longer says why its call cannot continue as a task: %s', (_name, given, why) => {
    expect(sleepingIn(start(given).round).beyond).toMatch(why)
  })

  it('G1 is skipped in development mode, which says so', () => {
    const { round, events } = start({ options: { skipSleep: true } })
    skipIn(round)?.(1_500.2)
    expect(events).toEqual([
      expect.objectContaining({
        event: 'warning',
        flow: 'flow',
        round: 3,
        message: expect.stringContaining('a sleep of 1501 ms in pay'),
      }),
    ])
    expect(skipIn(start().round)).toBeUndefined()
  })
})
