/** Spans and metrics of tasks, whose turns run in other processes than the calls that began them. */

import { type ChildProcess, fork } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { SpanKind } from '@opentelemetry/api'
import type { ReadableSpan } from '@opentelemetry/sdk-trace-base'
import { createServer, generateKey, type LogEvent, type Server, type ServerOptions } from 'rondo'
import { otel } from 'rondo/otel'
import { createSqliteStore } from 'rondo/sqlite'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { z } from 'zod'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { connectOlder } from '../support/older-client.ts'
import { processFile } from '../support/process-file.ts'
import { send, settled } from '../support/task-client.ts'
import { linksOf, recordTelemetry } from '../support/telemetry.ts'

const telemetry = recordTelemetry()
const keys = generateKey('k1')
const ends: (() => unknown)[] = []

beforeEach(() => telemetry.reset())
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end()
})

const FORM = z.object({ word: z.string() })

function start(options: Partial<ServerOptions>): Server {
  const named = { name: 'traced', version: '1', keys, log: 'off' as const, telemetry: otel() }
  const server = createServer({ ...named, ...options })
  ends.push(() => server.close())
  return server
}

const spans = (kind: SpanKind): readonly ReadableSpan[] =>
  telemetry.spans().filter((span) => span.kind === kind && span.attributes['rondo.round'] !== undefined)

it('a task has a CONSUMER span of its own trace for each turn, with links to its creation and to what woke it', async () => {
  let now = 1_000_000
  const server = start({ store: createMemoryStore(), now: () => now })
  server.tool('work', { task: 'always' }, async (_args, ctx) => {
    await ctx.ask('first', { message: 'First?', schema: FORM })
    return 'done'
  })
  const { result } = await send(server, 'tools/call', { name: 'work', arguments: {} })
  const taskId = String(result?.taskId)
  await settled(server, taskId)
  now += 90_000
  const inputResponses = { first: { action: 'accept', content: { word: 'hi' } } }
  await send(server, 'tasks/update', { taskId, inputResponses })
  await settled(server, taskId)
  const [created] = spans(SpanKind.SERVER)
  const update = telemetry.spans().find(({ name }) => name === 'tasks/update')
  const turns = spans(SpanKind.CONSUMER)
  expect(created?.attributes).toMatchObject({ 'rondo.outcome': 'task', 'rondo.task.id': taskId })
  expect(turns.map(({ attributes }) => attributes['rondo.outcome'])).toEqual(['input_required', 'complete'])
  expect(turns.map(({ attributes }) => attributes['rondo.task.id'])).toEqual([taskId, taskId])
  expect(turns.map(({ attributes }) => attributes['rondo.flow.id'])).toEqual(
    Array(2).fill(created?.attributes['rondo.flow.id']),
  )
  expect(turns.map(({ parentSpanContext }) => parentSpanContext)).toEqual([undefined, undefined])
  const createdId = created?.spanContext().spanId
  expect(turns.map(linksOf)).toEqual([
    { created: createdId },
    { created: createdId, woken: update?.spanContext().spanId },
  ])
  // Human time is apart from server time: the first turn waited for nobody.
  expect(turns.map(({ attributes }) => attributes['rondo.human.wait'])).toEqual([undefined, 90])
  expect(telemetry.spans().filter(({ name }) => name === 'tasks/get')).toEqual([])
})

it('a question that tasks/result pushes carries the span of that request, which the turn it wakes is linked to (SEP-414)', async () => {
  const run = async (options: Partial<ServerOptions>) => {
    const server = start({ store: createMemoryStore(), sessions: {}, ...options })
    server.tool('work', { task: 'always' }, async (_args, ctx) => {
      await ctx.ask('first', { message: 'First?', schema: FORM })
      return 'done'
    })
    const client = await connectOlder(
      'http://127.0.0.1/mcp',
      {
        capabilities: { elicitation: { form: {} } },
        answer: () => ({ action: 'accept', content: { word: 'hi' } }),
      },
      (request) => server.fetch(request),
    )
    const begun = await client.call('tools/call', { name: 'work', arguments: {}, task: {} })
    const { taskId } = (begun.result as { task: { taskId: string } }).task
    const _meta = { traceparent: `00-${'1'.repeat(32)}-${'a'.repeat(16)}-01` }
    const { result } = await client.call('tasks/result', { taskId, _meta })
    expect(result).toMatchObject({ content: [{ text: 'done' }] })
    expect(client.asked).toHaveLength(1)
    return client.asked[0]?.params._meta
  }
  const meta = await run({})
  const waiting = telemetry.spans().find(({ name }) => name === 'tasks/result')
  const spanId = waiting?.spanContext().spanId
  expect(waiting?.spanContext().traceId).toBe('1'.repeat(32))
  expect(meta).toMatchObject({ traceparent: `00-${'1'.repeat(32)}-${spanId}-01` })
  expect(spans(SpanKind.CONSUMER).map((turn) => linksOf(turn).woken)).toEqual([undefined, spanId])
  expect(await run({ telemetry: undefined })).not.toHaveProperty('traceparent')
})

