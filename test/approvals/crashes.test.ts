/**
 * Approvals with a fault at every point. In a run, a tool asks, Ann approves, and the tool acts. At each call of the store's part
 * for approvals the process dies, before the call or after it: its reply is lost, and a new instance continues.
 *
 * No decision is lost, none is counted twice, and nothing is executed without one.
 */

import { createApprovals } from '@rondo/approvals'
import { createServer, type Server, type ServerOptions } from 'rondo'
import type { ApprovalStore, Store } from 'rondo/store'
import { createBench } from 'rondo/testing'
import { describe, expect, it } from 'vitest'
import { createSqliteDatabase } from '../support/store/sqlite-database.ts'

const ORIGIN = 'http://127.0.0.1:3000'
const ISSUER = 'https://login.example'

type Approvals = ReturnType<typeof createApprovals>

function createDeployer(options: Partial<ServerOptions>, deployed: string[], pollMs: number) {
  const server = createServer({ name: 'crashes', version: '1.0.0', ...options })
  server.tool('deploy', { task: 'auto' }, async (_, ctx) => {
    await ctx.approve('deploy', { from: 'managers', message: 'Deploy?' })
    await ctx.effect('deploy', ({ key }) => void deployed.push(key))
    return 'Deployed.'
  })
  const approvals = createApprovals({
    url: `${ORIGIN}/approvals`,
    login: () => ({ kind: 'login', issuer: ISSUER, subject: 'ann' }),
    groups: () => ['ann'],
    pollMs,
  })
  server.use(approvals)
  return { server, approvals }
}

/** Approves on the page; returns whether the request is decided. */
async function approve(approvals: Approvals, id: string): Promise<boolean> {
  const visit = (init: RequestInit = {}) => approvals.fetch(new Request(`${ORIGIN}/approvals/r/${id}`, init))
  const csrf = /name="csrf" value="([^"]+)"/.exec(await (await visit()).text())?.[1]
  if (csrf !== undefined)
    await visit({ method: 'POST', body: new URLSearchParams({ csrf, decision: 'approve' }) })
  return (await approvals.desk().get(id))?.state === 'approved'
}

interface Fault {
  /** The call of the store at which it happens, counted from 1. */
  readonly at: number
  /** Whether the call took effect before its reply was lost. */
  readonly after: boolean
}

/** The store, with a fault at one call. */
function withFault(approvals: ApprovalStore, fault: Fault | undefined, onFault: () => void): ApprovalStore {
  let calls = 0
  const faulty = <A extends unknown[], R>(method: (...given: A) => Promise<R>) => {
    return async (...given: A): Promise<R> => {
      calls += 1
      const isHere = calls === fault?.at
      if (isHere) onFault()
      if (isHere && !fault.after) throw new Error('the process died before the call')
      const result = await method(...given)
      if (isHere) throw new Error('the process died after the call')
      return result
    }
  }
  const { put, claim, get, list } = approvals
  return { ...approvals, put: faulty(put), claim: faulty(claim), get: faulty(get), list: faulty(list) }
}

interface Outcome {
  readonly deployed: readonly string[]
  readonly events: readonly string[]
  readonly text: string
  readonly happened: boolean
  readonly problems: readonly string[]
}

async function runOnce(fault?: Fault, weaken = (same: ApprovalStore) => same): Promise<Outcome> {
  const deployed: string[] = []
  let happened = false
  let current: Approvals | undefined
  let part: ApprovalStore | undefined
  const bench = createBench((options): Server => {
    const store = options.store as Store
    part ??= withFault(weaken(store.approvals as ApprovalStore), fault, () => {
      happened = true
    })
    const { server, approvals } = createDeployer(
      { ...options, dev: false, store: { ...store, approvals: part } },
      deployed,
      3_600_000,
    )
    current = approvals
    return server
  })
  const task = bench.task('deploy', {}, { principal: { issuer: ISSUER, subject: 'erin' } })
  /** Repeats what failed, each time on a new instance that finds all leases ended. */
  const insist = async <T>(act: (approvals: Approvals) => Promise<T | undefined>): Promise<T> => {
    for (let tries = 0; tries < 40; tries++) {
      const found = current && (await act(current).catch(() => undefined))
      if (found !== undefined) return found
      await task.restart()
      await bench.advance(61_000)
    }
    throw new Error('The run never came to an end')
  }
  await task.next()
  const id = await insist(async (it) => (await it.desk().list(['open'], 5)).requests[0]?.id)
  await insist(async (it) => (await approve(it, id)) || undefined)
  const text = await insist(async (it) => {
    await it.desk().drain()
    const round = await task.next()
    return round.kind === 'complete' ? round.text : undefined
  })
  const events = (await current?.desk().history(id))?.map(({ happening }) => String(happening?.event)) ?? []
  const problems = (await current?.desk().verify())?.problems ?? ['no record']
  await bench.server.close()
  return { deployed, events, text, happened, problems }
}

