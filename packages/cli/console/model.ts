/**
 * The model of the page, built from the events of the supervisor. A pure function of the list of events: a page that was
 * reloaded, or that connects late, builds the same.
 */

import { cleanText } from 'rondo/forms'
import type {
  Action,
  ConsoleEvent,
  ExaminedFinding,
  InstanceView,
  RoundHappening,
  SeenExchange,
  StoredTask,
  UpstreamRequest,
} from '../src/console/event.ts'

export type RoundEvent = RoundHappening['round']
export type Operation = RoundHappening['operations'][number]

/** One round of a flow, or one turn of its task. */
export interface Round {
  readonly number: number
  readonly instance: string
  readonly began: number
  readonly event: RoundEvent
  readonly operations: readonly Operation[]
  readonly exchange?: SeenExchange
  /** It answers a round that was answered before with something else, or once more. */
  readonly isBranch: boolean
}

/** A turn of a task, which a worker runs. */
export const isTurn = ({ event }: Round): boolean => event.turn !== undefined

/** The two sides of a gateway, as its last round saw them; undefined for a flow of another server. */
export function sidesOf({
  rounds,
}: Flow): { readonly client: string; readonly upstream: string } | undefined {
  const { upstream, upstreamVersion = 'unknown', protocolVersion = 'unknown' } = rounds.at(-1)?.event ?? {}
  return upstream === undefined
    ? undefined
    : { client: protocolVersion, upstream: `${upstream} (${upstreamVersion})` }
}

/** "Round 2", or "Turn 3" of a task. */
export function nameOf(round: Round): string {
  return isTurn(round) ? `Turn ${round.event.turn}` : `Round ${round.number}`
}

export interface Flow {
  readonly id: string
  readonly target: string
  readonly method: string
  readonly rounds: readonly Round[]
  readonly task?: string
  readonly client?: string
  readonly principal?: string
  /** The round that runs now, if it takes long enough to be seen. */
  readonly running?: RunningRound
  /** The error that the handler threw. */
  readonly fault?: string
}

export interface RunningRound {
  readonly instance: string
  readonly name: string
  readonly operations: readonly Operation[]
  readonly status?: string
}

export interface Task {
  readonly id: string
  readonly flow?: string
  readonly target?: string
  readonly status: string
  /** As the store has it. */
  readonly stored?: StoredTask
  /** The instance that runs it now. */
  readonly runsOn?: string
  /** The end of the last turn: `sleeping`, `waiting` for these events, or questions. */
  readonly waiting?: { readonly outcome: string; readonly events: readonly string[] }
  readonly message?: string
  readonly questions?: Questions
  /** Of a task that has ended, as its owner reads it. */
  readonly result?: Result
  readonly error?: { readonly code?: number; readonly message?: string }
  readonly turns: readonly {
    readonly at: number
    readonly instance: string
    readonly outcome: string
    readonly ms: number
  }[]
  readonly failures: number
}

export interface Finding {
  readonly at: number
  readonly level: 'error' | 'warning'
  readonly text: string
  readonly flow?: string
  readonly exchange?: string
}

export interface Examination {
  readonly at: number
  readonly tool?: string
  readonly findings: readonly ExaminedFinding[]
}

/** An action, when it began and when it ended. */
export type DatedAction = Action & { readonly at: number; readonly endedAt?: number }

export interface Model {
  readonly seq: number
  readonly instances: ReadonlyMap<string, InstanceView>
  readonly flows: ReadonlyMap<string, Flow>
  readonly tasks: ReadonlyMap<string, Task>
  readonly actions: ReadonlyMap<string, DatedAction>
  readonly findings: readonly Finding[]
  readonly examined?: Examination
  /** Rounds by exchange, and exchanges whose round is not known yet. */
  readonly flowOf: ReadonlyMap<string, string>
  readonly exchanges: ReadonlyMap<string, SeenExchange>
  /** Requests to the servers behind a gateway, by exchange. */
  readonly upstream: ReadonlyMap<string, readonly UpstreamRequest[]>
}

export type Questions = Readonly<
  Record<string, { readonly method: string; readonly params?: Readonly<Record<string, unknown>> }>
>

export const EMPTY: Model = {
  seq: 0,
  instances: new Map(),
  flows: new Map(),
  tasks: new Map(),
  actions: new Map(),
  findings: [],
  flowOf: new Map(),
  exchanges: new Map(),
  upstream: new Map(),
}

