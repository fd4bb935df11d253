/** A first program with the mistakes that newcomers make. Arguments: a port, and the PostgreSQL database for tasks. */

import { z } from 'zod'
import { createServer, generateKey } from '../../packages/rondo/src/index.ts'
import { createPostgresStore } from '../../packages/rondo/src/postgres.ts'

const [, , port, connectionString] = process.argv
const store =
  connectionString === undefined ? undefined : createPostgresStore({ connectionString, retryMs: 0 })
const server = createServer({ name: 'first', version: '1.0.0', keys: generateKey(), store })

server.tool('nested', {}, async (_args, ctx) => {
  await ctx.ask('where', { message: 'Where?', schema: z.object({ place: z.object({ city: z.string() }) }) })
  return 'done'
})
server.tool('secret', {}, async (_args, ctx) => {
  await ctx.ask('who', { message: 'Who?', schema: z.object({ password: z.string() }) })
  return 'done'
})

async function writeToDisk(): Promise<void> {
  throw new Error('The disk is full')
}
server.tool('effect', {}, async (_args, ctx) => {
  await ctx.ask('word', { message: 'Word?', schema: z.object({ word: z.string() }) })
  await ctx.effect('write', writeToDisk)
  return 'done'
})

const { url } = await server.listen({ port: Number(port) })
console.log(`Serving ${url}`)