/** Everything that must not be. */
function violations({ deployed, events, text, problems }: Outcome): string[] {
  const count = (event: string) => events.filter((one) => one === event).length
  const keys = new Set(deployed).size
  return [
    ...problems,
    ...(keys === 1 ? [] : [`executed under ${keys} keys`]),
    ...(count('voted') === 1 && count('decided') === 1 ? [] : [`recorded ${events.join(', ')}`]),
    ...(count('used') === 1 && events.indexOf('used') > events.indexOf('decided')
      ? []
      : ['used without a decision']),
    ...(text.startsWith('Deployed.') ? [] : [`ended with ${text}`]),
  ]
}

describe('a process that dies at any point', () => {
  it('L6 V7 loses no decision, counts none twice, and executes nothing without one', async () => {
    let points = 0
    for (const after of [false, true]) {
      for (let at = 1; at <= 60; at++) {
        const outcome = await runOnce({ at, after })
        if (!outcome.happened) break
        points += 1
        expect(violations(outcome), `the fault at call ${at}, ${after ? 'after' : 'before'} it`).toEqual([])
      }
    }
    expect(points).toBeGreaterThan(20)
  })

  it('control: finds a store that records a vote twice', async () => {
    const repeating = (approvals: ApprovalStore): ApprovalStore => ({
      ...approvals,
      put: (write) =>
        approvals.put({ ...write, entries: [...(write.entries ?? []), ...(write.entries ?? [])] }),
    })
    expect(violations(await runOnce(undefined, repeating)).join()).toContain('recorded asked, asked')
  })

  it('control: finds a store that lets a stale write replace a newer one', async () => {
    const stale = (approvals: ApprovalStore): ApprovalStore => {
      let first: Awaited<ReturnType<ApprovalStore['get']>>
      return {
        ...approvals,
        async get(tenant, id) {
          first ??= await approvals.get(tenant, id)
          return first
        },
        async put(write) {
          const version = (await approvals.get(write.tenant, write.id))?.version ?? 0
          return approvals.put({ ...write, version })
        },
      }
    }
    await expect(runOnce(undefined, stale)).rejects.toThrow('never came to an end')
  })
})

describe('a process of its own', () => {
  it('L6 serves the pages with the same store and keys, and either kind of process may be restarted', async () => {
    const database = await createSqliteDatabase()
    const keys = 'k1:MDEyMzQ1Njc4OWFiY2RlZmdoaWprbG1ub3BxcnN0dXY='
    const deployed: string[] = []
    const authenticate = () => ({ issuer: ISSUER, subject: 'erin' })
    const start = (concurrency: number) =>
      createDeployer(
        { keys, log: () => {}, authenticate, store: database.open(), tasks: { concurrency } },
        deployed,
        20,
      )
    let worker = start(4)
    let desk = start(0)
    const post = async (method: string, params: object) => {
      const _meta = {
        'io.modelcontextprotocol/protocolVersion': '2026-07-28',
        'io.modelcontextprotocol/clientInfo': { name: 'test', version: '1' },
        'io.modelcontextprotocol/clientCapabilities': { extensions: { 'io.modelcontextprotocol/tasks': {} } },
      }
      const named = params as { name?: string; taskId?: string }
      const response = await worker.server.fetch(
        new Request('http://127.0.0.1:3000/mcp', {
          method: 'POST',
          headers: {
            'content-type': 'application/json',
            accept: 'application/json, text/event-stream',
            'mcp-protocol-version': '2026-07-28',
            'mcp-method': method,
            'mcp-name': named.name ?? named.taskId ?? '',
          },
          body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params: { ...params, _meta } }),
        }),
      )
      return (await response.json()) as { result?: Record<string, unknown>; error?: unknown }
    }
    const created = await post('tools/call', { name: 'deploy', arguments: {} })
    expect(created.error).toBeUndefined()
    const taskId = created.result?.taskId as string
    const opened = async () => (await desk.approvals.desk().list(['open'], 5)).requests
    await expect.poll(opened).toHaveLength(1)
    const [request] = await opened()
    await worker.server.close()
    await desk.server.close()
    desk = start(0)
    expect(await approve(desk.approvals, request?.id ?? '')).toBe(true)
    await desk.server.close()
    expect(deployed).toEqual([])
    worker = start(4)
    desk = start(0)
    await expect.poll(async () => (await post('tasks/get', { taskId })).result?.status).toBe('completed')
    expect(deployed).toHaveLength(1)
    expect((await desk.approvals.desk().verify()).problems).toEqual([])
    await worker.server.close()
    await desk.server.close()
    await database.close()
  })
})
