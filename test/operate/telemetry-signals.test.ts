/**
 * The four signals of an operator (latency, traffic, errors, saturation) by tool, for rounds and tasks, as `rondo/otel` alone
 * reports them to the SDK's reader of metrics.
 */

import { createServer, generateKey, RondoError, type Server, type ServerOptions } from 'rondo'
import { otel } from 'rondo/otel'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { createLeaseEngine } from '../../packages/rondo/src/store/engine/lease-engine.ts'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import type { EngineStore } from '../../packages/rondo/src/store/store.ts'
import { send, settled } from '../support/task-client.ts'
import { recordTelemetry, type Telemetry } from '../support/telemetry.ts'

let telemetry: Telemetry
const ends: (() => unknown)[] = []

beforeEach(() => {
  telemetry = recordTelemetry()
})
afterEach(async () => {
  for (const end of ends.splice(0)) await end()
})

function start(options: Partial<ServerOptions> = {}): Server {
  const named = { name: 'measured', version: '1', keys: generateKey('k1'), log: 'off' as const }
  const server = createServer({ ...named, telemetry: otel(telemetry.providers), ...options })
  ends.push(() => server.close())
  return server
}

type Labels = Readonly<Record<string, unknown>>

/** The number of times that a metric was recorded, or its sum, by some of its labels. */
async function read(metric: string, ...names: string[]): Promise<[...unknown[]][]> {
  const found = (await telemetry.metrics()).filter(({ name }) => name === metric)
  return found
    .flatMap(({ points }) => points)
    .map(({ attributes, value }): [...unknown[]] => {
      const labels = names.map((name) => (attributes as Labels)[name])
      const { count } = value as { count?: number }
      return [...labels, count ?? value]
    })
    .sort()
}

const TOOL = 'gen_ai.tool.name'
const OUTCOME = 'rondo.outcome'
const ERROR = 'error.type'
const call = (server: Server, name: string) => send(server, 'tools/call', { name, arguments: {} })

async function runTask(server: Server, name: string): Promise<string> {
  const taskId = String((await call(server, name)).result?.taskId)
  await settled(server, taskId)
  return taskId
}

it('rounds have latency, traffic and errors by tool', async () => {
  const server = start()
  server.tool('works', {}, () => 'done')
  server.tool('breaks', {}, () => {
    throw new Error('no')
  })
  for (const name of ['works', 'works', 'breaks']) await call(server, name)
  expect(await read('mcp.server.operation.duration', TOOL, ERROR)).toEqual([
    ['breaks', 'tool_error', 1],
    ['works', undefined, 2],
  ])
})

it('a tool that always throws in its task counts as a failure of turn and task, beside one that works', async () => {
  let now = 1_000_000
  const server = start({ store: createMemoryStore({ now: () => now }), now: () => now })
  server.tool('works', { task: 'always' }, () => {
    now += 7_000
    return 'done'
  })
  server.tool('breaks', { task: 'always' }, () => {
    throw new Error('no')
  })
  for (const name of ['works', 'breaks', 'breaks']) await runTask(server, name)
  const ended = [
    ['breaks', 'tool_error', 'tool_error', 2],
    ['works', 'complete', undefined, 1],
  ]
  await expect.poll(() => read('rondo.task.duration', TOOL, OUTCOME, ERROR)).toEqual(ended)
  expect(await read('rondo.task.turn.duration', TOOL, OUTCOME, ERROR)).toEqual(ended)
  const durations = (await telemetry.metrics()).find(({ name }) => name === 'rondo.task.duration')
  const works = durations?.points.find(({ attributes }) => attributes[TOOL] === 'works')
  expect(works?.value).toMatchObject({ sum: 7 })
})

const fails = () => Promise.reject(new RondoError('STORE_UNAVAILABLE', 'the database is down'))
const HASTY = { maxFailures: 2, backoffMs: () => 0 }

it('retries and tasks that were given up are counted', async () => {
  const memory = createMemoryStore()
  const createEngine: EngineStore['createEngine'] = (options) => {
    const engine = createLeaseEngine(memory, { ...options, ...HASTY })
    return { ...engine, serve: (_run, terms) => engine.serve(() => Promise.reject(new Error('no')), terms) }
  }
  const server = start({ store: { ...memory, createEngine } })
  server.tool('unlucky', { task: 'always' }, () => 'done')
  await runTask(server, 'unlucky')
  const ended = [['unlucky', 'given_up', 'given_up', 1]]
  await expect.poll(() => read('rondo.task.duration', TOOL, OUTCOME, ERROR)).toEqual(ended)
  expect(await read('rondo.task.interruptions', TOOL, 'rondo.reason')).toEqual([['unlucky', 'retried', 1]])
})

it('an end that the store did not keep is none, and faults of the store are counted', async () => {
  const memory = createMemoryStore()
  const settle: typeof memory.tasks.settle = (fence, end) =>
    end.kind === 'complete' ? fails() : memory.tasks.settle(fence, end)
  const store = { ...memory, tasks: { ...memory.tasks, settle } }
  const createEngine: EngineStore['createEngine'] = (options) =>
    createLeaseEngine(store, { ...options, ...HASTY })
  const server = start({ store: { ...store, createEngine } })
  server.tool('unlucky', { task: 'always' }, () => 'done')
  await runTask(server, 'unlucky')
  await expect.poll(() => read('rondo.task.duration', TOOL, OUTCOME)).toEqual([['unlucky', 'given_up', 1]])
  expect(await read('rondo.task.interruptions', TOOL, 'rondo.reason')).toEqual([['unlucky', 'lost', 2]])
  const broken = start({ store: { ...memory, tasks: { ...memory.tasks, create: fails } } })
  broken.tool('work', { task: 'always' }, () => 'done')
  await call(broken, 'work')
  expect(await read('rondo.store.errors', 'rondo.reason')).toContainEqual(['round', 1])
})

