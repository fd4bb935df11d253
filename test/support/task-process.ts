/** A server process with tasks in the given file. Reports each step that it begins to its parent. */

import { createServer } from '../../packages/rondo/src/index.ts'
import { createSqliteStore } from '../../packages/rondo/src/store/sqlite/store.ts'

const keys = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='
const store = createSqliteStore({ file: process.argv[2] ?? '' })
const server = createServer({ name: 'tasks', version: '1', keys, log: 'off', store })
server.tool('steps', { task: 'always' }, async (_args, ctx) => {
  for (let i = 0; i < 10_000; i++) {
    await ctx.step(`step ${i}`, async () => {
      process.send?.({ step: i })
      await new Promise((resolve) => setTimeout(resolve, 20))
    })
  }
  return 'done'
})
const { port } = await server.listen({ port: 0 })
process.send?.({ port })
