/**
 * A server behind a gateway that records every request for its tool. As a process of its own it writes the record to a file, and
 * listens on the port that it is given.
 */

import { appendFileSync } from 'node:fs'
import { createServer, type Server } from 'rondo'
import { z } from 'zod'

/** The gate before the work: a handler that waits here has its answer, and has not replied. */
export interface Gate {
  readonly open: () => Promise<void>
}

export function createOrderUpstream(
  record: (line: string, client: string) => void,
  keys: string,
  gate: Gate = { open: async () => {} },
): Server {
  const server = createServer({ name: 'orders', version: '1.0.0', keys, log: 'off' })
  server.use({
    name: 'record',
    async around(call, next) {
      if (call.method === 'tools/call')
        record(`${call.target} ${call.continues ? 'answered' : 'begun'}`, call.client?.name ?? '')
      return next()
    },
  })
  const order = async (
    _args: unknown,
    ctx: Parameters<Parameters<Server['tool']>[2]>[1],
  ): Promise<string> => {
    const { size } = await ctx.ask('size', { message: 'Which size?', schema: z.object({ size: z.string() }) })
    await gate.open()
    return `ordered ${size}`
  }
  server.tool('order', {}, order)
  server.tool('look', { annotations: { readOnlyHint: true } }, order)
  server.tool('plain', {}, async () => {
    await gate.open()
    return 'done'
  })
  return server
}

const { ORDER_RECORD: file, ORDER_PORT: port, ORDER_KEYS: keys } = process.env
if (file && port && keys) {
  const server = createOrderUpstream((line) => appendFileSync(file, `${line}\n`), keys)
  const { url } = await server.listen({ port: Number(port) })
  console.log(url)
}