const MAX_FLOWS = 10_000
const MAX_EXCHANGES = 2_000
const MAX_TASKS = 10_000
const MAX_FINDINGS = 10_000
const WARN_BYTES = 8 * 1024
const WARN_ROUNDS = 8

export function apply(model: Model, events: readonly ConsoleEvent[]): Model {
  const next = {
    ...model,
    instances: new Map(model.instances),
    flows: new Map(model.flows),
    tasks: new Map(model.tasks),
    actions: new Map(model.actions),
    findings: [...model.findings],
    flowOf: new Map(model.flowOf),
    exchanges: new Map(model.exchanges),
    upstream: new Map(model.upstream),
  }
  for (const event of events) {
    if (event.seq <= next.seq) continue
    next.seq = event.seq
    applyOne(next, event)
  }
  trim(next.flows, MAX_FLOWS)
  trim(next.tasks, MAX_TASKS)
  trim(next.exchanges, MAX_EXCHANGES)
  trim(next.upstream, MAX_EXCHANGES)
  next.findings = next.findings.slice(-MAX_FINDINGS)
  return next
}

type Draft = {
  seq: number
  instances: Map<string, InstanceView>
  flows: Map<string, Flow>
  tasks: Map<string, Task>
  actions: Map<string, DatedAction>
  findings: Finding[]
  examined?: Examination
  flowOf: Map<string, string>
  exchanges: Map<string, SeenExchange>
  upstream: Map<string, readonly UpstreamRequest[]>
}

function applyOne(draft: Draft, event: ConsoleEvent): void {
  switch (event.kind) {
    case 'instance': {
      draft.instances.set(event.instance.name, event.instance)
      const { note = '', name } = event.instance
      if (event.instance.state === 'down')
        for (const flow of draft.flows.values())
          if (flow.running?.instance === name) draft.flows.set(flow.id, { ...flow, running: undefined })
      if (note !== '' && note !== 'killed' && note !== 'drained')
        draft.findings.push({
          at: event.at,
          level: 'error',
          text: `Instance ${event.instance.name}: ${note}`,
        })
      return
    }
    case 'round':
      return applyRound(draft, event)
    case 'running':
      return applyRunning(draft, event)
    case 'upstream': {
      const { exchange, request } = event
      if (exchange === undefined) return
      draft.upstream.set(exchange, [...(draft.upstream.get(exchange) ?? []), request])
      return
    }
    case 'exchange':
      return applyExchange(draft, event.exchange, event.at)
    case 'action':
      return void draft.actions.set(event.action.id, {
        ...event.action,
        at: draft.actions.get(event.action.id)?.at ?? event.at,
        ...(event.action.happened !== undefined && { endedAt: event.at }),
      })
    case 'stored':
      return editTask(draft, event.task.id, { status: event.task.status, stored: event.task })
    case 'examined':
      draft.examined = { at: event.at, findings: event.findings, ...(event.tool && { tool: event.tool }) }
      return
    case 'task':
      return applyTask(draft, event)
    case 'log':
      return applyLog(draft, event)
  }
}

function applyRound(
  draft: Draft,
  { at, instance, exchange: within, round, operations }: ConsoleEvent & RoundHappening,
): void {
  // The request that created a task may be the one in which its first turn ran.
  const id = round.turn === undefined ? within : undefined
  const flow = draft.flows.get(round.flow) ?? {
    id: round.flow,
    target: round.target,
    method: round.method,
    rounds: [],
  }
  const exchange = id === undefined ? undefined : draft.exchanges.get(id)
  const isBranch = flow.rounds.some(
    (one) => one.number >= round.round && round.task === undefined && id !== undefined,
  )
  const one: Round = {
    number: round.round,
    instance,
    began: exchange?.began ?? at - round.ms,
    event: round,
    operations,
    isBranch,
    ...(exchange && { exchange }),
  }
  if (id !== undefined) draft.flowOf.set(id, round.flow)
  draft.flows.set(round.flow, {
    ...flow,
    rounds: [...flow.rounds, one],
    running: undefined,
    ...(round.task !== undefined && { task: round.task }),
    ...aboutCaller(exchange),
  })
  if (round.task !== undefined)
    editTask(draft, round.task, {
      flow: round.flow,
      target: round.target,
      waiting: { outcome: round.outcome, events: round.events ?? [] },
    })
  if (isProvoked(draft, within)) return
  const add = (level: Finding['level'], text: string): void =>
    void draft.findings.push({ at, level, text, flow: round.flow, ...(within && { exchange: within }) })
  if (round.outcome === 'refused')
    add('error', `${round.target} was refused in round ${round.round}: ${round.code ?? 'no code'}`)
  if ((round.stateBytes ?? 0) > WARN_BYTES)
    add(
      'warning',
      `The state of ${round.target} has ${round.stateBytes} bytes: some proxies refuse bodies that large`,
    )
  if (round.round === WARN_ROUNDS)
    add('warning', `${round.target} takes ${WARN_ROUNDS} rounds or more: official clients give up after 10`)
}