it.each([
  ['while its turn runs', true],
  ['after its turn', false],
])('R7 a handler does not see the span of the request whose answer arrives %s', async (_, during) => {
  const server = start({ store: createMemoryStore() })
  let release = () => {}
  const released = new Promise<void>((resolve) => {
    release = resolve
  })
  server.tool('work', { task: 'always' }, async (_args, ctx) => {
    const slow = during ? ctx.step('slow', () => released) : undefined
    const said = await ctx.sample('say', { messages: [], maxTokens: 10 })
    release()
    await slow
    return JSON.stringify(said)
  })
  const { result } = await send(server, 'tools/call', { name: 'work', arguments: {} })
  const taskId = String(result?.taskId)
  expect(await settled(server, taskId)).toMatchObject({ status: 'input_required' })
  const answer = { role: 'assistant', content: { type: 'text', text: 'hi' }, model: 'm', _meta: { own: 1 } }
  await send(server, 'tasks/update', { taskId, inputResponses: { say: answer } })
  const ended = (await settled(server, taskId)) as { result: { content: { text: string }[] } }
  expect(JSON.parse(ended.result.content[0]?.text ?? '')).toEqual(answer)
  expect(spans(SpanKind.CONSUMER)).toHaveLength(during ? 1 : 2)
})

it('polls have spans if that is asked for', async () => {
  const server = start({ store: createMemoryStore(), telemetry: otel({ polls: true }) })
  server.tool('work', { task: 'always' }, () => 'done')
  const { result } = await send(server, 'tools/call', { name: 'work', arguments: {} })
  await settled(server, String(result?.taskId))
  const [poll] = telemetry.spans().filter(({ name }) => name === 'tasks/get')
  expect(poll?.attributes).toMatchObject({ 'rondo.task.id': result?.taskId })
})

it('E9 a task whose process was killed continues elsewhere, linked to the call that began it', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'rondo-traced-'))
  ends.push(() => rmSync(folder, { recursive: true, force: true }))
  const file = join(folder, 'tasks.db')
  const child: ChildProcess = fork(processFile('test/support/traced-process.ts'), [file, keys], {
    execArgv: [],
  })
  ends.push(() => child.kill('SIGKILL'))
  const said = (name: string): Promise<unknown> =>
    new Promise((resolve) =>
      child.on('message', (message: Record<string, unknown>) => {
        if (name in message) resolve(message[name])
      }),
    )
  const stuck = said('stuck')
  const url = String(await said('url'))
  const traceId = '7'.repeat(32)
  const _meta = { traceparent: `00-${traceId}-${'a'.repeat(16)}-01` }
  const remote = { fetch: (request: Request) => fetch(new Request(url, request)) }
  const { result } = await send(remote, 'tools/call', { name: 'work', arguments: {}, _meta })
  const taskId = String(result?.taskId)
  await stuck
  child.kill('SIGKILL')

  const events: LogEvent[] = []
  const store = createSqliteStore({ file })
  ends.push(() => store.close())
  const next = start({ store, instance: 'next', log: (event) => void events.push(event) })
  next.tool('work', { task: 'always' }, async (_args, ctx) => {
    await ctx.step('first', () => 1)
    await ctx.step('second', () => 2)
    return 'done'
  })
  expect(await settled(next, taskId)).toMatchObject({ status: 'completed' })
  const place = { instance: 'next', task: taskId, flow: expect.any(String), round: 1 }
  const takenOver = events.find(({ event }) => event === 'task')
  expect(takenOver).toMatchObject({ phase: 'taken_over', ...place })
  // The second, or a later one if a busy machine cost the first process its lease before it was killed.
  const nth = (takenOver as { turn?: number }).turn ?? 0
  expect(nth).toBeGreaterThan(1)
  const [turn] = spans(SpanKind.CONSUMER) as [ReadableSpan]
  expect(turn.attributes).toMatchObject({
    'rondo.task.id': taskId,
    'rondo.task.turn': nth,
    'rondo.outcome': 'complete',
    'rondo.ops.replayed': 1,
    'rondo.ops.executed': 1,
  })
  // The call ran in the process that is gone, in the trace that its client named.
  expect(turn.links.map(({ context }) => context.traceId)).toEqual([traceId])
  expect(linksOf(turn)).toHaveProperty('created')
  expect(turn.events.map(({ attributes }) => attributes?.['rondo.work.name'])).toEqual(['first'])
  const worked = telemetry.spans().filter(({ kind }) => kind === SpanKind.INTERNAL)
  expect(worked.map(({ attributes }) => attributes['rondo.work.name'])).toEqual(['second'])
}, 120_000)

it('the queue is measured: open tasks, and how long the oldest that is due has waited', async () => {
  const store = createMemoryStore()
  const stats = async () => ({ due: 2, oldestDueMs: 4_500, running: 1, parked: 3 })
  const server = start({ store: { ...store, tasks: { ...store.tasks, stats } } })
  await send(server, 'tools/list', {})
  const measured = async () => {
    const found = (await telemetry.metrics()).filter(({ name }) => name.startsWith('rondo.tasks.'))
    return Object.fromEntries(found.map(({ name, unit, points }) => [name, [unit, points[0]?.value]]))
  }
  const expected = { 'rondo.tasks.open': ['{task}', 6], 'rondo.tasks.due.age': ['s', 4.5] }
  await vi.waitFor(async () => expect(await measured()).toEqual(expected), { timeout: 60_000 })
})
