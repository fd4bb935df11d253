/**
 * Clients and the network. A client holds what a real one would: its request, the state, the open questions, the id of its
 * task. It repeats a request until it has a reply. Its habits are things that happen in the field, or that an attacker does.
 */

import { type Fleet, REQUEST } from './fleet.ts'
import { answerTo, type Judge, type Message, type Sent } from './judge.ts'
import type { Operators } from './operator.ts'
import type { CallPlan, Plan } from './plan.ts'
import type { World } from './world.ts'

export interface Clients {
  /** The calls that have not ended. */
  readonly open: Set<string>
  /** Acknowledgements of answers, over all calls. */
  readonly acknowledged: number
}

type Unsent = Omit<Sent, 'id' | 'sentAt'>

interface InputRequest {
  readonly params: {
    readonly message: string
    readonly requestedSchema: { readonly properties: Readonly<Record<string, { readonly type: string }>> }
  }
}
type Questions = Readonly<Record<string, InputRequest>>
interface Answer {
  readonly key: string
  readonly text: string
  readonly value: string
  /** It does not fit its question, and will be asked for again. */
  readonly misfit: boolean
  readonly response: object
}

const META = 'io.modelcontextprotocol'
const VERSION = '2026-07-28'
/** A client waits this long for a reply. */
const PATIENCE_MS = 40_000
/** The server or its store is busy: the same request may succeed later. */
const LATER = -32000