function applyRunning(draft: Draft, { instance, round }: Extract<ConsoleEvent, { kind: 'running' }>): void {
  const { flow: id, target, method, turn, task, operations, status } = round
  const flow = draft.flows.get(id) ?? { id, target, method, rounds: [] }
  const name = turn === undefined ? `Round ${round.round}` : `Turn ${turn}`
  // Reported late: the round has ended.
  if (flow.rounds.some((one) => nameOf(one) === name && one.instance === instance)) return
  const running = { instance, name, operations, ...(status !== undefined && { status }) }
  draft.flows.set(id, { ...flow, running, ...(task !== undefined && { task }) })
  if (task !== undefined)
    editTask(draft, task, { flow: id, target, ...(status !== undefined && { message: status }) })
}

function applyExchange(draft: Draft, exchange: SeenExchange, at: number): void {
  draft.exchanges.set(exchange.id, exchange)
  if (exchange.fault !== undefined)
    draft.findings = draft.findings.filter((finding) => finding.exchange !== exchange.id)
  const id = draft.flowOf.get(exchange.id)
  const flow = id === undefined ? undefined : draft.flows.get(id)
  if (flow !== undefined) {
    const rounds = flow.rounds.map((round) =>
      round.exchange === undefined && isSameRound(round, exchange, draft)
        ? { ...round, exchange, began: exchange.began }
        : round,
    )
    draft.flows.set(flow.id, { ...flow, rounds, ...aboutCaller(exchange) })
  }
  const result = exchange.response?.result as Record<string, unknown> | undefined
  const taskId = typeof result?.taskId === 'string' ? result.taskId : undefined
  if (taskId !== undefined && typeof result?.status === 'string') {
    editTask(draft, taskId, {
      status: result.status,
      ...(typeof result.statusMessage === 'string' && { message: result.statusMessage }),
      questions: result.inputRequests as Questions | undefined,
      ...(isRecord(result.result) && { result: result.result }),
      ...(isRecord(result.error) && { error: result.error }),
    })
  }
  if (exchange.status >= 500 && exchange.fault === undefined)
    draft.findings.push({
      at,
      level: 'error',
      text: `A request got HTTP ${exchange.status}`,
      ...(id && { flow: id }),
    })
}

/** The last round without an exchange that ran on its instance. */
function isSameRound(round: Round, exchange: SeenExchange, draft: Draft): boolean {
  return round.instance === exchange.instance && draft.flowOf.get(exchange.id) === round.event.flow
}

function aboutCaller(exchange: SeenExchange | undefined): { client?: string; principal?: string } {
  if (exchange === undefined || exchange.by === 'console') return {}
  return {
    ...(exchange.client !== undefined && { client: exchange.client }),
    ...(exchange.principal !== undefined && { principal: exchange.principal }),
  }
}

function editTask(draft: Draft, id: string, change: Partial<Task>): void {
  const task = draft.tasks.get(id) ?? { id, status: 'working', turns: [], failures: 0 }
  draft.tasks.set(id, { ...task, ...change })
}

const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

export type TaskState = 'due' | 'running' | 'asks' | 'sleeping' | 'waiting' | 'held' | 'ended'

