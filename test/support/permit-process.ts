/**
 * A server process that runs the tasks of a database, one at a time for each key. Every entry into the work and every exit from
 * it is a line of a log that all processes append to. With `open` as the last argument, its store grants every permit: a control.
 */

import { appendFileSync } from 'node:fs'
import { createServer } from '../../packages/rondo/src/index.ts'
import { createPostgresStore } from '../../packages/rondo/src/store/postgres/store.ts'
import { createSqliteStore } from '../../packages/rondo/src/store/sqlite/store.ts'

const [, , given = '', log = '', keys = '', mode] = process.argv
const { kind, ...address } = JSON.parse(given)
const store =
  kind === 'postgres'
    ? createPostgresStore({ ...address, maxConnections: 4, pollMs: 50 })
    : createSqliteStore(address)
const { permits } = store
if (mode === 'open' && permits) {
  const held = async () => ({ kind: 'held', grant: 'any' }) as const
  Object.assign(permits, { acquire: held, renew: async () => true, release: async () => {} })
}
const server = createServer({
  name: 'permits',
  version: '1',
  keys,
  log: 'off',
  store,
  // A process that a busy machine stops for longer loses its permits to another one.
  tasks: { leaseMs: 4_000 },
})
const note = (what: string, key: unknown): void => appendFileSync(log, `${what} ${key} ${process.pid}\n`)
server.tool(
  'work',
  { task: 'always', concurrency: { key: ({ key }) => String(key) } },
  async ({ key }, ctx) => {
    await ctx.effect('work', async () => {
      note('enter', key)
      await new Promise((resolve) => setTimeout(resolve, 15))
      note('exit', key)
    })
    return 'done'
  },
)
process.send?.('ready')
// The parent lets all begin at once, so that none has done the work before the others are there.
await new Promise((resolve) => process.once('message', resolve))
await server.listen({ port: 0 })
