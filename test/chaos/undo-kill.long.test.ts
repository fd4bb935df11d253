/**
 * Processes that are killed with signal 9 at chosen calls of their store and of the hotel, while calls reserve, ask, and are booked,
 * refused, cancelled by their owner or by an operator, or left alone. In the end no room is reserved for a call that was not booked,
 * and none was released under two keys.
 */

import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { createServer as createHttpServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { describePostgres } from '../support/postgres.ts'
import { startPostgres, type TestPostgres } from '../support/postgres-server.ts'
import { createPostgresDatabase } from '../support/store/postgres-database.ts'
import { createSqliteDatabase } from '../support/store/sqlite-database.ts'
import type { Database } from '../support/store/store-harness.ts'
import { send } from '../support/task-client.ts'

const KEYS = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='
const SCRIPT = new URL('./undo-process.js', import.meta.url)

type Ending = 'yes' | 'no' | 'fails' | 'gone' | 'cancelled' | 'operator'

interface Order {
  readonly tool: 'rounds' | 'task'
  readonly ending: Ending
  readonly point?: {
    readonly method: string
    readonly at: number
    readonly when: 'before' | 'during' | 'after'
  }
}

const kill = (
  tool: Order['tool'],
  ending: Ending,
  method: string,
  at: number,
  when: 'before' | 'during' | 'after',
) => ({
  tool,
  ending,
  point: { method, at, when },
})

const ORDERS: readonly Order[] = [
  { tool: 'rounds', ending: 'yes' },
  { tool: 'task', ending: 'yes' },
  kill('rounds', 'no', 'records.put', 1, 'after'),
  kill('rounds', 'no', 'reserve', 2, 'after'),
  kill('rounds', 'fails', 'release', 1, 'after'),
  kill('rounds', 'gone', 'records.put', 3, 'during'),
  kill('rounds', 'yes', 'records.put', 5, 'after'),
  kill('task', 'no', 'alarms.set', 1, 'after'),
  kill('task', 'no', 'release', 2, 'during'),
  kill('task', 'fails', 'records.put', 6, 'before'),
  kill('task', 'yes', 'records.put', 5, 'after'),
  kill('task', 'yes', 'tasks.settle', 1, 'during'),
  kill('task', 'yes', 'alarms.ended', 1, 'after'),
  kill('task', 'cancelled', 'tasks.cancel', 1, 'after'),
  kill('task', 'cancelled', 'release', 1, 'before'),
  kill('task', 'operator', 'release', 2, 'after'),
  kill('task', 'operator', 'alarms.ended', 2, 'before'),
  kill('task', 'fails', 'tasks.append', 4, 'after'),
]

interface Verdict {
  readonly kills: number
  readonly booked: number
  readonly released: number
  readonly problems: readonly string[]
}

const wait = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

async function run(database: Database, orders: readonly Order[], forgetful = false): Promise<Verdict> {
  /** The rooms that are reserved, by the key of their effect. */
  const reserved = new Map<string, string>()
  const undoneWith = new Map<string, Set<string>>()
  const hotel = createHttpServer(async (request, response) => {
    const given = JSON.parse(await text(request)) as Record<'order' | 'key' | 'undoneWith', string>
    if (given.undoneWith === undefined) reserved.set(given.key, given.order)
    else {
      reserved.delete(given.key)
      undoneWith.set(given.key, (undoneWith.get(given.key) ?? new Set()).add(given.undoneWith))
    }
    response.end('{}')
  }).listen(0, '127.0.0.1')
  await once(hotel, 'listening')
  const store = database.open()
  await store.ready()
  const env = {
    ...process.env,
    KEYS,
    ADDRESS: JSON.stringify(database.address),
    DOWNSTREAM: `http://127.0.0.1:${(hotel.address() as AddressInfo).port}/`,
    ...(forgetful && { FORGETFUL: '1' }),
  }
  let kills = 0
  let closed = false
  let running: { child: ChildProcess; port: number } | undefined
  const start = async (): Promise<void> => {
    const child = fork(SCRIPT, { env, execArgv: [], stdio: ['ignore', 'ignore', 'inherit', 'ipc'] })
    child.once('exit', (_code, signal) => {
      if (closed) return
      if (signal === 'SIGKILL') kills += 1
      running = undefined
      void start()
    })
    const [{ port }] = (await once(child, 'message')) as [{ port: number }]
    running = { child, port }
  }
  await start()
  onTestFinished(async () => {
    closed = true
    const gone = running && once(running.child, 'exit')
    running?.child.kill('SIGKILL')
    await gone
    hotel.close()
    hotel.closeAllConnections()
  })
  const mcp = {
    fetch: (request: Request) =>
      fetch(`http://127.0.0.1:${running?.port ?? 1}/mcp`, {
        method: 'POST',
        headers: request.headers,
        body: request.body,
        duplex: 'half',
      } as RequestInit),
  }
  /** Sends a request until there is a reply that is not about a process that died. */
  const insist = async (method: string, params: Record<string, unknown>): ReturnType<typeof send> => {
    const until = Date.now() + 8_000
    while (Date.now() < until) {
      const reply = await send(mcp, method, params).catch(() => undefined)
      if (reply && !/Retry in|Send it again/.test(String(reply.error?.message ?? ''))) return reply
      await wait(20)
    }
    return { error: { code: 0, message: 'no reply' } } as Awaited<ReturnType<typeof send>>
  }
  /** The point of the last order may still kill a process that is being armed: its successor is armed then. */
  const arm = async (point: NonNullable<Order['point']>): Promise<void> => {
    for (let isArmed = false; !isArmed; ) {
      const child = running?.child
      if (!child?.connected) await wait(5)
      else {
        const over = new AbortController()
        const heard = (event: string) => once(child, event, over).then(() => event === 'message')
        const first = Promise.race([heard('message'), heard('exit')]).catch(() => false)
        child.send(point, () => {})
        isArmed = await first
        over.abort()
      }
    }
  }
  const answer = (ending: Ending) => ({ sure: { action: 'accept', content: { confirm: ending !== 'no' } } })
  const inRounds = async (params: Record<string, unknown>, ending: Ending): Promise<string> => {
    let { result, error } = await insist('tools/call', params)
    while (result?.resultType === 'input_required') {
      if (result.inputRequests && ending === 'gone') return 'gone'
      const inputResponses = result.inputRequests ? { inputResponses: answer(ending) } : {}
      ;({ result, error } = await insist('tools/call', {
        ...params,
        requestState: result.requestState,
        ...inputResponses,
      }))
    }
    return JSON.stringify(result ?? error)
  }
  const asTask = async (params: Record<string, unknown>, ending: Ending): Promise<string> => {
    const { result } = await insist('tools/call', params)
    const taskId = String(result?.taskId)
    const until = Date.now() + 10_000
    while (Date.now() < until) {
      const { result: task, error } = await insist('tasks/get', { taskId })
      if (error || !['working', 'input_required'].includes(String(task?.status)))
        return JSON.stringify(error ?? task)
      if (task?.status === 'input_required') {
        if (ending === 'cancelled') await insist('tasks/cancel', { taskId })
        else if (ending === 'operator') await store.operator?.act({ kind: 'cancel', id: taskId }, 'ann')
        else await insist('tasks/update', { taskId, inputResponses: answer(ending) })
      }
      await wait(20)
    }
    return 'no end'
  }
  const replies = new Map<string, string>()
  for (const [i, { tool, ending, point }] of orders.entries()) {
    const order = `${i} ${tool} ${ending} ${point ? `${point.when} ${point.method} ${point.at}` : ''}`
    if (point) await arm(point)
    const params = { name: tool, arguments: { order, ending } }
    replies.set(order, await (tool === 'task' ? asTask : inRounds)(params, ending))
  }
  const isBooked = (order: string) => replies.get(order)?.includes('Booked.') ?? false
  const left = () => [...reserved.values()].filter((order) => !isBooked(order))
  const until = Date.now() + (forgetful ? 5_000 : 20_000)
  while (left().length > 0 && Date.now() < until) await wait(50)
  const held = (order: string) => [...reserved.values()].filter((one) => one === order).length
  return {
    kills,
    booked: [...replies.keys()].filter(isBooked).length,
    released: undoneWith.size,
    problems: [
      ...left().map((order) => `a room is reserved for "${order}": ${replies.get(order)}`),
      ...[...replies.keys()]
        .filter((order) => isBooked(order) && held(order) !== 2)
        .map((order) => `${order} is booked without its rooms`),
      ...[...undoneWith]
        .filter(([, keys]) => keys.size > 1)
        .map(([key, keys]) => `${key} was released under ${keys.size} keys`),
      ...[...replies]
        .filter(([, reply]) => reply.includes('no reply') || reply === 'no end')
        .map(([order, reply]) => `${order}: ${reply}`),
    ],
  }
}

function describeKills(open: () => Database | Promise<Database>): void {
  it('M1 no room stays reserved for a call that was not booked, and none is released under two keys', async () => {
    const database = await open()
    onTestFinished(() => database.close())
    const verdict = await run(database, ORDERS)
    expect(verdict.problems).toEqual([])
    expect(verdict.kills).toBeGreaterThanOrEqual(10)
    expect(verdict.booked).toBeGreaterThanOrEqual(4)
    expect(verdict.released).toBeGreaterThan(10)
  })
}

describe('processes that are killed while calls can be undone, on SQLite', () => {
  describeKills(createSqliteDatabase)

  it('control: processes that forget their intents leave rooms behind', async () => {
    const database = await createSqliteDatabase()
    onTestFinished(() => database.close())
    const orders: readonly Order[] = [
      { tool: 'rounds', ending: 'gone' },
      { tool: 'task', ending: 'cancelled' },
    ]
    const { problems } = await run(database, orders, true)
    expect(problems.length).toBeGreaterThanOrEqual(4)
  })
})

describePostgres('processes that are killed while calls can be undone, on PostgreSQL', () => {
  let server: TestPostgres
  beforeAll(async () => {
    server = await startPostgres({ fsync: false })
  })
  afterAll(() => server.stop())
  describeKills(() => createPostgresDatabase(server))
})