/** The state of a task, and the thing that it waits for, as a noun and as a sentence. */
export function stateOf(task: Task, now: number): { state: TaskState; waits: string; says: string } {
  const { status, stored, waiting } = task
  if (status === 'completed' || status === 'failed' || status === 'cancelled')
    return { state: 'ended', waits: status, says: `The task is ${status}.` }
  const { worker, dueAt, openKeys = [], openHooks = [] } = stored ?? {}
  if (worker !== undefined || (stored === undefined && task.runsOn !== undefined)) {
    const where = task.runsOn ?? 'an instance'
    return { state: 'running', waits: `on ${where}`, says: `The task runs on ${where} now.` }
  }
  const until = dueAt === undefined ? '' : formatUntil(dueAt, now)
  const waitsFor = (state: TaskState, what: string, left = until && `, ${until} left`) => ({
    state,
    waits: `${what}${left}`,
    says: `The task waits for ${what}${left}.`,
  })
  const isLater = dueAt === undefined || dueAt > now
  // R6: an effect runs only once the client has shown that it knows the task.
  if (stored !== undefined && isLater && waiting?.outcome === 'moved')
    return waitsFor('held', 'its client to ask for it: until then, no effect runs', '')
  if (openKeys.length > 0) return waitsFor('asks', `an answer to ${openKeys.join(', ')}`)
  if (openHooks.length > 0) return waitsFor('waiting', `the event ${openHooks.join(', ')}`)
  if (dueAt !== undefined && dueAt > now)
    return {
      state: 'sleeping',
      waits: `its time, in ${until}`,
      says: `The task sleeps and wakes in ${until}.`,
    }
  if (dueAt !== undefined || stored === undefined) return waitsFor('due', 'a worker', '')
  return waitsFor('waiting', 'an event')
}

function formatUntil(at: number, now: number): string {
  const s = Math.max(0, Math.ceil((at - now) / 1_000))
  return s < 60
    ? `${s} s`
    : s < 3_600
      ? `${Math.floor(s / 60)} min ${s % 60} s`
      : `${Math.floor(s / 3_600)} h ${Math.floor((s % 3_600) / 60)} min`
}

function applyTask(draft: Draft, { at, instance, event }: Extract<ConsoleEvent, { kind: 'task' }>): void {
  if (event.kind === 'began') return editTask(draft, event.id, { runsOn: instance, failures: event.failures })
  if (event.kind === 'turn') {
    const turns = draft.tasks.get(event.id)?.turns ?? []
    return editTask(draft, event.id, {
      runsOn: undefined,
      turns: [...turns, { at, instance, outcome: event.outcome, ms: event.ms }],
    })
  }
  if (event.kind === 'retry') editTask(draft, event.id, { failures: event.failures })
  if (event.kind === 'gave-up') editTask(draft, event.id, { failures: event.failures, status: 'failed' })
  if (event.kind === 'store-error')
    draft.findings.push({
      at,
      level: 'error',
      text: `The store failed during ${event.during}: ${event.error?.message ?? ''}`,
    })
}

/** A deliberate fault is not a finding. */
function isProvoked(draft: Draft, exchange: string | undefined): boolean {
  return exchange !== undefined && draft.exchanges.get(exchange)?.fault !== undefined
}

function applyLog(draft: Draft, { at, exchange, event }: Extract<ConsoleEvent, { kind: 'log' }>): void {
  // The log of a request may arrive before or after the request itself.
  if (isProvoked(draft, exchange)) return
  const flow = exchange === undefined ? undefined : draft.flowOf.get(exchange)
  const link = { ...(flow && { flow }), ...(exchange && { exchange }) }
  if (event.event === 'fault') {
    const { flow: id, target, method } = event
    const known = draft.flows.get(id) ?? { id, target, method, rounds: [] }
    draft.flows.set(id, { ...known, fault: event.error?.message ?? '' })
    draft.findings.push({
      at,
      level: 'error',
      text: `${event.target} threw: ${event.error?.message ?? ''}`,
      flow: event.flow,
    })
  }
  if (event.event === 'warning')
    draft.findings.push({
      at,
      level: 'warning',
      text: `${event.message}${event.error ? `: ${event.error.message}` : ''}`,
      ...link,
    })
  if (event.event === 'state_refused')
    draft.findings.push({
      at,
      level: 'warning',
      text: `A state for ${event.target ?? 'a call'} was refused: ${event.reason}`,
      ...link,
    })
}

function trim(map: Map<string, unknown>, max: number): void {
  for (const key of map.keys()) {
    if (map.size <= max) return
    map.delete(key)
  }
}

export interface Summary {
  readonly began: number
  readonly serverMs: number
  readonly humanMs: number
  readonly stateBytes: number
  readonly instances: readonly string[]
}

/** A flow in one line, apart from how it stands. */
export function summarize({ rounds }: Flow): Summary {
  const ordered = [...rounds].sort((a, b) => a.began - b.began)
  const humanMs = ordered.reduce((sum, round, i) => {
    const before = ordered[i - 1]
    return before?.event.outcome === 'input_required'
      ? sum + Math.max(0, round.began - before.began - before.event.ms)
      : sum
  }, 0)
  return {
    began: ordered[0]?.began ?? 0,
    serverMs: rounds.reduce((sum, { event }) => sum + event.ms, 0),
    humanMs,
    stateBytes: Math.max(0, ...rounds.map(({ event }) => event.stateBytes ?? 0)),
    instances: [...new Set(rounds.map(({ instance }) => instance))].sort(),
  }
}