it('a retried effect has a span for each attempt, and each retry is counted', async () => {
  const server = start({ skipSleep: true })
  server.tool('flaky', {}, (_args, ctx) =>
    ctx.step(
      'fetch',
      ({ attempt }) => {
        if (attempt < 3) throw new Error('down')
        return 'done'
      },
      { retry: {} },
    ),
  )
  expect((await call(server, 'flaky')).result).toMatchObject({ content: [{ text: 'done' }] })
  expect(await read('rondo.work.retries', TOOL, 'rondo.work.kind')).toEqual([['flaky', 'step', 2]])
  const attempts = telemetry.spans().filter(({ name }) => name === 'step')
  expect(attempts.map(({ attributes }) => [attributes['rondo.work.attempt'], attributes[ERROR]])).toEqual([
    [1, 'Error'],
    [2, 'Error'],
    [3, undefined],
  ])
})

it('a turn whose task is cancelled is counted as lost', async () => {
  const server = start({ store: createMemoryStore() })
  let begun = (): void => {}
  const running = new Promise<void>((resolve) => {
    begun = resolve
  })
  server.tool('hangs', { task: 'always' }, (_args, ctx) => {
    begun()
    return new Promise<string>((resolve) => ctx.signal.addEventListener('abort', () => resolve('over')))
  })
  const { result } = await call(server, 'hangs')
  await running
  await send(server, 'tasks/cancel', { taskId: result?.taskId })
  await expect
    .poll(() => read('rondo.task.interruptions', TOOL, 'rondo.reason'))
    .toEqual([['hangs', 'lost', 1]])
})

it('saturation: what runs now, of how many slots', async () => {
  const server = start({ store: createMemoryStore(), tasks: { concurrency: 3 } })
  const releases: (() => void)[] = []
  const waits = (): Promise<string> => new Promise((resolve) => releases.push(() => resolve('done')))
  server.tool('round', {}, waits)
  server.tool('task', { task: 'always' }, waits)
  const pending = call(server, 'round')
  const { result } = await call(server, 'task')
  await expect.poll(() => releases.length).toBe(2)
  expect(await read('rondo.rounds.active', TOOL)).toEqual([
    ['round', 1],
    ['task', 0],
  ])
  expect(await read('rondo.task.turns.active', TOOL)).toEqual([['task', 1]])
  await expect.poll(() => read('rondo.task.slots')).toEqual([[3]])
  for (const release of releases) release()
  await pending
  await settled(server, String(result?.taskId))
  await expect.poll(() => read('rondo.task.turns.active', TOOL)).toEqual([['task', 0]])
  expect((await read('rondo.rounds.active', TOOL)).map(([, active]) => active)).toEqual([0, 0])
})

it('every refusal is counted, however few lines the log has', async () => {
  const server = start({
    authenticate: ({ headers }) =>
      headers('authorization') ? { subject: 'ann', scopes: [] } : { status: 401, reason: 'no token' },
  })
  server.tool('admin', { scopes: ['admin'] }, () => 'done')
  const post = (headers: Record<string, string>) => {
    const params = {
      name: 'admin',
      _meta: {
        'io.modelcontextprotocol/protocolVersion': '2026-07-28',
        'io.modelcontextprotocol/clientCapabilities': {},
        'io.modelcontextprotocol/clientInfo': { name: 'test', version: '1' },
      },
    }
    const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params })
    const common = {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'mcp-protocol-version': '2026-07-28',
      'mcp-method': 'tools/call',
      'mcp-name': 'admin',
    }
    const url = `http://${headers.host ?? '127.0.0.1'}/mcp`
    return server.fetch(new Request(url, { method: 'POST', headers: { ...common, ...headers }, body }))
  }
  for (let times = 0; times < 12; times += 1) await post({})
  for (let times = 0; times < 3; times += 1) await post({ authorization: 'x' })
  expect((await post({ host: 'evil.example' })).status).toBe(403)
  expect(await read('rondo.requests.refused', ERROR, 'http.response.status_code')).toEqual([
    ['PEER_HOST', 403, 1],
    ['PEER_SCOPE', 403, 3],
    ['PEER_UNAUTHENTICATED', 401, 12],
  ])
})

it('the key of a step is an attribute, and no part of the name of its span', async () => {
  const server = start()
  server.tool('many', {}, async (_args, ctx) => {
    for (let at = 0; at < 3; at += 1) await ctx.step(`row:${at}`, () => at)
    return 'done'
  })
  await call(server, 'many')
  const steps = telemetry.spans().filter(({ attributes }) => attributes['rondo.work.kind'] === 'step')
  expect(steps.map(({ name }) => name)).toEqual(['step', 'step', 'step'])
  expect(steps.map(({ attributes }) => attributes['rondo.work.name'])).toEqual(['row:0', 'row:1', 'row:2'])
})
