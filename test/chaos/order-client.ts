/**
 * A client that places orders: repeats requests whose response got lost, answers questions, and counts its rounds.
 */

import { type Agent, request } from 'node:http'
import type { HistoryEvent, Recorder } from './history.ts'

export interface Order {
  readonly text: string
  readonly rounds: number
  /** Requests that had to be sent again. */
  readonly repeats: number
}

interface Reply {
  readonly result?: {
    readonly resultType: string
    readonly taskId?: string
    readonly status?: string
    readonly result?: { readonly content?: readonly { readonly text: string }[] }
    readonly content?: readonly { readonly text: string }[]
    readonly inputRequests?: Readonly<Record<string, unknown>>
    readonly requestState?: string
  }
  readonly error?: { readonly code: number; readonly message: string }
}

/** What a client says, by the key of the question: a place, and `yes` or `no`. */
export type Says = (key: string) => string

const ULM: Says = (key) => (key === 'address' ? 'Ulm' : 'yes')

/** How an order is placed, other than by default. */
export interface Placing {
  readonly says?: Says
  /** The name of the client in the history. */
  readonly process?: string
  readonly record?: Recorder
}

function toResponses(answers: Readonly<Record<string, string>>): Record<string, unknown> {
  const response = ([key, said]: [string, string]) => [
    key,
    { action: 'accept', content: key === 'address' ? { value: said } : { confirm: said === 'yes' } },
  ]
  return Object.fromEntries(Object.entries(answers).map(response))
}

function answersTo(asked: readonly string[], says: Says): Record<string, string> {
  return Object.fromEntries(asked.map((key) => [key, says(key)]))
}
const META = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientCapabilities': {
    elicitation: {},
    extensions: { 'io.modelcontextprotocol/tasks': {} },
  },
}
const MAX_ROUNDS = 12
const MAX_REPEATS = 200
const MAX_LOOKS = 3000

function post(
  url: URL,
  method: string,
  name: string,
  body: string,
  agent: Agent,
): Promise<{ status: number; text: string }> {
  const headers = {
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    'mcp-protocol-version': '2026-07-28',
    'mcp-method': method,
    'mcp-name': name,
  }
  return new Promise((resolve, reject) => {
    const req = request(url, { method: 'POST', headers, agent }, (res) => {
      let text = ''
      res.setEncoding('utf8')
      res.on('data', (chunk: string) => {
        text += chunk
      })
      res.on('end', () => resolve({ status: res.statusCode ?? 0, text }))
      res.on('error', reject)
      res.on('aborted', () => reject(new Error('aborted')))
    })
    req.on('error', reject).end(body)
  })
}

/** Sends until an instance responds: a dead or draining instance is the balancer's problem, not the user's. */
async function insist(
  send: () => Promise<{ status: number; text: string }>,
  repeated: () => void = () => {},
): Promise<{ reply: Reply; repeats: number }> {
  for (let repeats = 0; repeats < MAX_REPEATS; repeats++) {
    const got = await send().catch(() => undefined)
    if (got && got.status !== 502 && got.status !== 503) return { reply: JSON.parse(got.text), repeats }
    repeated()
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
  throw new Error(`no response after ${MAX_REPEATS} tries`)
}

export async function placeOrder(
  url: URL,
  tool: string,
  order: number,
  agent: Agent,
  { says = ULM, process = '', record }: Placing = {},
): Promise<Order> {
  const note = (type: HistoryEvent['type'], facts: object = {}): void =>
    record?.({ type, f: 'round', process, order, ...facts })
  let extra: Record<string, unknown> = {}
  let answers: Record<string, string> = {}
  let repeats = 0
  for (let round = 1; round <= MAX_ROUNDS; round++) {
    const params = { name: tool, arguments: { order }, ...extra, _meta: META }
    const body = JSON.stringify({ jsonrpc: '2.0', id: round, method: 'tools/call', params })
    note('invoke', { answers })
    const sent = await insist(
      () => post(url, 'tools/call', tool, body, agent),
      () => note('info'),
    )
    repeats += sent.repeats
    const { result, error } = sent.reply
    const asked = Object.keys(result?.inputRequests ?? {})
    if (!error) note('ok', { asks: asked })
    if (error || !result) throw new Error(`order ${order}, round ${round}: ${error?.message ?? 'no result'}`)
    if (result.resultType === 'complete')
      return { text: result.content?.[0]?.text ?? '', rounds: round, repeats }
    extra = { requestState: result.requestState }
    answers = answersTo(asked, says)
    if (asked.length > 0) extra.inputResponses = toResponses(answers)
  }
  throw new Error(`order ${order}: not done after ${MAX_ROUNDS} rounds`)
}

/**
 * Orders as a task. The reply that creates it is discarded `lost` times; then the call is made again, and its task is
 * followed.
 */
export async function placeTask(
  url: URL,
  tool: string,
  order: number,
  agent: Agent,
  lost: number,
  { says = ULM, process = '', record }: Placing = {},
): Promise<Order> {
  const note = (type: HistoryEvent['type'], facts: object = {}): void =>
    record?.({ type, f: 'round', process, order, ...facts })
  let id = 0
  let repeats = 0
  const send = async (
    method: string,
    name: string,
    params: object,
  ): Promise<NonNullable<Reply['result']>> => {
    const body = JSON.stringify({ jsonrpc: '2.0', id: ++id, method, params: { ...params, _meta: META } })
    const sent = await insist(
      () => post(url, method, name, body, agent),
      () => note('info'),
    )
    repeats += sent.repeats
    const { result, error } = sent.reply
    if (error || !result) throw new Error(`order ${order}, ${method}: ${error?.message ?? 'no result'}`)
    return result
  }
  const create = () => send('tools/call', tool, { name: tool, arguments: { order } })
  for (let i = 0; i < lost; i++) await create()
  const { taskId = '' } = await create()
  for (let look = 0; look < MAX_LOOKS; look++) {
    const { status, inputRequests, result } = await send('tasks/get', taskId, { taskId })
    if (status === 'completed') return { text: result?.content?.[0]?.text ?? '', rounds: id, repeats }
    if (status === 'input_required') {
      const asked = Object.keys(inputRequests ?? {})
      // Of the polls, the history has those that show a question.
      note('invoke')
      note('ok', { asks: asked })
      const answers = answersTo(asked, says)
      note('invoke', { answers })
      await send('tasks/update', taskId, { taskId, inputResponses: toResponses(answers) })
      note('ok')
    } else if (status !== 'working') throw new Error(`order ${order}: the task is ${status}`)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
  throw new Error(`order ${order}: not done after ${MAX_LOOKS} polls`)
}