export function startClients(
  world: World,
  plan: Plan,
  fleet: Fleet,
  judge: Judge,
  operators: Operators,
): Clients {
  const dice = world.dice('clients')
  const network = world.dice('network')
  const open = new Set<string>()
  let lastRequest = 0
  let acknowledged = 0
  const misfits = new Set<string>()
  const forked = new Set<string>()

  /** Delivers one copy of a request to some instance, and its reply, if there is one, to `settle`. */
  const deliver = (
    original: Unsent,
    request: (sent: Sent) => Request,
    settle: (message?: Message) => void,
  ): void => {
    const sent = remember(original)
    const travel = (): number =>
      fleet.faulty && network.chance(plan.noise.slow) ? network.int(500, 30_000) : 1 + network.next() * 20
    const isLost = (): boolean => fleet.faulty && network.chance(plan.noise.lose)
    if (isLost()) return
    world.schedule(travel(), undefined, () => {
      const { process, server } = fleet.balance()
      if (!process.alive) return void world.schedule(travel(), undefined, () => settle())
      world.schedule(0, process, async () => {
        fleet.crossing(process)
        if (!process.alive) return
        const message = await read(await server.fetch(request(sent)))
        fleet.crossing(process)
        if (!process.alive) return
        if (message) judge.replied(sent, message)
        if (!isLost()) world.schedule(travel(), undefined, () => settle(message))
      })
    })
  }

  /** Sends a request once. Resolves with nothing if no reply comes. */
  const attempt = (
    sent: Unsent,
    method: string,
    params: object,
    principal: string,
  ): Promise<Message | undefined> =>
    new Promise((resolve) => {
      const request = (copy: Sent): Request => toRequest(method, params, principal, copy)
      world.schedule(PATIENCE_MS, undefined, () => resolve(undefined))
      deliver(sent, request, resolve)
      if (fleet.faulty && network.chance(plan.noise.double))
        world.schedule(network.int(0, 3_000), undefined, () => deliver(sent, request, resolve))
    })

  /** Sends a request until there is a reply that is not "later". */
  const insist = async (
    sent: Unsent,
    method: string,
    params: object,
    principal: string,
  ): Promise<Message> => {
    for (;;) {
      const message = await attempt(sent, method, params, principal)
      if (message && message.error?.code !== LATER) return message
      await world.sleep(dice.int(300, 4_000))
    }
  }

  const start = async (call: CallPlan): Promise<void> => {
    await world.sleep(call.startMs)
    await inRounds(call, '', undefined, undefined)
  }

  /** Drives a call in rounds from here on, until it ends or becomes a task. */
  const inRounds = async (
    call: CallPlan,
    branch: string,
    state: string | undefined,
    questions: Questions | undefined,
  ): Promise<void> => {
    const name = `${call.id}${branch}`
    open.add(name)
    const { tool, principal, habits } = call
    const given = new Map<string, Answer>()
    let next = { state, questions }
    let left = habits.has('leave') ? dice.int(2, 5) : Number.POSITIVE_INFINITY
    for (;;) {
      const { state: held, questions: asks } = next
      const answers = answersTo(call, branch, asks ?? {})
      const extra = habits.has('answer-again')
        ? [...given.values()].map((one) => ({ ...one, response: other(one) }))
        : []
      const params = (who: CallPlan): object => ({
        name: tool,
        arguments: { call: who.id },
        ...(held !== undefined && { requestState: held }),
        ...(answers.length + extra.length > 0 && { inputResponses: toResponses([...extra, ...answers]) }),
      })
      const unsent: Unsent = { call, branch, state: held, answers: JSON.stringify(toResponses(answers)) }
      if (held !== undefined) attack(unsent, params)
      if (branch === '' && habits.has('fork') && !forked.has(call.id) && answers.length > 0) {
        forked.add(call.id)
        void inRounds(call, 'b', held, asks)
      }
      // Who is about to leave does not repeat a request.
      const send = habits.has('leave') && held !== undefined ? attempt : insist
      const message = await send(unsent, 'tools/call', params(call), principal)
      if (!message || message.error?.code === LATER) {
        judge.left(call)
        break
      }
      if (habits.has('repeat')) void repeatLater(unsent, 'tools/call', params(call), principal)
      const { resultType, taskId, requestState, inputRequests } = message.result ?? {}
      if (resultType === 'task') {
        await asTask(call, String(taskId))
        break
      }
      if (resultType !== 'input_required') {
        await judge.ended(unsent, message)
        break
      }
      for (const answer of answers) {
        if (!answer.misfit) acknowledge(call, branch, answer.key, answer)
        if (!answer.misfit) given.set(answer.key, answer)
      }
      next = { state: requestState as string | undefined, questions: inputRequests as Questions | undefined }
      const asked = Object.entries(next.questions ?? {})
      for (const [key, request] of asked) judge.asked(call, branch, key, textOf(request), acknowledged)
      if (--left === 0) {
        judge.left(call)
        break
      }
      await world.sleep(asked.length > 0 ? dice.int(50, 8_000) : 250)
    }
    open.delete(name)
  }

  const asTask = async (call: CallPlan, taskId: string): Promise<void> => {
    const { principal, habits } = call
    const unsent: Unsent = { call, branch: '', state: undefined, answers: '' }
    operators.found(call, taskId)
    let left = habits.has('leave') || habits.has('cancel') ? dice.int(1, 6) : Number.POSITIVE_INFINITY
    for (;;) {
      if (--left === 0) {
        judge.left(call)
        if (habits.has('cancel')) await insist(unsent, 'tasks/cancel', { taskId }, principal)
        return
      }
      await world.sleep(dice.int(100, 3_000))
      const since = acknowledged
      const message = await insist(unsent, 'tasks/get', { taskId }, principal)
      const { status, inputRequests, result, error } = message.result ?? {}
      // A task that an operator has failed may be retried.
      const hasEnded = message.error || status === 'failed' || status === 'cancelled'
      if (hasEnded && operators.isBusy(call)) continue
      if (message.error) return judge.ended({ call, branch: '' }, message)
      if (status === 'completed') return judge.ended({ call, branch: '' }, { result } as Message)
      if (status === 'failed') return judge.ended({ call, branch: '' }, { error } as Message)
      if (status === 'cancelled') return
      if (status !== 'input_required') continue
      const asks = inputRequests as Questions
      // A task asks a question again under another key; an answer under this one is settled.
      for (const [key, request] of Object.entries(asks)) judge.asked(call, '', key, textOf(request), since)
      await world.sleep(dice.int(10, 3_000))
      const answers = answersTo(call, '', asks)
      if (answers.length === 0) continue
      const update = (list: readonly Answer[]): object => ({ taskId, inputResponses: toResponses(list) })
      const reply = await insist(unsent, 'tasks/update', update(answers), principal)
      if (reply.error) continue
      for (const answer of answers) acknowledge(call, '', answer.key, answer)
      if (!habits.has('answer-again')) continue
      const others = answers.map((one) => ({ ...one, response: other(one) }))
      await insist(unsent, 'tasks/update', update(others), principal)
    }
  }

  const acknowledge = (call: CallPlan, branch: string, key: string, { text, value }: Answer): void => {
    acknowledged++
    judge.acknowledged(call, branch, key, text, value)
  }

  const answersTo = (call: CallPlan, branch: string, questions: Questions): Answer[] => {
    const entries = Object.entries(questions)
    const some =
      call.habits.has('partial') && entries.length > 1
        ? entries.slice(dice.int(0, entries.length - 1))
        : entries
    return some.map(([key, request]) => {
      const text = textOf(request)
      const [field, { type = 'string' } = {}] = Object.entries(
        request.params.requestedSchema.properties,
      )[0] ?? ['v']
      const value = answerTo(call.id, branch, text, type === 'boolean' ? 'boolean' : 'string')
      const misfit =
        call.habits.has('misfit') && !misfits.has(`${call.id} ${branch} ${text}`) && value !== 'decline'
      if (misfit) misfits.add(`${call.id} ${branch} ${text}`)
      const content = { [field]: misfit ? 7 : type === 'boolean' ? value === 'true' : value }
      const response = value === 'decline' ? { action: 'decline' } : { action: 'accept', content }
      return { key, text, value, misfit, response }
    })
  }

  /** Another answer to the same question, which comes too late. */
  const other = ({ response }: Answer): object => {
    const [[field, value] = ['v', 'late']] = Object.entries((response as { content?: object }).content ?? {})
    return { action: 'accept', content: { [field]: typeof value === 'boolean' ? !value : 'late' } }
  }

  const attack = (unsent: Unsent, params: (call: CallPlan) => object): void => {
    const { call } = unsent
    const other = plan.calls.find(
      ({ tool, id, older }) => !older && tool === call.tool && id !== call.id,
    ) ?? {
      ...call,
      id: 'c9',
    }
    if (call.habits.has('other-arguments'))
      void attempt({ ...unsent, hostile: 'other arguments' }, 'tools/call', params(other), call.principal)
    if (call.habits.has('other-caller'))
      void attempt({ ...unsent, hostile: 'another caller' }, 'tools/call', params(call), 'mallory')
  }

  const repeatLater = async (
    unsent: Unsent,
    method: string,
    params: object,
    principal: string,
  ): Promise<void> => {
    await world.sleep(dice.int(10, 60_000))
    await attempt(unsent, method, params, principal)
  }

  const remember = (sent: Unsent): Sent => {
    const full = { ...sent, id: `r${++lastRequest}`, sentAt: world.now }
    fleet.requests.set(full.id, full)
    return full
  }

  for (const call of plan.calls) {
    if (call.older) continue
    open.add(call.id)
    void start(call)
  }
  return {
    open,
    get acknowledged() {
      return acknowledged
    },
  }
}

