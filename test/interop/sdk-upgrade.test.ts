/** A rolling upgrade on an official server. */

import type { CallToolResult } from '@modelcontextprotocol/server'
import { type Context, createServer, type Server } from 'rondo'
import { type BenchOptions, createBench } from 'rondo/testing'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { mountedServer } from '../support/sdk-bench.ts'

const text = (value: string): CallToolResult => ({ content: [{ type: 'text', text: value }] })
const value = z.object({ value: z.string() })

describe('a new version of a tool during an open call', () => {
  const choose = async (ctx: Context, key: string) =>
    (await ctx.ask(key, { message: `${key}?`, schema: value })).value
  const versions = [
    async (ctx: Context) => `${await choose(ctx, 'size')}, ${await choose(ctx, 'amount')}`,
    async (ctx: Context) => {
      const colour = await choose(ctx, 'colour')
      return `${await choose(ctx, 'size')}, ${colour}`
    },
  ]
  const answers = { size: { value: 'L' }, amount: { value: '3' }, colour: { value: 'red' } }

  /** Deploys version 2 when the size is known, and tells what each round asked and how it ended. */
  async function upgrade(make: (options: BenchOptions, index: number) => Server) {
    let deployed = 0
    const bench = createBench((options) => make(options, deployed))
    const call = bench.tool('order')
    const asked: string[][] = []
    let round = await call.next()
    while (round.kind === 'input_required' && asked.length < 5) {
      const keys = Object.keys(round.questions)
      asked.push(keys)
      if (asked.length === 2) deployed = 1
      const given = Object.entries(answers).filter(([key]) => keys.includes(key))
      round = await call.otherInstance().next(Object.fromEntries(given))
    }
    const sealedVersions = bench.events.flatMap((event) =>
      event.event === 'round' ? event.sealedVersion : [],
    )
    return { asked, text: round.kind === 'complete' && round.text, sealedVersions }
  }

  it('B19 R10 keeps the answers that it still asks for, as on our server', async () => {
    const official = await upgrade((options, index) =>
      mountedServer({ ...options, audience: 'orders' }, (server, rondo) =>
        server.registerTool(
          'order',
          {},
          rondo.tool(async (_args, ctx) => text((await versions[index]?.(ctx)) ?? ''), {
            version: `${index}`,
          }),
        ),
      ),
    )
    expect(official.asked).toEqual([['size'], ['amount'], ['colour']])
    expect(official.text).toBe('L, red')
    expect(official.sealedVersions).toContain('0')
    const ours = await upgrade((options, index) => {
      const server = createServer({ name: 'orders', version: '1.0.0', ...options })
      server.tool('order', { version: `${index}` }, (_args, ctx) => versions[index]?.(ctx) ?? '')
      return server
    })
    expect(official).toEqual(ours)
  })
})
