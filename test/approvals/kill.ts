/**
 * A worker and the pages as processes of their own, on one database. They can be killed at a point, or replaced one after the
 * other, while a client calls and an approver decides. What came of each order is compared with what may: every decision counts
 * once, nothing is executed without one, and nothing is executed under two keys.
 */

import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { createServer as createHttpServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { createApprovals } from '@rondo/approvals'
import { createServer } from 'rondo'
import type { Database } from '../support/store/store-harness.ts'
import { send } from '../support/task-client.ts'

export type Role = 'worker' | 'pages'

/** A call of the store, counted from 1, at which a process kills itself: of its part for approvals, or of that for tasks. */
export interface KillPoint {
  readonly role: Role
  readonly method:
    | 'put'
    | 'get'
    | 'list'
    | 'claim'
    | `tasks.${'append' | 'park' | 'settle' | 'claim' | 'deliverHook'}`
  readonly at: number
  /** `during`: the call was sent, and nobody knows whether it takes effect. */
  readonly when: 'before' | 'during' | 'after'
}

/** A process that is wrong on purpose. */
export type Weakness = 'forgetful' | 'doubling' | 'rash'

export interface Pair {
  /** Runs one order to its end. Returns what is wrong with it. */
  order(name: string, point?: KillPoint): Promise<readonly string[]>
  /** Starts another process in the place of one, then lets that one drain. */
  replace(role: Role): Promise<void>
  /** How often a process was killed at its point. */
  readonly kills: number
  close(): Promise<void>
}

const KEYS = 'k1:MDEyMzQ1Njc4OWFiY2RlZmdoaWprbG1ub3BxcnN0dXY='
const SCRIPT = new URL('./kill-process.js', import.meta.url)

interface Running {
  child: ChildProcess
  port: number
}

export interface PairOptions {
  readonly weak?: Weakness
  /** How long an order may take. */
  readonly patienceMs?: number
}

export async function startPair(
  database: Database,
  { weak, patienceMs = 60_000 }: PairOptions = {},
): Promise<Pair> {
  const applied: { order: string; key: string; decided: boolean }[] = []
  const decided = new Set<string>()
  const downstream = createHttpServer(async (request, response) => {
    const { order, key } = JSON.parse(await text(request)) as { order: string; key: string }
    applied.push({ order, key, decided: decided.has(order) })
    response.end('{}')
  }).listen(0, '127.0.0.1')
  await once(downstream, 'listening')
  const env = {
    ...process.env,
    KEYS,
    ADDRESS: JSON.stringify(database.address),
    DOWNSTREAM: `http://127.0.0.1:${(downstream.address() as AddressInfo).port}/`,
    ...(weak && { WEAK: weak }),
  }
  const alive = new Set<ChildProcess>()
  const acknowledged = new Set<string>()
  const lost: string[] = []
  let kills = 0
  let closed = false
  const start = async (role: Role): Promise<Running> => {
    const child = fork(SCRIPT, {
      env: { ...env, ROLE: role },
      execArgv: [],
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    })
    alive.add(child)
    child.once('exit', () => alive.delete(child))
    const [{ port }] = (await once(child, 'message')) as [{ port: number }]
    child.once('exit', (_code, signal) => {
      if (closed || running[role].child !== child) return
      if (signal === 'SIGKILL') kills += 1
      void renew(role)
    })
    return { child, port }
  }
  const renew = async (role: Role): Promise<void> => {
    running[role] = await start(role)
  }
  const running = {} as Record<Role, Running>
  running.worker = await start('worker')
  running.pages = await start('pages')

  const mcp = {
    fetch: (request: Request) =>
      fetch(`http://127.0.0.1:${running.worker.port}/mcp`, {
        method: 'POST',
        headers: request.headers,
        body: request.body,
        duplex: 'half',
      } as RequestInit),
  }
  const open = async (path: string, init: RequestInit = {}): Promise<string> => {
    const response = await fetch(`http://127.0.0.1:${running.pages.port}/approvals${path}`, init)
    return response.text()
  }
  /** Approves everything that waits, as Ann. */
  const decide = async (): Promise<void> => {
    for (const [, id] of (await open('')).split('<h2>')[0]?.matchAll(/href="\/approvals\/r\/([\w-]+)"/g) ??
      []) {
      // Another order may decide this one too, after the page was fetched.
      const wasAcknowledged = id !== undefined && acknowledged.has(id)
      const page = await open(`/r/${id}`)
      const order = /<h1>Deploy (\S+)\?<\/h1>/.exec(page)?.[1] ?? ''
      const csrf = /id="main".*name="csrf" value="([^"]+)"/s.exec(page)?.[1]
      if (csrf === undefined || id === undefined) continue
      if (wasAcknowledged) lost.push(order)
      decided.add(order)
      const body = new URLSearchParams({ csrf, decision: 'approve' })
      const said = await open(`/r/${id}`, { method: 'POST', body })
      if (said.includes('You have approved this.')) acknowledged.add(id)
    }
  }
  const insist = async <T>(until: number, act: () => Promise<T | undefined>): Promise<T | undefined> => {
    while (Date.now() < until) {
      // A process that was killed in the meantime has no reply.
      const found = await act().catch(() => undefined)
      if (found !== undefined) return found
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
    return undefined
  }
  const arm = async ({ role, ...point }: KillPoint): Promise<void> => {
    for (let armed = false; !armed; ) {
      const { child } = running[role]
      const stop = new AbortController()
      // The point of the order before may be reached only now: then its successor is armed.
      const events = ['message', 'exit'].map((name) =>
        once(child, name, { signal: stop.signal }).then(
          () => name === 'message',
          () => false,
        ),
      )
      if (child.connected && child.send(point, () => {})) armed = await Promise.race(events)
      stop.abort()
      await new Promise((resolve) => setTimeout(resolve, 5))
    }
  }
  return {
    get kills() {
      return kills
    },
    async order(order, point) {
      const until = Date.now() + patienceMs
      if (point) await arm(point)
      let sent = 0
      const taskId = await insist(until, async () => {
        sent += 1
        const { result } = await send(mcp, 'tools/call', { name: 'deploy', arguments: { order } })
        return result?.taskId as string | undefined
      })
      const end = await insist(until, async () => {
        const { result } = await send(mcp, 'tasks/get', { taskId })
        if (result?.status !== 'working') return result
        await decide()
        return undefined
      })
      const keys = new Set(applied.filter((one) => one.order === order).map(({ key }) => key))
      return [
        ...(end === undefined ? [`${order} did not end`] : []),
        ...(lost.includes(order) ? [`a decision about ${order} was lost`] : []),
        ...(end && !JSON.stringify(end).includes(`Deployed ${order}.`)
          ? [`${order} ended with ${JSON.stringify(end)}`]
          : []),
        ...(keys.size === 1 || end === undefined ? [] : [`${order} was executed under ${keys.size} keys`]),
        ...(applied.some((one) => one.order === order && !one.decided)
          ? [`${order} was executed without a decision`]
          : []),
        ...(await checkRecord(database, order, end === undefined ? undefined : sent)),
      ]
    },
    async replace(role) {
      const { child } = running[role]
      await renew(role)
      child.kill('SIGTERM')
      await once(child, 'exit')
    },
    async close() {
      closed = true
      const gone = [...alive].map((child) => once(child, 'exit'))
      for (const child of alive) child.kill('SIGKILL')
      await Promise.all(gone)
      downstream.close()
      downstream.closeAllConnections()
    },
  }
}

