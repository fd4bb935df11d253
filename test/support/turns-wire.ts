/** A server that asks in turns, and what its tests read from the wire. */

import { createServer, generateKey, type Server, type ServerOptions } from 'rondo'
import { z } from 'zod'
import { connectTurns, type Got, type Message } from './turns-client.ts'

export const URL = 'http://127.0.0.1/mcp'
export const keys = generateKey('wire')
export const value = z.object({ value: z.string() })
export const accept = (content: Message): Message => ({ action: 'accept', content })

export function make(options: Partial<ServerOptions> = {}): Server {
  const server = createServer({ name: 'wire', version: '1', keys, dev: true, log: 'off', ...options })
  server.tool('ask', {}, async (_args, ctx) => {
    const { value: name } = await ctx.ask('name', { message: 'Name?', schema: value })
    return `Hello ${name}`
  })
  server.tool('both', {}, async (_args, ctx) => {
    const [left, right] = await Promise.all([
      ctx.ask('left', { message: 'Left?', schema: value }),
      ctx.ask('right', { message: 'Right?', schema: value }),
    ])
    return `${left.value}${right.value}`
  })
  server.tool('counts', {}, async (_args, ctx) => {
    ctx.progress(1, 3)
    await ctx.ask('go', { message: 'Go?', schema: value })
    ctx.progress(2, 3)
    await ctx.step('work', () => 'done')
    ctx.progress(3, 3)
    return 'counted'
  })
  return server
}

/** A client whose every request reaches the instance that `at` returns. */
export function connect(
  at: () => Server,
  options?: Parameters<typeof connectTurns>[2],
): ReturnType<typeof connectTurns> {
  return connectTurns((request) => at().fetch(request), URL, options)
}

export const call = (name: string, args: Message = {}): [string, Message] => [
  'tools/call',
  { name, arguments: args },
]

export function questions(got: Got): readonly Message[] {
  if (got.kind !== 'turn') throw new Error(`expected a turn, got ${JSON.stringify(got)}`)
  return got.requests
}

export function textOf(got: Got): string {
  const { result } = got.kind === 'response' ? got.message : {}
  if (result === undefined) throw new Error(`expected a result, got ${JSON.stringify(got)}`)
  return (result as { content: { text: string }[] }).content[0]?.text ?? ''
}

export function errorOf(got: Got): Message {
  if (got.kind !== 'response' || got.message.error === undefined) throw new Error(JSON.stringify(got))
  return got.message.error as Message
}

export const REFUSED = { code: -32602, message: 'Invalid or expired requestState' }