/** The state of a flow. If it has become a task, the store knows; whether the tool itself failed, its last turn does. */
export function outcomeOf({ rounds, running }: Flow, task: Task | undefined, now: number): string {
  const last = rounds.at(-1)?.event.outcome ?? ''
  if (task === undefined) return running ? 'running' : last
  const { state } = stateOf(task, now)
  if (state === 'asks') return 'input_required'
  if (state !== 'ended') return state
  if (task.status !== 'completed') return task.status
  return last === 'tool_error' || task.result?.isError === true ? 'tool_error' : 'complete'
}

/** The outcome of a request. */
export interface Result {
  readonly content?: readonly { readonly text?: string }[]
  readonly structuredContent?: unknown
  readonly isError?: boolean
  readonly resultType?: string
}

/** The outcome of a flow. */
export interface End {
  readonly isGood: boolean
  readonly text: string
  /** The content of the result besides text. */
  readonly more?: unknown
}

/** Undefined while the flow is open, or if its end was not seen. */
export function endOf({ rounds, fault }: Flow, task: Task | undefined): End | undefined {
  if (task?.status === 'cancelled') return { isGood: false, text: 'The task was cancelled.' }
  const response = rounds.at(-1)?.exchange?.response
  const error = (task ? task.error : response?.error) as { code?: number; message?: string } | undefined
  if (error !== undefined) {
    const threw = fault === undefined ? '' : `\nThe handler threw: ${fault}`
    return { isGood: false, text: `${error.message ?? 'An error without a message'} (${error.code})${threw}` }
  }
  const result = (task ? task.result : response?.result) as Result | undefined
  if (result === undefined || result.resultType === 'input_required' || result.resultType === 'task')
    return undefined
  const { content = [], structuredContent, isError = false } = result
  const texts = content.flatMap(({ text }) => (typeof text === 'string' ? [text] : []))
  const isText = texts.length > 0 && texts.length === content.length
  const more = structuredContent ?? (isText ? undefined : result)
  const threw =
    isError && fault !== undefined && !texts.join().includes(fault) ? [`The handler threw: ${fault}`] : []
  return { isGood: !isError, text: [...texts, ...threw].join('\n'), ...(more !== undefined && { more }) }
}

/** The hooks of a task that wait for an event. The journal has their ids. */
export function hooksOf(flow: Flow | undefined, task: Task): readonly { key: string; id: string }[] {
  if (flow === undefined || stateOf(task, 0).state !== 'waiting') return []
  const operations = flow.rounds.flatMap((round) => round.operations).filter(({ kind }) => kind === 'hook')
  return (task.stored?.openHooks ?? []).flatMap((key) => {
    const { value = '' } = operations.findLast((one) => one.key === key) ?? {}
    const [, id] = /^"(h\.[\w.-]+)"$/.exec(value) ?? []
    return id === undefined ? [] : [{ key, id }]
  })
}

/** The questions that a round asked, if its reply can still be answered. */
export function questionsOf({ exchange }: Round): Questions | undefined {
  const result = exchange?.response?.result as
    | { inputRequests?: Questions; requestState?: unknown }
    | undefined
  return typeof result?.requestState === 'string' && Object.keys(result.inputRequests ?? {}).length > 0
    ? result.inputRequests
    : undefined
}

/** The arguments of a flow, as its first request has them. */
export function argumentsOf({ rounds }: Flow): Readonly<Record<string, unknown>> {
  const params = rounds.find(({ exchange }) => exchange)?.exchange?.request?.params as
    | { arguments?: Readonly<Record<string, unknown>> }
    | undefined
  return params?.arguments ?? {}
}

/** The command that makes the same call from a terminal, whatever a server has named its tools and their arguments. */
export function sayCall(mcp: string, tool: string, words: readonly string[]): string {
  return ['npx rondo call', mcp, quoted(tool), ...words.map(quoted)].join(' ')
}

/** One word of a shell. One that would be an option is left to the user. */
function quoted(given: string): string {
  // A control character could end a paste early, and have a shell execute the rest of it.
  const text = cleanText(given, Number.POSITIVE_INFINITY)
  if (text.startsWith('-')) return '…'
  return /^[\w.:@/=,…-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`
}
