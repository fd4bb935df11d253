/**
 * Deliberate actions on a flow or an instance. Each action says what should happen, and afterwards what did, by
 * comparing reports of the instances: which process ran a round, what it replayed, under which keys its effects ran, and
 * why a state was refused.
 *
 * Faults (`elsewhere`, `lose`, `twice`) wait for the next round of the flow. Attacks (`flip`, `principal`, `expire`) are sent
 * at once with a copy of the flow's last state, so the flow itself can still continue.
 */

import { isRecord } from 'rondo/internal'
import { sayValue } from '../io.ts'
import { type Book, type Seen, stateOf } from './book.ts'
import {
  ACTION_KINDS,
  type Action,
  type ActionKind,
  EXPECTED,
  type Message,
  PRINCIPAL_HEADER,
  type SeenExchange,
} from './event.ts'
import type { LocalFleet } from './fleet.ts'
import type { ConsoleProxy } from './proxy.ts'
import { ActionError } from './web.ts'

export interface ActionRequest {
  readonly kind: ActionKind
  readonly flow?: string
  readonly instance?: string
  /** Of `answer` and `fork`: the exchange whose questions are answered. */
  readonly exchange?: string
  readonly inputResponses?: Message
}

export type Act = (request: ActionRequest) => Promise<Action>

/** Rounds without a question that one answer may take. */
const MAX_MOVES = 8
/** Beyond every `roundTtlMs` that a server would choose. */
const LATER_MS = 366 * 24 * 3_600_000