/**
 * Reads the record in this process: it must be whole, and have one vote, one decision and one use of it, in this order. If the
 * reply to a call was lost, its task waits for a decision like the one of the next call, so there may be one use per call sent.
 */
async function checkRecord(database: Database, order: string, sent: number | undefined): Promise<string[]> {
  const server = createServer({
    name: 'killed',
    version: '1.0.0',
    keys: KEYS,
    log: 'off',
    store: database.open(),
    tasks: { concurrency: 0 },
  })
  const approvals = createApprovals({
    url: 'http://127.0.0.1/approvals',
    login: () => undefined,
    groups: () => ['ann'],
    pollMs: 3_600_000,
  })
  server.use(approvals)
  const desk = approvals.desk()
  const problems = [...(await desk.verify()).problems]
  const happenings = (await desk.entries(0, 10_000)).flatMap(({ happening }) => happening ?? [])
  const asked = happenings.filter((one) => one.event === 'asked' && one.message === `Deploy ${order}?`)
  const requests = new Set(asked.map(({ request }) => request))
  if (requests.size !== asked.length) problems.push(`${order} was asked twice`)
  const complete = [...requests].filter((id) => {
    const events = happenings.filter(({ request }) => request === id).map(({ event }) => event)
    const told = events.filter((event) => event === 'voted' || event === 'decided' || event === 'used').join()
    if (told !== '' && told !== 'voted,decided' && told !== 'voted,decided,used')
      problems.push(`${order} has the record ${events.join(', ')}`)
    return told === 'voted,decided,used'
  })
  if (sent !== undefined && (complete.length < 1 || complete.length > sent))
    problems.push(`${order} has ${complete.length} decisions that were used, of ${sent} calls`)
  await server.close()
  return problems
}