function toResponses(answers: readonly Answer[]): object {
  return Object.fromEntries(answers.map(({ key, response }) => [key, response]))
}

/** The author's text of a question: an answer that did not fit adds its problem to the message. */
export function textOf({ params }: InputRequest): string {
  return /Q\[[^\]]*\]/.exec(params.message)?.[0] ?? params.message
}

async function read(response: Response): Promise<Message | undefined> {
  const body = await response.text()
  const isStream = response.headers.get('content-type')?.startsWith('text/event-stream')
  const lines = body.split('\n').filter((line) => line.startsWith('data: '))
  const text = isStream ? lines.at(-1)?.slice('data: '.length) : body
  const message = text ? (JSON.parse(text) as Message) : undefined
  return message?.result || message?.error ? message : undefined
}

function toRequest(method: string, params: object, principal: string, { id, call }: Sent): Request {
  const { name, taskId } = params as { name?: string; taskId?: string }
  const capabilities = {
    elicitation: { form: {} },
    ...(call.follows && { extensions: { [`${META}/tasks`]: {} } }),
  }
  const _meta = {
    [`${META}/protocolVersion`]: VERSION,
    [`${META}/clientCapabilities`]: capabilities,
    [`${META}/clientInfo`]: { name: 'sim', version: '1' },
    [REQUEST]: id,
  }
  return new Request('http://127.0.0.1/mcp', {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'mcp-protocol-version': VERSION,
      'mcp-method': method,
      'mcp-name': name ?? taskId ?? '',
      'x-caller': principal,
    },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params: { ...params, _meta } }),
  })
}