export function createActions(fleet: LocalFleet, proxy: ConsoleProxy, book: Book): Act {
  let count = 0
  /** Actions that wait for the next round of a flow. */
  const watching = new Set<(seen: Seen) => void>()
  book.watch((event) => {
    if (event.kind !== 'round' || event.exchange === undefined || watching.size === 0) return
    void book.reported(event.exchange).then((seen) => {
      if (seen?.round) for (const watcher of [...watching]) watcher(seen)
    })
  })

  const publish = (action: Action): Action => {
    book.add({ kind: 'action', action })
    return action
  }

  function open(request: ActionRequest, expected: string): Action {
    count += 1
    const { kind, flow, instance } = request
    return publish({ id: `a${count}`, kind, expected, ...(flow && { flow }), ...(instance && { instance }) })
  }

  const close = (action: Action, ok: boolean, happened: string): Action =>
    publish({ ...action, ok, happened })

  /** Ends the action with what the next round of its flow does. */
  function onNextRound(
    action: Action,
    judge: (seen: Seen) => { ok: boolean; happened: string } | undefined,
  ): void {
    const watcher = (seen: Seen): void => {
      if (seen.round?.round.flow !== action.flow) return
      const verdict = judge(seen)
      if (verdict === undefined) return
      watching.delete(watcher)
      close(action, verdict.ok, verdict.happened)
    }
    watching.add(watcher)
  }

  function lastOf(flow: string | undefined): Seen {
    const last =
      flow === undefined ? undefined : book.flow(flow).findLast(({ exchange }) => stateOf(exchange))
    if (last === undefined) throw new ActionError('This flow has no open round that the console has seen')
    return last
  }

  async function kill(request: ActionRequest): Promise<Action> {
    const name =
      request.instance ?? (request.flow ? book.flow(request.flow).at(-1)?.exchange.instance : undefined)
    if (name === undefined) throw new ActionError('Name an instance, or a flow that one has served')
    const action = open({ ...request, instance: name }, EXPECTED[request.flow ? 'kill' : 'kill-instance'])
    if (!(await fleet.kill(name))) return close(action, false, `Instance ${name} was not running`)
    if (request.flow === undefined) return close(action, true, `Instance ${name} is gone`)
    const killed = publish({ ...action, phase: `Instance ${name} is gone; the next round shows the rest` })
    onNextRound(killed, (seen) => ({
      ok: seen.round?.instance !== name && seen.round?.round.outcome !== 'refused',
      happened: say(seen),
    }))
    return killed
  }

  async function drain(request: ActionRequest): Promise<Action> {
    const { instance } = request
    if (instance === undefined) throw new ActionError('Name an instance')
    const action = open(request, EXPECTED.drain)
    const happened = await fleet.drain(instance)
    return close(action, happened.startsWith('It finished'), happened)
  }

  async function start(request: ActionRequest): Promise<Action> {
    const { instance } = request
    if (instance === undefined) throw new ActionError('Name an instance')
    const action = open(request, EXPECTED.start)
    const failed = await fleet.revive(instance)
    return close(action, failed === undefined, failed ?? `Instance ${instance} is up`)
  }

  async function reload(request: ActionRequest): Promise<Action> {
    const action = open(request, EXPECTED.reload)
    publish({ ...action, phase: 'Replacing the instances' })
    const failed = await fleet.reload()
    if (failed !== undefined) return close(action, false, failed)
    if (request.flow === undefined) return close(action, true, 'All instances were replaced')
    onNextRound(action, (seen) => ({ ok: seen.round?.round.outcome !== 'refused', happened: say(seen) }))
    return publish(action)
  }

  /** As after a deploy that changed a sentence: the flow finds its open questions with other words. */
  function reword(request: ActionRequest): Action {
    const { exchange } = lastOf(request.flow)
    const result = isRecord(exchange.response?.result) ? exchange.response.result : {}
    const keys = Object.entries(isRecord(result.inputRequests) ? result.inputRequests : {}).flatMap(
      ([key, question]) => (isRecord(question) && question.method === 'elicitation/create' ? [key] : []),
    )
    if (keys.length === 0) throw new ActionError('This flow has no open question with a message')
    const action = open(request, EXPECTED.reword)
    proxy.reword(request.flow ?? '', keys)
    onNextRound(action, (seen) => {
      const states = new Map(seen.round?.operations.map(({ key, state }) => [key, state]))
      const again = keys.filter((key) => states.get(key) === 'asked')
      const ok = again.length === keys.length && seen.round?.round.executed === 0
      return { ok, happened: `${say(seen)}; asked again: ${again.join(', ') || 'nothing'}` }
    })
    return action
  }

  function arm(request: ActionRequest & { kind: 'elsewhere' | 'lose' | 'twice' }): Action {
    const last = lastOf(request.flow)
    const flow = request.flow ?? ''
    const avoid = last.exchange.instance
    if (request.kind === 'elsewhere' && fleet.views().length === 1)
      throw new ActionError('There is one instance only. Start the console with --instances 3')
    const action = open(request, EXPECTED[request.kind])
    const settle = async (exchanges: readonly string[]): Promise<void> => {
      const seen = await Promise.all(exchanges.map((id) => book.reported(id)))
      const [first, second] = seen
      if (first?.round === undefined) return void close(action, false, 'The round did not run')
      if (request.kind === 'elsewhere') {
        const ok = first.round.instance !== avoid && first.round.round.outcome !== 'refused'
        return void close(action, ok, say(first))
      }
      if (request.kind === 'twice') {
        const once = second?.round === undefined && second?.exchange.status === 200
        const { ok, happened } = once
          ? { ok: true, happened: 'the second delivery got the stored reply' }
          : compareKeys(first, second)
        return void close(action, ok, `${say(first)}; ${happened}`)
      }
      const { round } = first.round.round
      onNextRound(action, (again) => {
        if (again === first || again.round?.round.round !== round) return undefined
        const { ok, happened } = compareKeys(first, again)
        return { ok, happened: `Sent again: ${say(again)}; ${happened}` }
      })
    }
    proxy.arm(flow, {
      kind: request.kind,
      ...(request.kind === 'elsewhere' && { avoid }),
      done: (exchanges) => void settle(exchanges),
    })
    return action
  }

  async function attack(request: ActionRequest & { kind: 'flip' | 'principal' | 'expire' }): Promise<Action> {
    const { exchange } = lastOf(request.flow)
    const action = open(request, EXPECTED[request.kind])
    const state = stateOf(exchange) ?? ''
    const { authorization, ...others } = proxy.headersOf(exchange.id)
    const stranger = { ...others, [PRINCIPAL_HEADER]: otherThan(exchange.principal) }
    const sent = await proxy.send({
      headers:
        request.kind === 'principal' ? stranger : { ...others, ...(authorization && { authorization }) },
      body: nextBody(exchange, request.kind === 'flip' ? flip(state) : state),
      fault: request.kind,
      ...(request.kind === 'expire' && { skewMs: LATER_MS }),
    })
    // A server that authenticates callers itself refuses a request without credentials before it looks at the state.
    if (request.kind === 'principal' && (sent.status === 401 || sent.status === 403))
      return close(action, true, `Refused: HTTP ${sent.status} without credentials`)
    const reason = (await book.reported(sent.id))?.refused
    const ok = reason !== undefined && REASONS[request.kind].includes(reason)
    return close(
      action,
      ok,
      reason === undefined ? `Not refused: ${describeReply(sent)}` : `Refused: ${reason}`,
    )
  }

  async function answer(request: ActionRequest): Promise<Action> {
    const seen = request.exchange === undefined ? undefined : book.seen(request.exchange)
    const state = seen && stateOf(seen.exchange)
    if (seen === undefined || state === undefined)
      throw new ActionError('This exchange asked nothing, or is no longer known')
    const flow = seen.round?.round.flow
    const isFork = request.kind === 'fork'
    const action = open({ ...request, ...(flow && { flow }) }, EXPECTED[isFork ? 'fork' : 'answer'])
    const before = flow === undefined ? [] : book.flow(flow)
    const body = nextBody(seen.exchange, state)
    const inputResponses = request.inputResponses ?? {}
    const headers = proxy.headersOf(seen.exchange.id)
    let sent = await proxy.send({ headers, body: { ...body, params: { ...body.params, inputResponses } } })
    // A round that hands back a state alone wants to be sent again, as every client does.
    for (let i = 0; i < MAX_MOVES && isMove(sent); i++)
      sent = await proxy.send({ headers, body: nextBody(sent, stateOf(sent) ?? '') })
    if (sent.status === 0) return close(action, true, 'The reply was lost on purpose: answer again')
    const report = await book.reported(sent.id)
    if (report?.round === undefined)
      return close(action, false, report?.refused ? `Refused: ${report.refused}` : describeReply(sent))
    const { round } = report.round.round
    const isRun = report.round.round.outcome !== 'refused'
    const original = before.find((one) => one.round?.round.round === round)
    if (!isFork || original === undefined) return close(action, isRun, say(report))
    const keys = compareKeys(original, report)
    const isSame = answersIn(original) === answersIn(report)
    return close(action, isRun && (keys.none || keys.ok === isSame), `${say(report)}; ${keys.happened}`)
  }

  return async (request) => {
    switch (request.kind) {
      case 'kill':
        return kill(request)
      case 'start':
        return start(request)
      case 'drain':
        return drain(request)
      case 'reload':
        return reload(request)
      case 'elsewhere':
      case 'lose':
      case 'twice':
        return arm({ ...request, kind: request.kind })
      case 'reword':
        return reword(request)
      case 'flip':
      case 'principal':
      case 'expire':
        return attack({ ...request, kind: request.kind })
      case 'answer':
      case 'fork':
        return answer(request)
    }
  }
}

