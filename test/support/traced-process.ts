/** A server process with telemetry and tasks in the given file. It never gets past its second step: its parent kills it. */

import { createServer } from '../../packages/rondo/src/index.ts'
import { otel } from '../../packages/rondo/src/otel.ts'
import { createSqliteStore } from '../../packages/rondo/src/store/sqlite/store.ts'
import { recordTelemetry } from './telemetry.ts'

const [, , file = '', keys = ''] = process.argv
recordTelemetry()
const store = createSqliteStore({ file })
const tasks = { leaseMs: 500 }
const server = createServer({
  name: 'traced',
  version: '1',
  keys,
  log: 'off',
  store,
  tasks,
  telemetry: otel(),
})
server.tool('work', { task: 'always' }, async (_args, ctx) => {
  await ctx.step('first', () => 1)
  await ctx.step('second', () => {
    process.send?.({ stuck: true })
    return new Promise(() => {})
  })
})
const { url } = await server.listen({ port: 0 })
process.send?.({ url })
