/** Tools that run only as tasks at their server, for clients that cannot follow tasks. */

import { createServer, generateKey } from 'rondo'
import { connect } from 'rondo/client'
import { describe, expect, it, onTestFinished } from 'vitest'
import { z } from 'zod'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { serveGateway } from './peers.ts'

async function jobs(): Promise<{ url: string; seen: { runs: number; slow: string } }> {
  const seen = { runs: 0, slow: '' }
  const store = createMemoryStore()
  const server = createServer({
    name: 'jobs',
    version: '1.0.0',
    keys: generateKey(),
    log: () => {},
    store,
    tasks: { pollMs: 20 },
  })
  server.tool('job', { input: z.object({ n: z.number() }), task: 'always' }, async ({ n }, ctx) => {
    const { sure } = await ctx.ask('sure', { message: `Run ${n}?`, schema: z.object({ sure: z.string() }) })
    await ctx.effect('run', () => {
      seen.runs += 1
    })
    return `ran ${n}: ${sure}`
  })
  server.tool('slow', { task: 'always' }, async (_args, ctx) => {
    seen.slow = 'running'
    await new Promise<void>((resolve) => ctx.signal.addEventListener('abort', () => resolve()))
    seen.slow = 'cancelled'
    return 'late'
  })
  const { url } = await server.listen({ port: 0, signals: false, graceMs: 100 })
  onTestFinished(() => server.close())
  return { url, seen }
}

const REVISIONS = ['2026-07-28', '2025-11-25'] as const
const cells = REVISIONS.flatMap((host) => REVISIONS.map((behind) => ({ host, behind })))

describe.each(cells)('K4 a client of $host without tasks, before $behind', ({ host, behind }) => {
  it('calls a tool that runs only as a task, answers its question, and gets the result', async () => {
    const { url, seen } = await jobs()
    const gateway = await serveGateway({ up: { url, revision: behind } })
    const client = await connect(gateway.url, {
      mode: host,
      drafts: false,
      tasks: false,
      answers: { elicitation: { form: () => ({ action: 'accept', content: { sure: 'yes' } }) } },
    })
    onTestFinished(() => client.close())
    expect((await client.callTool('job', { n: 3 })).content).toEqual([{ type: 'text', text: 'ran 3: yes' }])
    expect(seen.runs).toBe(1)
    expect(gateway.gateway.heldCalls()).toBe(0)
  })

  it('W7 cancels the task with the call', async () => {
    const { url, seen } = await jobs()
    const gateway = await serveGateway({ up: { url, revision: behind } })
    const client = await connect(gateway.url, { mode: host, drafts: false, tasks: false })
    onTestFinished(() => client.close())
    const stop = new AbortController()
    const calling = client.callTool('slow', {}, { signal: stop.signal })
    calling.catch(() => {})
    await expect.poll(() => seen.slow).toBe('running')
    stop.abort()
    await expect(calling).rejects.toThrow()
    await expect.poll(() => seen.slow).toBe('cancelled')
  })
})