/** The reasons for which a state must be refused. */
const REASONS: Readonly<Record<'flip' | 'principal' | 'expire', readonly string[]>> = {
  flip: ['encoding', 'key', 'commitment', 'tag'],
  principal: ['principal'],
  expire: ['expired', 'flow-expired'],
}

/** "Round 2 on B: executed 1, replayed 2, complete". */
function say({ round }: Seen): string {
  if (round === undefined) return 'no round ran'
  const { round: number, executed, replayed, outcome } = round.round
  return `Round ${number} on ${round.instance}: executed ${executed}, replayed ${replayed}, ${outcome}`
}

function keysOf(seen: Seen | undefined): Map<string, string> {
  const keyed = seen?.round?.operations.flatMap(({ key, effectKey }) =>
    effectKey ? [[key, effectKey] as const] : [],
  )
  return new Map(keyed)
}

/** The client's answers when the round ended. */
function answersIn({ round }: Seen): string {
  const asks = round?.operations.filter(({ kind }) => kind !== 'step' && kind !== 'effect') ?? []
  return asks.map(({ key, value }) => `${key}=${value}`).join('\n')
}

function compareKeys(first: Seen, second: Seen | undefined): { ok: boolean; happened: string; none?: true } {
  const [a, b] = [keysOf(first), keysOf(second)]
  const shared = [...a.keys()].filter((name) => b.has(name))
  if (shared.length === 0) return { ok: true, happened: 'no effect ran in both', none: true }
  const differing = shared.filter((name) => a.get(name) !== b.get(name))
  const shown = shared.map((name) => `${name} ${a.get(name)?.slice(0, 8)}`).join(', ')
  return differing.length === 0
    ? { ok: true, happened: `the same effect keys (${shown})` }
    : { ok: false, happened: `other effect keys for ${differing.join(', ')}` }
}

/** The request of the round after an exchange, without answers. */
function nextBody({ request }: SeenExchange, requestState: string): Message & { params: Message } {
  const { inputResponses: _, ...kept } = isRecord(request?.params) ? request.params : {}
  return { jsonrpc: '2.0', id: 1, method: request?.method, params: { ...kept, requestState } }
}

function isMove(exchange: SeenExchange): boolean {
  const result = exchange.response?.result
  if (!isRecord(result) || result.resultType !== 'input_required' || stateOf(exchange) === undefined)
    return false
  return Object.keys(isRecord(result.inputRequests) ? result.inputRequests : {}).length === 0
}

/** Changes one character in the middle of a state. */
function flip(state: string): string {
  const at = Math.floor(state.length / 2)
  return `${state.slice(0, at)}${state[at] === 'A' ? 'B' : 'A'}${state.slice(at + 1)}`
}

function otherThan(principal: string | undefined): string {
  return principal === 'somebody-else' ? 'nobody-else' : 'somebody-else'
}

function describeReply({ status, response }: SeenExchange): string {
  const error = response?.error
  if (isRecord(error)) return `HTTP ${status}, ${sayValue(error.message)}`
  const type = isRecord(response?.result) ? response.result.resultType : undefined
  return `HTTP ${status}${typeof type === 'string' ? `, ${type}` : ''}`
}

/** Reads a request from the page; throws `ActionError` if it is not one. */
export function readAction(value: unknown): ActionRequest {
  if (!isRecord(value) || !ACTION_KINDS.includes(value.kind as ActionKind))
    throw new ActionError('Unknown action')
  for (const name of ['flow', 'instance', 'exchange'])
    if (value[name] !== undefined && typeof value[name] !== 'string')
      throw new ActionError(`${name} must be a string`)
  if (value.inputResponses !== undefined && !isRecord(value.inputResponses))
    throw new ActionError('inputResponses must be an object')
  return value as unknown as ActionRequest
}
