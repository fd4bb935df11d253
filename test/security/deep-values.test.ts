/**
 * T8 N5: values that nest as deep as a message may by default go through everything that copies, checks, digests, seals and stores
 * them, under every carrier, without an overflow of the stack.
 */

import { createServer, generateKey, type Server } from 'rondo'
import { connect } from 'rondo/client'
import { describe, expect, it, onTestFinished } from 'vitest'
import { z } from 'zod'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'

/** The levels that surround the arguments, or an answer, in a message count too. */
const LEVELS = 500

const deep = (levels: number): unknown => {
  let value: unknown = 1
  for (let i = 0; i < levels; i++) value = i % 2 ? [value] : { value }
  return value
}

const recursive = {
  type: 'object',
  properties: { tree: { $ref: '#/$defs/tree' } },
  $defs: {
    tree: {
      anyOf: [
        { type: 'integer' },
        { type: 'array', items: { $ref: '#/$defs/tree' } },
        { type: 'object', additionalProperties: { $ref: '#/$defs/tree' } },
      ],
    },
  },
} as const

const inputs = { 'a JSON Schema': recursive, zod: z.object({ tree: z.json() }), 'no schema': undefined }

function serve(input: object | undefined, task: 'never' | 'always', dev: boolean): Server {
  const server = createServer({
    name: 'deep',
    version: '1.0.0',
    keys: generateKey(),
    log: 'off',
    store: createMemoryStore(),
    dev,
  })
  server.tool('keep', { input: input as typeof recursive, task }, async (args, ctx) => {
    const kept = await ctx.step('keep', () => args)
    const sure = await ctx.confirm('sure', 'Sure?')
    const saved = await ctx.effect('save', () => kept)
    return `${sure} ${JSON.stringify(saved) === JSON.stringify(args)}`
  })
  onTestFinished(() => server.close())
  return server
}

describe.each(Object.entries(inputs))('deep arguments with %s', (_name, input) => {
  it.each([
    ['rounds', '2026-07-28', 'never', false],
    ['rounds in development', '2026-07-28', 'never', true],
    ['a task', '2026-07-28', 'always', false],
    ['a session', '2025-11-25', 'never', false],
  ] as const)('T8 N5 pass in %s', async (_carrier, mode, task, dev) => {
    const { url } = await serve(input, task, dev).listen({ port: 0, signals: false, rejections: false })
    const answers = { elicitation: () => ({ action: 'accept', content: { confirm: true } }) as const }
    const client = await connect(url, { mode, answers })
    onTestFinished(() => client.close())
    const { content } = await client.callTool('keep', { tree: deep(LEVELS) })
    expect(content).toMatchObject([{ type: 'text', text: expect.stringMatching(/true$/) }])
  })
})
